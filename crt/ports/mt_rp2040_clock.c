/* The clocks of RP2040: the system and peripherals from PLL_SYS, that from the crystal. RP2040 datasheet, 2.14 (RESETS),
 * 2.15 (clocks), 2.16 (XOSC), 2.18 (PLL). */
#include "mt_board.h"
#include "mt_ports.h"

#define RESETS_RESET MT_REGISTER(0x4000C000u)
#define RESETS_DONE MT_REGISTER(0x4000C008u)
#define CLK_REF_CTRL MT_REGISTER(0x40008030u)
#define CLK_REF_SELECTED MT_REGISTER(0x40008038u)
#define CLK_SYS_CTRL MT_REGISTER(0x4000803Cu)
#define CLK_SYS_SELECTED MT_REGISTER(0x40008044u)
#define CLK_PERI_CTRL MT_REGISTER(0x40008048u)
#define XOSC_CTRL MT_REGISTER(0x40024000u)
#define XOSC_STATUS MT_REGISTER(0x40024004u)
#define XOSC_STARTUP MT_REGISTER(0x4002400Cu)
#define PLL_CS MT_REGISTER(0x40028000u)
#define PLL_PWR MT_REGISTER(0x40028004u)
#define PLL_FBDIV MT_REGISTER(0x40028008u)
#define PLL_PRIM MT_REGISTER(0x4002800Cu)

#define PLL_SYS (1u << 12)
#define XOSC_ON 0x00FABAA0u /* ENABLE, 1 to 15 MHz */
#define STABLE (1u << 31)
#define LOCK (1u << 31)
#define PWR_PD 1u
#define PWR_POSTDIVPD (1u << 3)
#define PWR_VCOPD (1u << 5)
#define REF_XOSC 2u
#define SYS_AUX 1u          /* with AUXSRC 0: PLL_SYS */
#define PERI_ON (1u << 11) /* with AUXSRC 0: clk_sys */

void mt_clock_init(void)
{
    XOSC_STARTUP = (MT_CLOCK_SOURCE_HZ / 1000u + 128u) / 256u; /* 1 ms, in 256 cycles */
    XOSC_CTRL = XOSC_ON;
    while ((XOSC_STATUS & STABLE) == 0) {
    }
    CLK_SYS_CTRL = 0; /* from clk_ref, so that the PLL can be set up, also after a reset of the core alone */
    while (CLK_SYS_SELECTED != 1u) {
    }
    CLK_REF_CTRL = REF_XOSC;
    while (CLK_REF_SELECTED != 1u << REF_XOSC) {
    }
    RESETS_RESET |= PLL_SYS;
    RESETS_RESET &= ~PLL_SYS;
    while ((RESETS_DONE & PLL_SYS) == 0) {
    }
    PLL_CS = 1; /* REFDIV */
    PLL_FBDIV = MT_CLOCK_N;
    PLL_PWR &= ~(PWR_PD | PWR_VCOPD);
    while ((PLL_CS & LOCK) == 0) {
    }
    PLL_PRIM = (uint32_t)MT_CLOCK_P1 << 16 | (uint32_t)MT_CLOCK_P2 << 12;
    PLL_PWR &= ~PWR_POSTDIVPD;
    CLK_SYS_CTRL = SYS_AUX;
    while (CLK_SYS_SELECTED != 1u << SYS_AUX) {
    }
    CLK_PERI_CTRL = PERI_ON;
}
