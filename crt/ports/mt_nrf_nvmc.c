/* The flash of nRF51 and nRF52: pages of 1 or 4 KB, programmed by words. nRF51 Series Reference Manual 3.0, 6.1; nRF52840 PS
 * 1.7, 4.3. */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define READY MT_REGISTER(MT_FLASH_BASE + 0x400u)
#define CONFIG MT_REGISTER(MT_FLASH_BASE + 0x504u)
#define ERASEPAGE MT_REGISTER(MT_FLASH_BASE + 0x508u)

#define CONFIG_READ 0u
#define CONFIG_WRITE 1u
#define CONFIG_ERASE 2u

static void wait(void)
{
    while ((READY & 1u) == 0) {
    }
}

int32_t mt_flash_erase(uint32_t address)
{
    CONFIG = CONFIG_ERASE;
    wait();
    ERASEPAGE = address;
    wait();
    CONFIG = CONFIG_READ;
    wait();
    return MT_OK;
}

int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    CONFIG = CONFIG_WRITE;
    wait();
    for (uint32_t i = 0; i < count; i += 4u) {
        MT_REGISTER(address + i) = mt_word_at(bytes + i);
        wait();
    }
    CONFIG = CONFIG_READ;
    wait();
    for (uint32_t i = 0; i < count; ++i) { /* the controller reports no error */
        if (*(const volatile uint8_t *)(uintptr_t)(address + i) != bytes[i]) {
            return MT_IO;
        }
    }
    return MT_OK;
}
