#include <stddef.h>
#include <string.h>

#include "mtool.h"

/* Through src/port.c of the generated folder: the UART, or semihosting in an emulator. */
static void report(const char *what, int32_t number)
{
    static int is_open;
    char digits[16];
    size_t at = sizeof digits;
    uint32_t left = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
    digits[--at] = '\n';
    do {
        digits[--at] = (char)('0' + left % 10u);
        left /= 10u;
    } while (left > 0);
    if (number < 0) {
        digits[--at] = '-';
    }
    digits[--at] = ' ';
    if (!is_open) {
        is_open = mt_port_init() == 0;
    }
    mt_port_write((const uint8_t *)what, strlen(what));
    mt_port_write((const uint8_t *)digits + at, sizeof digits - at);
}
