/* The flash of STM32 F2, F4 and F7 (one bank): four sectors of MT_FLASH_UNIT bytes, one of four times that, then of eight
 * times; programmed by words, at 2.7 V or more. RM0090 (F4), 3.6 and 3.9; RM0385 (F7), 3.3.6 and 3.7. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define ACR MT_REGISTER(MT_FLASH_BASE + 0x00u)
#define KEYR MT_REGISTER(MT_FLASH_BASE + 0x04u)
#define SR MT_REGISTER(MT_FLASH_BASE + 0x0Cu)
#define CR MT_REGISTER(MT_FLASH_BASE + 0x10u)

#define ACR_CACHES (3u << 9) /* ICEN, DCEN; of an F7: ARTEN */
#define ACR_RESETS_AT 2u     /* ICRST, DCRST: the bits above */
#define SR_BSY (1u << 16)
#define SR_ERRORS 0xF2u /* PGSERR, PGPERR, PGAERR, WRPERR, OPERR */
#define SR_EOP 1u
#define CR_PG 1u
#define CR_SER 2u
#define CR_SNB_AT 3u
#define CR_WORDS (2u << 8) /* PSIZE */
#define CR_STRT (1u << 16)
#define CR_LOCK (1u << 31)
#define FLASH_AT 0x08000000u

static void unlock(void)
{
    if ((CR & CR_LOCK) != 0) {
        KEYR = 0x45670123u;
        KEYR = 0xCDEF89ABu;
    }
    SR = SR_ERRORS | SR_EOP; /* ones clear them */
}

static int32_t finish(void)
{
    while ((SR & SR_BSY) != 0) {
    }
    return (SR & SR_ERRORS) == 0 ? MT_OK : MT_IO;
}

/* Empty the caches, which may hold what was there before: RM0090, 3.5.2. */
static void lock(void)
{
    const uint32_t on = ACR & ACR_CACHES;
    CR = CR_LOCK;
    ACR &= ~ACR_CACHES;
    ACR |= on << ACR_RESETS_AT;
    ACR &= ~(on << ACR_RESETS_AT);
    ACR |= on;
}

static uint32_t sector_of(uint32_t address)
{
    const uint32_t unit = (address - FLASH_AT) / MT_FLASH_UNIT;
    return unit < 4u ? unit : unit < 8u ? 4u : 4u + unit / 8u;
}

int32_t mt_flash_erase(uint32_t address)
{
    unlock();
    CR = CR_WORDS | CR_SER | sector_of(address) << CR_SNB_AT;
    CR |= CR_STRT;
    const int32_t status = finish();
    lock();
    return status;
}

int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    int32_t status = MT_OK;
    unlock();
    CR = CR_WORDS | CR_PG;
    for (uint32_t i = 0; i < count && status == MT_OK; i += 4u) {
        MT_REGISTER(address + i) = mt_word_at(bytes + i);
        status = finish();
    }
    lock();
    return status;
}
