/* Random bits of RP2040's ring oscillator, which runs after a reset and beside the crystal. Bits read one after the other
 * are alike, so each is the parity of those in about 20 of its periods. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define RANDOMBIT MT_REGISTER(0x4006001Cu)
#define READS 512u /* for a byte */

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        uint32_t byte = 0;
        for (uint32_t read = 0; read < READS; ++read) {
            byte ^= (RANDOMBIT & 1u) << read / (READS / 8u);
        }
        bytes[i] = (uint8_t)byte;
    }
    return MT_OK;
}
