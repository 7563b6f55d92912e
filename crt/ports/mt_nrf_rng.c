/* The random number generator of nRF51 and nRF52, without its correction of bias: at most 0.2 ms a byte. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define START MT_REGISTER(MT_RANDOM_BASE + 0x0u)
#define STOP MT_REGISTER(MT_RANDOM_BASE + 0x4u)
#define VALRDY MT_REGISTER(MT_RANDOM_BASE + 0x100u)
#define VALUE MT_REGISTER(MT_RANDOM_BASE + 0x508u)
#define MOST_READS 100000u

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    uint32_t left = MOST_READS;
    START = 1;
    for (size_t i = 0; i < count && left > 0; ++i) {
        VALRDY = 0;
        for (left = MOST_READS; VALRDY == 0 && left > 0; --left) {
        }
        bytes[i] = (uint8_t)VALUE;
    }
    STOP = 1;
    return left > 0 ? MT_OK : MT_IO;
}
