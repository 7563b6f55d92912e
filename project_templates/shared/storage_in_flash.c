/* The storage of modules in the chip's flash, in an area that no memory of the linker script holds (crt/ports). */
#include "mtool.h"

#include "mt_board.h"
#include "mt_ports.h"

static int32_t erase(uint32_t offset)
{
    return mt_flash_erase(MT_FLASH_START + offset);
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    return mt_flash_program(MT_FLASH_START + offset, bytes, count);
}

const struct mt_storage *mt_port_storage(void)
{
    static const struct mt_storage storage = {(const uint8_t *)MT_FLASH_START, MT_FLASH_BYTES, MT_FLASH_SECTOR, erase, program};
    return &storage;
}
