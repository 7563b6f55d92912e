/* A 32-bit general-purpose timer of STM32: TIM2 and TIM5 of most. It counts up; its update flag, whose interrupt stays
 * disabled in the NVIC and so interrupts nothing, is the overflow. RM0090 (F4), 18.4; RM0033 (F2), 15.4. */
#include "mt_board.h"
#include "mt_ports.h"

#define CR1 MT_REGISTER(MT_TIMER_BASE + 0x00u)
#define DIER MT_REGISTER(MT_TIMER_BASE + 0x0Cu)
#define SR MT_REGISTER(MT_TIMER_BASE + 0x10u)
#define EGR MT_REGISTER(MT_TIMER_BASE + 0x14u)
#define CNT MT_REGISTER(MT_TIMER_BASE + 0x24u)
#define PSC MT_REGISTER(MT_TIMER_BASE + 0x28u)
#define ARR MT_REGISTER(MT_TIMER_BASE + 0x2Cu)

#define CR1_CEN 1u
#define DIER_UIE 1u
#define SR_UIF 1u
#define EGR_UG 1u

int32_t mt_timer_start(void)
{
    MT_REGISTER(MT_TIMER_ENABLE) |= 1u << MT_TIMER_ENABLE_BIT;
    (void)MT_REGISTER(MT_TIMER_ENABLE); /* the clock needs two cycles */
    CR1 = 0;
    DIER = DIER_UIE;
    PSC = 0;
    ARR = UINT32_MAX;
    EGR = EGR_UG; /* takes the prescaler over, and sets the flag */
    CNT = 0;
    SR = 0;
    CR1 = CR1_CEN;
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    *ticks = CNT;
    const int32_t is_in_range = (SR & SR_UIF) == 0;
    CR1 = 0;
    return is_in_range;
}
