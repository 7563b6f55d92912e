/* The flash of STM32 L4 and L4+: pages, in two banks, programmed by double words. RM0432 (L4+), 3.3.6, 3.3.7 and 3.7;
 * RM0351 (L4). */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define ACR MT_REGISTER(MT_FLASH_BASE + 0x00u)
#define KEYR MT_REGISTER(MT_FLASH_BASE + 0x08u)
#define SR MT_REGISTER(MT_FLASH_BASE + 0x10u)
#define CR MT_REGISTER(MT_FLASH_BASE + 0x14u)

#define ACR_CACHES (3u << 9) /* ICEN, DCEN */
#define ACR_RESETS_AT 2u     /* ICRST, DCRST: the bits above */
#define SR_BSY (1u << 16)
#define SR_ERRORS 0xC3FAu /* OPTVERR, RDERR, FASTERR, MISERR, PGSERR, SIZERR, PGAERR, WRPERR, PROGERR, OPERR */
#define SR_EOP 1u
#define CR_PG 1u
#define CR_PER 2u
#define CR_PNB_AT 3u
#define CR_BKER (1u << 11)
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

/* Empty the caches, which may hold what was there before: RM0432, 3.3.6. */
static void lock(void)
{
    const uint32_t on = ACR & ACR_CACHES;
    CR = CR_LOCK;
    ACR &= ~ACR_CACHES;
    ACR |= on << ACR_RESETS_AT;
    ACR &= ~(on << ACR_RESETS_AT);
    ACR |= on;
}

int32_t mt_flash_erase(uint32_t address)
{
    const uint32_t offset = address - FLASH_AT, bank = offset / MT_FLASH_BANK;
    const uint32_t page = offset % MT_FLASH_BANK / MT_FLASH_SECTOR;
    unlock();
    CR = CR_PER | page << CR_PNB_AT | (bank > 0 ? CR_BKER : 0u);
    CR |= CR_STRT;
    const int32_t status = finish();
    lock();
    return status;
}

int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    int32_t status = MT_OK;
    unlock();
    CR = CR_PG;
    for (uint32_t i = 0; i < count && status == MT_OK; i += 8u) {
        MT_REGISTER(address + i) = mt_word_at(bytes + i);
        __asm__ volatile("isb"); /* the two words are not merged */
        MT_REGISTER(address + i + 4u) = mt_word_at(bytes + i + 4u);
        status = finish();
    }
    lock();
    return status;
}
