/* A 32-bit TIMER of nRF51 (TIMER0 only) and nRF52, at 16 MHz. Compare register 1 tells an overflow.
 * nRF51 Series Reference Manual 3.0, ch. 19; nRF52840 PS 1.7, 6.30. */
#include "mt_board.h"
#include "mt_ports.h"

#define START MT_REGISTER(MT_TIMER_BASE + 0x000u)
#define STOP MT_REGISTER(MT_TIMER_BASE + 0x004u)
#define CLEAR MT_REGISTER(MT_TIMER_BASE + 0x00Cu)
#define CAPTURE0 MT_REGISTER(MT_TIMER_BASE + 0x040u)
#define COMPARE1 MT_REGISTER(MT_TIMER_BASE + 0x144u)
#define SHORTS MT_REGISTER(MT_TIMER_BASE + 0x200u)
#define MODE MT_REGISTER(MT_TIMER_BASE + 0x504u)
#define BITMODE MT_REGISTER(MT_TIMER_BASE + 0x508u)
#define PRESCALER MT_REGISTER(MT_TIMER_BASE + 0x510u)
#define CC0 MT_REGISTER(MT_TIMER_BASE + 0x540u)
#define CC1 MT_REGISTER(MT_TIMER_BASE + 0x544u)

#define MODE_TIMER 0u
#define BITMODE_32 3u

int32_t mt_timer_start(void)
{
    STOP = 1;
    SHORTS = 0;
    MODE = MODE_TIMER;
    BITMODE = BITMODE_32;
    PRESCALER = 0;
    CC1 = UINT32_MAX;
    CLEAR = 1;
    COMPARE1 = 0;
    START = 1;
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    CAPTURE0 = 1;
    *ticks = CC0;
    const int32_t is_in_range = COMPARE1 == 0;
    STOP = 1;
    return is_in_range;
}
