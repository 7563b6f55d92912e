/* The clock of STM32H742, H743, H750 and H753: PLL1; the AXI bus has half the core's rate, each APB half of that. RM0433,
 * 6.4 and 6.6.2 (PWR: supply, voltage scaling), 8.7 (RCC), 4.9.1 (FLASH_ACR), 12.3.1 (SYSCFG_PWRCR). */
#include "mt_board.h"
#include "mt_ports.h"

#define CR MT_REGISTER(MT_CLOCK_BASE + 0x00u)
#define CFGR MT_REGISTER(MT_CLOCK_BASE + 0x10u)
#define D1CFGR MT_REGISTER(MT_CLOCK_BASE + 0x18u)
#define D2CFGR MT_REGISTER(MT_CLOCK_BASE + 0x1Cu)
#define D3CFGR MT_REGISTER(MT_CLOCK_BASE + 0x20u)
#define PLLCKSELR MT_REGISTER(MT_CLOCK_BASE + 0x28u)
#define PLLCFGR MT_REGISTER(MT_CLOCK_BASE + 0x2Cu)
#define PLL1DIVR MT_REGISTER(MT_CLOCK_BASE + 0x30u)
#define APB4ENR MT_REGISTER(MT_CLOCK_BASE + 0xF4u)
#define ACR MT_REGISTER(MT_CLOCK_FLASH)
#define PWR_CSR1 MT_REGISTER(0x58024804u)
#define PWR_CR3 MT_REGISTER(0x5802480Cu)
#define PWR_D3CR MT_REGISTER(0x58024818u)
#define SYSCFG_PWRCR MT_REGISTER(0x5800042Cu)

#define CR_HSEON (1u << 16)
#define CR_HSERDY (1u << 17)
#define CR_HSEBYP (1u << 18)
#define CR_PLL1ON (1u << 24)
#define CR_PLL1RDY (1u << 25)
#define CR3_LDOEN 2u
#define CR3_SUPPLIES 7u /* BYPASS, LDOEN, SCUEN */
#define CSR1_ACTVOSRDY (1u << 13)
#define D3CR_VOSRDY (1u << 13)
#define D3CR_SCALE_1 (3u << 14)
#define APB4ENR_SYSCFGEN (1u << 1)
#define PWRCR_ODEN 1u
#define PLLCKSELR_HSE 2u
#define PLLCFGR_DIVP1EN (1u << 16)
#define PLLCFGR_RGE (3u << 2) /* the PLL's input is 8 to 16 MHz */
#define CFGR_SW_PLL1 3u
#define ACR_FIELDS 0x3Fu

void mt_clock_init(void)
{
    PWR_CR3 = (PWR_CR3 & ~CR3_SUPPLIES) | CR3_LDOEN; /* written once after power-on; it is ignored later */
    while ((PWR_CSR1 & CSR1_ACTVOSRDY) == 0) {
    }
    PWR_D3CR |= D3CR_SCALE_1;
    while ((PWR_D3CR & D3CR_VOSRDY) == 0) {
    }
#ifdef MT_CLOCK_OVERDRIVE /* scale 0, for more than 400 MHz */
    APB4ENR |= APB4ENR_SYSCFGEN;
    (void)APB4ENR;
    SYSCFG_PWRCR |= PWRCR_ODEN;
    while ((PWR_D3CR & D3CR_VOSRDY) == 0) {
    }
#endif
    if (MT_CLOCK_SOURCE == MT_CLOCK_EXTERNAL) {
        CR |= CR_HSEBYP; /* only while HSE is off */
    }
    CR |= CR_HSEON;
    while ((CR & CR_HSERDY) == 0) {
    }
    PLLCKSELR = (uint32_t)MT_CLOCK_M << 4 | PLLCKSELR_HSE;
    PLLCFGR = PLLCFGR_DIVP1EN | PLLCFGR_RGE;
    PLL1DIVR = 1u << 24 | 1u << 16 | (MT_CLOCK_P - 1u) << 9 | (MT_CLOCK_N - 1u);
    CR |= CR_PLL1ON;
    while ((CR & CR_PLL1RDY) == 0) {
    }
    ACR = MT_CLOCK_ACR;
    while ((ACR & ACR_FIELDS) != MT_CLOCK_ACR) {
    }
    D1CFGR = 4u << 4 | 8u; /* D1PPRE and HPRE by 2 */
    D2CFGR = 4u << 8 | 4u << 4;
    D3CFGR = 4u << 4;
    CFGR = CFGR_SW_PLL1;
    while ((CFGR >> 3 & 7u) != CFGR_SW_PLL1) {
    }
}
