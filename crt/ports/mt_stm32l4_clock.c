/* The clock of STM32 L4 and L4+: the PLL from the 16 MHz oscillator. RM0432 (L4+), 6.4 (RCC), 5.1.8 and 5.4.21 (PWR: boost
 * mode above 80 MHz), 3.7.1 (FLASH_ACR); RM0351 (L4). */
#include "mt_board.h"
#include "mt_ports.h"

#define CR MT_REGISTER(MT_CLOCK_BASE + 0x00u)
#define CFGR MT_REGISTER(MT_CLOCK_BASE + 0x08u)
#define PLLCFGR MT_REGISTER(MT_CLOCK_BASE + 0x0Cu)
#define APB1ENR1 MT_REGISTER(MT_CLOCK_BASE + 0x58u)
#define ACR MT_REGISTER(MT_CLOCK_FLASH)
#define PWR_CR5 MT_REGISTER(0x40007080u)

#define CR_HSION (1u << 8)
#define CR_HSIRDY (1u << 10)
#define CR_PLLON (1u << 24)
#define CR_PLLRDY (1u << 25)
#define CFGR_SW_PLL 3u
#define CFGR_HALF (8u << 4) /* HPRE: the core at half the PLL's rate */
#define PLLCFGR_HSI 2u
#define PLLCFGR_REN (1u << 24)
#define APB1ENR1_PWREN (1u << 28)
#define CR5_R1MODE (1u << 8) /* 0: boost */
#define ACR_LATENCY 15u
#define SETTLE_LOOPS 120u /* more than 1 us */

void mt_clock_init(void)
{
    CR |= CR_HSION;
    while ((CR & CR_HSIRDY) == 0) {
    }
#ifdef MT_CLOCK_BOOST
    APB1ENR1 |= APB1ENR1_PWREN;
    (void)APB1ENR1;
    PWR_CR5 &= ~CR5_R1MODE;
#endif
    ACR = MT_CLOCK_ACR;
    while ((ACR & ACR_LATENCY) != (MT_CLOCK_ACR & ACR_LATENCY)) {
    }
    PLLCFGR = (MT_CLOCK_R / 2u - 1u) << 25 | (uint32_t)MT_CLOCK_N << 8 | (MT_CLOCK_M - 1u) << 4 | PLLCFGR_HSI;
    CR |= CR_PLLON;
    while ((CR & CR_PLLRDY) == 0) {
    }
    PLLCFGR |= PLLCFGR_REN;
    CFGR = CFGR_HALF | CFGR_SW_PLL; /* RM0432, 6.2.10: above 80 MHz in two steps, 1 us apart */
    while ((CFGR >> 2 & 3u) != CFGR_SW_PLL) {
    }
    for (volatile uint32_t i = 0; i < SETTLE_LOOPS; ++i) {
    }
    CFGR = CFGR_SW_PLL;
}
