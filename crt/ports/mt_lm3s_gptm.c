/* A general-purpose timer of TI's Stellaris LM3S as one of 32 bits, which counts down once. LM3S6965 datasheet, 9.3.1 and
 * 9.5. QEMU's can't be read, which is detected. */
#include "mt_board.h"
#include "mt_ports.h"

#define CFG MT_REGISTER(MT_TIMER_BASE + 0x00u)
#define TAMR MT_REGISTER(MT_TIMER_BASE + 0x04u)
#define CTL MT_REGISTER(MT_TIMER_BASE + 0x0Cu)
#define RIS MT_REGISTER(MT_TIMER_BASE + 0x1Cu)
#define ICR MT_REGISTER(MT_TIMER_BASE + 0x24u)
#define TAILR MT_REGISTER(MT_TIMER_BASE + 0x28u)
#define TAR MT_REGISTER(MT_TIMER_BASE + 0x48u)

#define CFG_32_BITS 0u
#define TAMR_ONE_SHOT 1u
#define CTL_TAEN 1u
#define RIS_TATO 1u

int32_t mt_timer_start(void)
{
    MT_REGISTER(MT_TIMER_ENABLE) |= 1u << MT_TIMER_ENABLE_BIT;
    (void)MT_REGISTER(MT_TIMER_ENABLE);
    CTL = 0;
    CFG = CFG_32_BITS;
    TAMR = TAMR_ONE_SHOT;
    TAILR = UINT32_MAX;
    ICR = RIS_TATO;
    CTL = CTL_TAEN;
    const uint32_t first = TAR;
    return TAR != first;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    *ticks = UINT32_MAX - TAR;
    const int32_t is_in_range = (RIS & RIS_TATO) == 0;
    CTL = 0;
    return is_in_range;
}
