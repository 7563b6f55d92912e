/* The random number generator of STM32 with a clock of 48 MHz: the PLL's, or an oscillator that is turned on here. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define CR MT_REGISTER(MT_RANDOM_BASE + 0x0u)
#define SR MT_REGISTER(MT_RANDOM_BASE + 0x4u)
#define DR MT_REGISTER(MT_RANDOM_BASE + 0x8u)
#define CR_RNGEN 4u
#define SR_DRDY 1u
#define SR_ERRORS 0x66u /* of the clock and the seed, now and before */
#define MOST_READS 100000u

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    uint32_t left = MOST_READS;
    MT_REGISTER(MT_RANDOM_ENABLE) |= 1u << MT_RANDOM_ENABLE_BIT;
#ifdef MT_RANDOM_OSCILLATOR
    MT_REGISTER(MT_RANDOM_OSCILLATOR) |= 1u << MT_RANDOM_OSCILLATOR_BIT;
    while ((MT_REGISTER(MT_RANDOM_OSCILLATOR) >> MT_RANDOM_OSCILLATOR_BIT & 2u) == 0 && left > 0) {
        --left; /* the next bit: it is ready */
    }
#endif
    CR = CR_RNGEN;
    uint32_t word = 0;
    for (size_t i = 0; i < count + 4u && left > 0; ++i) { /* the first word is not used */
        if (i % 4u == 0) {
            for (left = MOST_READS; (SR & (SR_DRDY | SR_ERRORS)) != SR_DRDY && left > 0; --left) {
            }
            word = DR;
        }
        if (i >= 4u) {
            bytes[i - 4u] = (uint8_t)(word >> 8u * (i % 4u));
        }
    }
    CR = 0;
    return left > 0 ? MT_OK : MT_IO;
}
