/* The flash of STM32H742, H743 and H753: two banks of 1 MB, sectors of 128 KB, programmed by words of 256 bits. RM0433, 4.3.9,
 * 4.3.10 and 4.9. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define KEYR 0x04u
#define CR 0x0Cu
#define SR 0x10u
#define CCR 0x14u

#define CR_LOCK 1u
#define CR_PG 2u
#define CR_SER 4u
#define CR_WORDS_64 (3u << 4) /* PSIZE: the fastest */
#define CR_START (1u << 7)
#define CR_SNB_AT 8u
#define SR_BUSY 7u              /* QW, WBNE, BSY */
#define SR_ERRORS (0x6Eu << 16) /* OPERR, INCERR, STRBERR, PGSERR, WRPERR; the ECC corrects by itself */
#define SR_EOP (1u << 16)
#define FLASH_AT 0x08000000u
#define BANK_BYTES 0x100000u
#define SECTOR_BYTES 0x20000u
#define WORD_BYTES 32u

static uint32_t bank_of(uint32_t address)
{
    return MT_FLASH_BASE + (address - FLASH_AT) / BANK_BYTES * 0x100u;
}

static void unlock(uint32_t bank)
{
    if ((MT_REGISTER(bank + CR) & CR_LOCK) != 0) {
        MT_REGISTER(bank + KEYR) = 0x45670123u;
        MT_REGISTER(bank + KEYR) = 0xCDEF89ABu;
    }
    MT_REGISTER(bank + CCR) = SR_ERRORS | SR_EOP;
}

static int32_t finish(uint32_t bank)
{
    while ((MT_REGISTER(bank + SR) & SR_BUSY) != 0) {
    }
    return (MT_REGISTER(bank + SR) & SR_ERRORS) == 0 ? MT_OK : MT_IO;
}

int32_t mt_flash_erase(uint32_t address)
{
    const uint32_t bank = bank_of(address), sector = (address - FLASH_AT) % BANK_BYTES / SECTOR_BYTES;
    unlock(bank);
    MT_REGISTER(bank + CR) = CR_WORDS_64 | CR_SER | sector << CR_SNB_AT;
    MT_REGISTER(bank + CR) |= CR_START;
    const int32_t status = finish(bank);
    MT_REGISTER(bank + CR) = CR_LOCK;
    return status;
}

int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    const uint32_t bank = bank_of(address);
    int32_t status = MT_OK;
    unlock(bank);
    MT_REGISTER(bank + CR) = CR_WORDS_64 | CR_PG;
    for (uint32_t i = 0; i < count && status == MT_OK; i += WORD_BYTES) {
        for (uint32_t at = i; at < i + WORD_BYTES; at += 4u) {
            MT_REGISTER(address + at) = mt_word_at(bytes + at);
        }
        __asm__ volatile("dsb" ::: "memory");
        status = finish(bank);
    }
    MT_REGISTER(bank + CR) = CR_LOCK;
    return status;
}
