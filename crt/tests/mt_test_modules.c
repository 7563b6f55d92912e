/* A loader for the server of mt_test_main.c. Its flash is a file, TEST_FLASH of the environment, that survives the
 * process, with slots of TEST_SLOT_BYTES; the process ends with status 99 at the write that TEST_CUT counts down to,
 * as if the power were cut. Its modules are of kind 2: an image of one byte, which the model adds to each of its
 * inputs. */
#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mt_loader.h"
#include "mtool.h"

#define FLASH_BYTES (54u * 1024u)
#define SLOT_BYTES (23u * 1024u)
#define SECTOR_BYTES 1024u
#define UNIT_BYTES 16u

struct mt_extension *mt_test_modules(void);

static uint8_t *flash;
static int writes_left = -1;

static void may_cut(void)
{
    if (writes_left >= 0 && writes_left-- == 0) {
        _exit(99);
    }
}

static int32_t erase(uint32_t offset)
{
    may_cut();
    memset(flash + offset, 0xFF, SECTOR_BYTES);
    return MT_OK;
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t at = 0; at < count; at += UNIT_BYTES) {
        may_cut();
        for (uint32_t i = at; i < at + UNIT_BYTES; ++i) {
            if (flash[offset + i] != 0xFFu) {
                return MT_IO;
            }
        }
        memcpy(flash + offset + at, bytes + at, UNIT_BYTES);
    }
    return MT_OK;
}

static int32_t check(const struct mt_module_view *view)
{
    return view->input_count == 1 && view->output_count == 1 ? MT_OK : MT_BAD_MODULE;
}

static int32_t call(const struct mt_module *module, uint32_t number)
{
    const struct mt_tensor *const input = module->model.inputs, *const output = module->model.outputs;
    if (number == MT_MODULE_BEGIN) {
        return module->view.image[0] == 13u ? MT_MODEL : MT_OK; /* a module that does not begin */
    }
    for (uint32_t i = 0; i < input->bytes && i < output->bytes; ++i) {
        ((uint8_t *)output->data)[i] = (uint8_t)(((uint8_t *)input->data)[i] + module->view.image[0]);
    }
    return MT_OK;
}

static const struct mt_module_kind adds = {MT_MODULE_BYTECODE, check, call};
static const struct mt_module_kind *const kinds[] = {&adds, NULL};
static uint8_t keys[1][32];
static uint64_t ram[4096 / 8] __attribute__((aligned(64)));
static struct mt_storage storage = {NULL, FLASH_BYTES, SECTOR_BYTES, erase, program};
static struct mt_loader loader;

struct mt_extension *mt_test_modules(void)
{
    const char *const path = getenv("TEST_FLASH");
    const char *const key = getenv("TEST_KEY");
    loader.host.kinds = kinds;
    loader.host.ram = ram;
    loader.host.ram_bytes = sizeof ram;
    loader.host.takes_unsigned = key == NULL;
    if (key != NULL) {
        for (size_t i = 0; i < sizeof keys[0]; ++i) {
            const char digits[3] = {key[2 * i], key[2 * i + 1], '\0'};
            keys[0][i] = (uint8_t)strtoul(digits, NULL, 16);
        }
        loader.host.keys = (const uint8_t(*)[32])keys;
        loader.host.key_count = 1;
    }
    if (path != NULL) {
        const int file = open(path, O_RDWR);
        flash = mmap(NULL, FLASH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file < 0 || flash == MAP_FAILED) {
            abort();
        }
        storage.memory = flash;
        loader.storage = &storage;
        loader.slot_bytes = getenv("TEST_SLOT_BYTES") != NULL ? (uint32_t)atoi(getenv("TEST_SLOT_BYTES")) : SLOT_BYTES;
        loader.delta = &mt_loader_delta;
    }
    (void)mt_loader_start(&loader);
    if (getenv("TEST_CUT") != NULL) {
        writes_left = atoi(getenv("TEST_CUT"));
    }
    return &loader.extension;
}
