/* mtool's RPC on a Raspberry Pi Pico by the Pico SDK: at USB or the UART, as pico_enable_stdio_usb or _uart says.
 *
 * The binary protocol must pass unchanged: define PICO_STDIO_DEFAULT_CRLF=0, link hardware_watchdog, print nothing else.
 * At USB, define MT_RPC_WINDOW_BYTES=0: it has flow control. */
#include <pico/stdio.h>
#include <pico/stdlib.h>
#include <pico/time.h>
#include <hardware/watchdog.h>

#include "mt_rpc.h"

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    size_t count = 0;
    while (count < capacity) {
        const int one = getchar_timeout_us(0);
        if (one < 0) {
            break;
        }
        bytes[count++] = (uint8_t)one;
    }
    return count;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        putchar_raw(bytes[i]);
    }
    stdio_flush();
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = 1000000;
    return time_us_32();
}

void mt_rpc_idle(void)
{
    tight_loop_contents();
}

void mt_rpc_reset(void)
{
    watchdog_reboot(0, 0, 0);
}
