/* The storage in an emulator: RAM emulates a NOR flash, and a file beside the firmware, <firmware>.elf.flash, keeps its
 * contents when the emulator ends. It is read at the start, and written with each erase and each program. */
#include <string.h>

#include "mtool.h"
{% if is_zephyr | default(false) %}
#include <zephyr/arch/common/semihost.h>
{% else %}
#include "platform.h"
{% endif %}

#define SECTOR_BYTES 4096u
#define SUFFIX ".flash"

enum { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_SEEK = 0x0A, SYS_GET_CMDLINE = 0x15 };
enum { MODE_UPDATE_BINARY = 3, MODE_CREATE_BINARY = 7 };

static uint8_t flash[{{ cookiecutter.modules.flash_bytes }}]
    __attribute__((aligned(4096), section("{{ module_ram_section | default(".bss.mt_module_ram") }}")));
static char path[1024];
static int32_t file = -1;

{% if is_zephyr | default(false) %}
static int32_t platform_semihosting(int32_t operation, const void *parameters)
{
    return (int32_t)semihost_exec((enum semihost_instr)operation, (void *)parameters);
}

{% endif %}
static int32_t open_file(uintptr_t mode)
{
    const uintptr_t block[3] = {(uintptr_t)path, mode, strlen(path)};
    return platform_semihosting(SYS_OPEN, block);
}

/* Without a file, the bytes are kept in memory only, until the emulator ends. */
static int32_t keep(uint32_t offset, uint32_t count)
{
    if (path[0] == '\0') {
        return MT_OK;
    }
    if (file < 0) {
        file = open_file(MODE_CREATE_BINARY);
        offset = 0;
        count = sizeof flash;
    }
    const uintptr_t seek[2] = {(uintptr_t)file, offset};
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)(flash + offset), count};
    const int failed = file < 0 || platform_semihosting(SYS_SEEK, seek) != 0 || platform_semihosting(SYS_WRITE, block) != 0;
    return failed ? MT_IO : MT_OK;
}

static int32_t erase(uint32_t offset)
{
    memset(flash + offset, 0xFF, SECTOR_BYTES);
    return keep(offset, SECTOR_BYTES);
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (flash[offset + i] != 0xFFu) {
            return MT_IO;
        }
    }
    memcpy(flash + offset, bytes, count);
    return keep(offset, count);
}

/* Name the file after the firmware's file, which is the default command line. */
static void name_file(void)
{
    const uintptr_t block[2] = {(uintptr_t)path, sizeof path - sizeof SUFFIX};
    if (platform_semihosting(SYS_GET_CMDLINE, block) != 0) {
        path[0] = '\0';
    } else {
        memcpy(path + strlen(path), SUFFIX, sizeof SUFFIX);
    }
}

const struct mt_storage *mt_port_storage(void)
{
    static const struct mt_storage storage = {flash, sizeof flash, SECTOR_BYTES, erase, program};
    memset(flash, 0xFF, sizeof flash);
    name_file();
    if (path[0] != '\0') {
        file = open_file(MODE_UPDATE_BINARY);
    }
    if (file >= 0) {
        const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)flash, sizeof flash};
        (void)platform_semihosting(SYS_READ, block); /* the rest of a shorter file is erased */
    }
    return &storage;
}
