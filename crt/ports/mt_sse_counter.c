/* The system counter of Arm's SSE-300 subsystem (101773, "Timestamp counter"), 64 bits: it can't overflow in a lifetime.
 * It is restarted from zero, so that a measurement does not depend on where between two ticks it began. */
#include "mt_board.h"
#include "mt_ports.h"

#define CNTCR MT_REGISTER(MT_TIMER_BASE + 0x0u)
#define CNTCV_LOW MT_REGISTER(MT_TIMER_BASE + 0x8u)
#define CNTCV_HIGH MT_REGISTER(MT_TIMER_BASE + 0xCu)
#define CNTCR_ENABLE 1u

int32_t mt_timer_start(void)
{
    CNTCR = 0;
    CNTCV_LOW = 0;
    CNTCV_HIGH = 0;
    CNTCR = CNTCR_ENABLE;
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    CNTCR = 0; /* both halves are of the same moment */
    *ticks = ((uint64_t)CNTCV_HIGH << 32) | CNTCV_LOW;
    return 1;
}
