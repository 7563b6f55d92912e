/* The clock of STM32 F2, F4 and F7: the main PLL. RM0090 (F4), 7.3, 5.4 (PWR) and 3.9.1 (FLASH_ACR); RM0390 (F446), 5.1.4
 * (over-drive); RM0385 (F7), 4.1.4 and 5.3. */
#include "mt_board.h"
#include "mt_ports.h"

#define CR MT_REGISTER(MT_CLOCK_BASE + 0x00u)
#define PLLCFGR MT_REGISTER(MT_CLOCK_BASE + 0x04u)
#define CFGR MT_REGISTER(MT_CLOCK_BASE + 0x08u)
#define APB1ENR MT_REGISTER(MT_CLOCK_BASE + 0x40u)
#define ACR MT_REGISTER(MT_CLOCK_FLASH)
#define PWR_CR MT_REGISTER(0x40007000u)
#define PWR_CSR MT_REGISTER(0x40007004u)

#define CR_HSEON (1u << 16)
#define CR_HSERDY (1u << 17)
#define CR_HSEBYP (1u << 18)
#define CR_PLLON (1u << 24)
#define CR_PLLRDY (1u << 25)
#define PLLCFGR_KEPT 0xF0000000u /* PLLR of some, else reserved */
#define PLLCFGR_HSE (1u << 22)
#define CFGR_SW_PLL 2u
#define APB1ENR_PWREN (1u << 28)
#define PWR_ODEN (1u << 16)   /* and ODRDY */
#define PWR_ODSWEN (1u << 17) /* and ODSWRDY */
#define ACR_LATENCY 15u

void mt_clock_init(void)
{
    uint32_t source = 0;
    if (MT_CLOCK_SOURCE != MT_CLOCK_INTERNAL) {
        if (MT_CLOCK_SOURCE == MT_CLOCK_EXTERNAL) {
            CR |= CR_HSEBYP; /* only while HSE is off */
        }
        CR |= CR_HSEON;
        while ((CR & CR_HSERDY) == 0) {
        }
        source = PLLCFGR_HSE;
    }
    PLLCFGR = (PLLCFGR & PLLCFGR_KEPT) | (uint32_t)MT_CLOCK_Q << 24 | source | (MT_CLOCK_P / 2u - 1u) << 16 |
              (uint32_t)MT_CLOCK_N << 6 | MT_CLOCK_M;
    CR |= CR_PLLON;
#ifdef MT_CLOCK_OVERDRIVE
    APB1ENR |= APB1ENR_PWREN;
    (void)APB1ENR;
    PWR_CR |= PWR_ODEN;
    while ((PWR_CSR & PWR_ODEN) == 0) {
    }
    PWR_CR |= PWR_ODSWEN;
    while ((PWR_CSR & PWR_ODSWEN) == 0) {
    }
#endif
    ACR = MT_CLOCK_ACR;
    while ((ACR & ACR_LATENCY) != (MT_CLOCK_ACR & ACR_LATENCY)) { /* RM0090, 3.5.1: read it back */
    }
    while ((CR & CR_PLLRDY) == 0) {
    }
    const uint32_t buses = MT_CLOCK_DIVIDER(MT_CLOCK_APB1) << 10 | MT_CLOCK_DIVIDER(MT_CLOCK_APB2) << 13;
    CFGR = buses; /* before the core is faster */
    CFGR = buses | CFGR_SW_PLL;
    while ((CFGR >> 2 & 3u) != CFGR_SW_PLL) {
    }
}
