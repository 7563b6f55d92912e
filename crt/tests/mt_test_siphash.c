/* Prints the codes of 0, 1, 2, ... 63 bytes 00 01 02 ... under MT_LINK_KEY. */
#include <inttypes.h>
#include <stdio.h>

#include "mt_siphash.h"

int main(void)
{
    uint8_t text[64];
    for (uint8_t count = 0; count < sizeof text; ++count) {
        printf("%016" PRIx64 "\n", mt_siphash(mt_link_key, text, count));
        text[count] = count;
    }
    return 0;
}
