/* The clock of STM32 F1: the PLL from the crystal or, halved, from the internal oscillator. RM0008, 7.3 (RCC) and 3.3.3
 * (FLASH_ACR); RM0041 (F100), 6.3. */
#include "mt_board.h"
#include "mt_ports.h"

#define CR MT_REGISTER(MT_CLOCK_BASE + 0x00u)
#define CFGR MT_REGISTER(MT_CLOCK_BASE + 0x04u)
#define ACR MT_REGISTER(MT_CLOCK_FLASH)

#define CR_HSEON (1u << 16)
#define CR_HSERDY (1u << 17)
#define CR_HSEBYP (1u << 18)
#define CR_PLLON (1u << 24)
#define CR_PLLRDY (1u << 25)
#define CFGR_SW 3u
#define CFGR_SW_PLL 2u
#define CFGR_PPRE1_AT 8u
#define CFGR_PLLSRC_HSE (1u << 16)
#define CFGR_PLLMUL_AT 18u

void mt_clock_init(void)
{
    uint32_t settings = (MT_CLOCK_MULTIPLIER - 2u) << CFGR_PLLMUL_AT | MT_CLOCK_DIVIDER(MT_CLOCK_APB1) << CFGR_PPRE1_AT;
    if (MT_CLOCK_SOURCE != MT_CLOCK_INTERNAL) {
        if (MT_CLOCK_SOURCE == MT_CLOCK_EXTERNAL) {
            CR |= CR_HSEBYP; /* only while HSE is off */
        }
        CR |= CR_HSEON;
        while ((CR & CR_HSERDY) == 0) {
        }
        settings |= CFGR_PLLSRC_HSE;
    }
    ACR = MT_CLOCK_ACR; /* before the core is faster */
    CFGR = settings;    /* before the PLL runs */
    CR |= CR_PLLON;
    while ((CR & CR_PLLRDY) == 0) {
    }
    CFGR = settings | CFGR_SW_PLL;
    while ((CFGR >> 2 & CFGR_SW) != CFGR_SW_PLL) {
    }
}
