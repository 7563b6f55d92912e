/* What a project's src/storage.c uses of Zephyr: on a flash in memory whose sectors the command line lists, or on the
 * driver of a chip (tests/crt/test_power.py), whose pages but the first two make up sectors of two. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITION = 1, MEMORY, MOST_BYTES = 4 << 20 };
struct device {
    int unused;
};
struct flash_pages_info {
    long start_offset;
    size_t size;
};
struct flash_parameters {
    uint8_t erase_value;
};

static const struct device controller;

#if __has_include("mt_board.h")
#include "mt_board.h"
#include "mt_ports.h"
#define PAGES (MT_FLASH_BYTES / MT_FLASH_SECTOR)
#define PAIR (2u * MT_FLASH_SECTOR)
static uint8_t *const flash = (uint8_t *)MT_FLASH_START;
static const uint32_t partition_offset, partition_bytes = MT_FLASH_BYTES, sector_count = PAGES / 2u + 1u;
static const uint32_t sectors[PAGES / 2u + 1u] = {MT_FLASH_SECTOR, MT_FLASH_SECTOR, [2 ... PAGES / 2u] = PAIR};

static inline int erase_bytes(uint32_t offset, uint32_t count)
{
    int32_t status = 0;
    for (uint32_t at = 0; at < count && status == 0; at += MT_FLASH_SECTOR) {
        status = mt_flash_erase(MT_FLASH_START + offset + at);
    }
    return (int)status;
}

static inline int write_bytes(uint32_t offset, const void *bytes, uint32_t count)
{
    return (int)mt_flash_program(MT_FLASH_START + offset, bytes, count);
}
#else
static uint8_t flash[MOST_BYTES] __attribute__((aligned(64)));
static uint32_t partition_offset, partition_bytes, sectors[32], sector_count;

static inline int erase_bytes(uint32_t offset, uint32_t count)
{
    memset(flash + offset, 0xFF, count);
    return 0;
}

static inline int write_bytes(uint32_t offset, const void *bytes, uint32_t count)
{
    memcpy(flash + offset, bytes, count);
    return 0;
}
#endif

#define FIXED_PARTITION_EXISTS(label) 1
#define DT_NODELABEL(label) PARTITION
#define DT_MEM_FROM_FIXED_PARTITION(node) MEMORY
#define DT_MTD_FROM_FIXED_PARTITION(node) 0
#define DT_NODE_HAS_COMPAT(node, compatible) 0
#define DT_REG_ADDR(node) ((node) == PARTITION ? partition_offset : (uintptr_t)flash)
#define DT_REG_SIZE(node) partition_bytes
#define DEVICE_DT_GET(node) (&controller)
#define MAX(one, other) ((one) > (other) ? (one) : (other))

static inline bool device_is_ready(const struct device *device)
{
    return device == &controller;
}

static inline int flash_get_page_info_by_offs(const struct device *device, long offset, struct flash_pages_info *page)
{
    long start = 0;
    for (uint32_t i = 0; i < sector_count; start += (long)sectors[i++]) {
        if (offset < start + (long)sectors[i]) {
            page->start_offset = start;
            page->size = sectors[i];
            return device == &controller ? 0 : -1;
        }
    }
    return -1;
}

static inline const struct flash_parameters *flash_get_parameters(const struct device *device)
{
    static const struct flash_parameters parameters = {0xFF};
    return device == &controller ? &parameters : NULL;
}

static inline size_t flash_get_write_block_size(const struct device *device)
{
    return device == &controller ? 8 : 0;
}

/* Like a driver, erase only whole sectors. */
static inline int flash_erase(const struct device *device, long offset, size_t size)
{
    struct flash_pages_info page;
    const long end = offset + (long)size;
    long at = offset;
    while (at < end) {
        if (flash_get_page_info_by_offs(device, at, &page) != 0 || page.start_offset != at) {
            return -1;
        }
        at += (long)page.size;
    }
    if (at != end) {
        return -1;
    }
    return erase_bytes((uint32_t)offset, (uint32_t)size);
}

static inline int flash_write(const struct device *device, long offset, const void *bytes, size_t count)
{
    return device == &controller ? write_bytes((uint32_t)offset, bytes, (uint32_t)count) : -1;
}

static inline int sys_cache_data_invd_range(void *address, size_t size)
{
    return address != NULL && size > 0;
}

static inline int sys_cache_instr_invd_range(void *address, size_t size)
{
    return address != NULL && size > 0;
}
