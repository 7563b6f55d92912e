/* The 32-bit timer of Arm's Cortex-M System Design Kit (DDI 0479, "APB timer"). It counts down. Past zero it raises its
 * interrupt, which is not enabled in the NVIC and so interrupts nothing, but can be read here. */
#include "mt_board.h"
#include "mt_ports.h"

#define CTRL MT_REGISTER(MT_TIMER_BASE + 0x0u)
#define VALUE MT_REGISTER(MT_TIMER_BASE + 0x4u)
#define RELOAD MT_REGISTER(MT_TIMER_BASE + 0x8u)
#define INTSTATUS MT_REGISTER(MT_TIMER_BASE + 0xCu) /* write 1 to clear */
#define CTRL_ENABLE 1u
#define CTRL_INTERRUPT 8u

int32_t mt_timer_start(void)
{
    CTRL = 0;
    RELOAD = UINT32_MAX;
    VALUE = UINT32_MAX;
    INTSTATUS = 1;
    CTRL = CTRL_ENABLE | CTRL_INTERRUPT;
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    *ticks = UINT32_MAX - VALUE;
    return INTSTATUS == 0;
}
