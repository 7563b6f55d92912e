/* The flash of STM32 F1: pages of 1 or 2 KB, programmed by half-words. PM0075, 2.3 and 3; PM0063 (F100). */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define KEYR MT_REGISTER(MT_FLASH_BASE + 0x04u)
#define SR MT_REGISTER(MT_FLASH_BASE + 0x0Cu)
#define CR MT_REGISTER(MT_FLASH_BASE + 0x10u)
#define AR MT_REGISTER(MT_FLASH_BASE + 0x14u)

#define SR_BSY 1u
#define SR_DONE 0x34u   /* EOP, WRPRTERR, PGERR: ones clear them */
#define SR_ERRORS 0x14u /* WRPRTERR, PGERR */
#define CR_PG 1u
#define CR_PER 2u
#define CR_STRT (1u << 6)
#define CR_LOCK (1u << 7)

static void unlock(void)
{
    if ((CR & CR_LOCK) != 0) {
        KEYR = 0x45670123u;
        KEYR = 0xCDEF89ABu;
    }
    SR = SR_DONE;
}

static int32_t finish(void)
{
    while ((SR & SR_BSY) != 0) {
    }
    return (SR & SR_ERRORS) == 0 ? MT_OK : MT_IO;
}

int32_t mt_flash_erase(uint32_t address)
{
    unlock();
    CR = CR_PER;
    AR = address;
    CR = CR_PER | CR_STRT;
    const int32_t status = finish();
    CR = CR_LOCK;
    return status;
}

int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    int32_t status = MT_OK;
    unlock();
    CR = CR_PG;
    for (uint32_t i = 0; i < count && status == MT_OK; i += 2u) {
        *(volatile uint16_t *)(uintptr_t)(address + i) = (uint16_t)(bytes[i] | bytes[i + 1u] << 8);
        status = finish();
    }
    CR = CR_LOCK;
    return status;
}
