/* The cycle counter of a Cortex-M3, M4, M7, M33 or M55: 32 bits at the core's clock. Its comparator 0 tells an overflow: it
 * matches the counter's last value and triggers nothing. Some emulators and chips have no counter, which is detected.
 * Armv7-M ARM, C1.8 (DWT_CTRL, DWT_FUNCTION), C1.6.5 (DEMCR); Armv8-M ARM, D1.2.58; DDI 0489 (M7), 15.3 (lock). */
#include "mt_board.h"
#include "mt_ports.h"

#define CTRL MT_REGISTER(0xE0001000u)
#define CYCCNT MT_REGISTER(0xE0001004u)
#define COMP0 MT_REGISTER(0xE0001020u)
#define FUNCTION0 MT_REGISTER(0xE0001028u)
#define LAR MT_REGISTER(0xE0001FB0u)
#define DEMCR MT_REGISTER(0xE000EDFCu)

#define CTRL_CYCCNTENA 1u
#define DEMCR_TRCENA (1u << 24)
#define FUNCTION_MATCHED (1u << 24) /* a read clears it */
#if defined(__ARM_ARCH_8M_MAIN__) || defined(__ARM_ARCH_8_1M_MAIN__)
#define FUNCTION_CYCLES 1u /* matches the cycle counter; the action is a trigger, which nothing takes */
#else
#define FUNCTION_CYCLES ((1u << 7) | 8u) /* CYCMATCH; CMPMATCH, an event that only a trace unit takes */
#endif
#define UNLOCK 0xC5ACCE55u

int32_t mt_timer_start(void)
{
    DEMCR |= DEMCR_TRCENA;
    LAR = UNLOCK; /* of a Cortex-M7; others ignore it */
    CTRL &= ~CTRL_CYCCNTENA;
    CYCCNT = 0;
    COMP0 = UINT32_MAX;
    FUNCTION0 = FUNCTION_CYCLES;
    (void)FUNCTION0;
    CTRL |= CTRL_CYCCNTENA;
    const uint32_t first = CYCCNT;
    if (CYCCNT == first) {
        return 0;
    }
    CYCCNT = 0;
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    *ticks = CYCCNT;
    return (FUNCTION0 & FUNCTION_MATCHED) == 0;
}
