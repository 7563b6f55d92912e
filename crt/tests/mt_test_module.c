/* Malformed modules of every kind are refused, or opened within their memory. The sanitizers notice accesses elsewhere,
 * as the file and the memory are blocks of exactly their size. The hash of the contents is corrected, and no signature
 * is required, so that sizes and tables are reached.
 *
 * Arguments: a module, the number of variants, the random seed. Prints how often each status occurred. */
#define _POSIX_C_SOURCE 200112L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_ed25519.h"
#include "mt_module.h"
#include "mt_sha512.h"
#include "mtool.h"

#define CHECK(condition) ((condition) ? (void)0 : failed(#condition, __LINE__))
#define MOST_BYTES 4096u
#define MOST_RAM 8192u
#define STATUSES 64

static uint64_t state;
static uint32_t begun;

static void failed(const char *what, int line)
{
    fprintf(stderr, "line %d: %s\n", line, what);
    abort();
}

static uint32_t draw(uint32_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

/* No signature is valid: the others are zeros. */
int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count)
{
    (void)signature;
    (void)public_key;
    (void)message;
    (void)count;
    return 0;
}

/* Memory of exactly this size. */
static uint8_t *block(uint32_t bytes)
{
    void *found = NULL;
    CHECK(posix_memalign(&found, 4096, bytes > 0 ? bytes : 1) == 0);
    return found;
}

/* Read everything that a view refers to. */
static int32_t read_all(const struct mt_module_view *view)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < view->file_bytes; ++i) {
        sum += view->bytes[i];
    }
    for (uint32_t i = 0; i < view->description_bytes; ++i) {
        sum += view->description[i];
    }
    for (uint32_t i = 0; i < view->image_bytes; ++i) {
        sum += view->image[i];
    }
    CHECK(((uintptr_t)view->image & (view->alignment - 1u)) == 0);
    CHECK(view->code_bytes <= view->image_bytes && view->entry < view->code_bytes);
    return sum == 0xFFFFFFFFu ? MT_BAD_MODULE : MT_OK;
}

static int32_t call(const struct mt_module *module, uint32_t number)
{
    (void)module;
    begun += number == MT_MODULE_BEGIN;
    return MT_OK;
}

static void nothing(void) {}

static const struct mt_module_kind kind = {MT_MODULE_NATIVE, read_all, call};
static const struct mt_module_kind *const kinds[] = {&kind, NULL};
static const struct mt_export exports[] = {{1, nothing}, {0x100, nothing}, {0xFFFFFFFF, nothing}};

/* A number that makes sizes wrong. */
static uint32_t unkind(uint32_t value)
{
    static const uint32_t chosen[] = {0, 1, 2, 3, 15, 16, 17, 31, 32, 255, 256, 1024, 1025, 4096, 8192, 0xFFFD, 0xFFFE,
                                      0x10000, 0x10001, 0x3FFFFFFF, 0x40000000, 0x40000001, 0x7FFFFFFF, 0x80000000,
                                      0xFFFFFFEF, 0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF};
    switch (draw(4)) {
    case 0:
        return chosen[draw(sizeof chosen / sizeof chosen[0])];
    case 1:
        return value + draw(9) - 4u;
    case 2:
        return value ^ 1u << draw(32);
    default:
        return draw(0xFFFFFFFFu);
    }
}

static void change(uint8_t *module, uint32_t bytes)
{
    const uint32_t contents = bytes - MT_MODULE_HEAD_BYTES, words = contents / 4;
    uint8_t *place = module + 4 * (size_t)draw(18);
    switch (draw(4)) {
    case 0:
        module[draw(MT_MODULE_AT_CONTENTS_HASH)] ^= (uint8_t)(1u << draw(8));
        return;
    case 1:
        place = words == 0 ? place : module + MT_MODULE_HEAD_BYTES + 4 * (size_t)draw(words < 16 ? words : 16);
        break;
    default:
        break;
    }
    mt_put_u32(place, unkind(mt_get_u32(place)));
}

/* Let some changes follow from others, so that checks after the first are reached: sizes that match the file. */
static void mend(uint8_t *module, uint32_t bytes)
{
    struct mt_sha512 sha;
    if (draw(8) != 0) {
        mt_put_u32(module + MT_MODULE_AT_FILE_BYTES, bytes);
    }
    if (draw(2) != 0) {
        const uint32_t tensors = mt_get_u32(module + MT_MODULE_AT_INPUTS) + mt_get_u32(module + MT_MODULE_AT_OUTPUTS);
        const uint32_t alignment = mt_get_u32(module + MT_MODULE_AT_ALIGNMENT);
        const uint32_t end = MT_MODULE_HEAD_BYTES + 8 * tensors + 4 * mt_get_u32(module + MT_MODULE_AT_IMPORTS) +
                             mt_get_u32(module + MT_MODULE_AT_DESCRIPTION_BYTES);
        mt_put_u32(module + MT_MODULE_AT_IMAGE_BYTES, bytes - ((end + alignment - 1u) & ~(alignment - 1u)));
    }
    mt_sha512_begin(&sha);
    mt_sha512_add(&sha, module + MT_MODULE_HEAD_BYTES, bytes - MT_MODULE_HEAD_BYTES);
    mt_sha512_end(&sha, module + MT_MODULE_AT_CONTENTS_HASH);
}

/* All that an open module refers to must lie in its memory. */
static void look_at(const struct mt_module *opened, uint8_t *ram, uint32_t bytes)
{
    const struct mt_model *const model = &opened->model;
    CHECK(opened->view.ram_bytes <= bytes && model->arena_bytes <= bytes);
    for (uint32_t i = 0; i < (uint32_t)model->input_count + model->output_count; ++i) {
        const struct mt_tensor *const tensor =
            i < model->input_count ? &model->inputs[i] : &model->outputs[i - model->input_count];
        CHECK((uint8_t *)tensor->data >= ram && tensor->bytes <= model->arena_bytes);
        memset(tensor->data, 0xA5, tensor->bytes);
    }
    for (uint32_t i = 0; i < opened->view.import_count; ++i) {
        CHECK(opened->table[i] == nothing);
    }
    memset(model->arena == NULL ? ram : model->arena, 0x5A, model->arena_bytes);
    CHECK(strlen(model->name) < MT_MODULE_NAME_BYTES && strlen(model->model_hash) == 64);
    CHECK(model->run(model) == MT_OK && model->step(model, model->operator_count) == MT_BAD_INDEX);
}

static int32_t try_one(const uint8_t *file, uint32_t size, uint32_t changes)
{
    const uint32_t cut = draw(6) == 0 ? draw(size + 1u) : size;
    const uint32_t bytes = draw(20) == 0 ? cut + draw(64) : cut, ram_bytes = draw(16) == 0 ? draw(512) : MOST_RAM;
    uint8_t *const module = block(bytes), *const ram = block(ram_bytes);
    struct mt_module_host host;
    struct mt_module opened;
    memset(module, 0, bytes);
    memcpy(module, file, bytes < size ? bytes : size);
    for (uint32_t i = 0; i < changes && bytes >= MT_MODULE_HEAD_BYTES; ++i) {
        change(module, bytes);
    }
    if (bytes >= MT_MODULE_HEAD_BYTES && changes > 0) {
        mend(module, bytes);
    }
    memset(&host, 0, sizeof host);
    host.exports = exports;
    host.export_count = 3;
    host.machine = 3;
    host.takes_unsigned = 1;
    host.least_counter = 5;
    host.kinds = kinds;
    host.ram = ram;
    host.ram_bytes = ram_bytes;
    const uint32_t before = begun;
    const int32_t checked = mt_module_check(module, bytes, &host), status = mt_module_open(module, bytes, &host, &opened);
    CHECK(checked == status && begun - before == (status == MT_OK));
    if (status == MT_OK) {
        look_at(&opened, ram, ram_bytes);
    }
    free(module);
    free(ram);
    return status;
}

int main(int count, char **arguments)
{
    static uint8_t file[MOST_BYTES];
    static uint32_t found[STATUSES];
    CHECK(count == 4);
    FILE *const in = fopen(arguments[1], "rb");
    CHECK(in != NULL);
    const uint32_t size = (uint32_t)fread(file, 1, sizeof file, in);
    fclose(in);
    CHECK(size > MT_MODULE_HEAD_BYTES && size < sizeof file);
    const uint32_t times = (uint32_t)strtoul(arguments[2], NULL, 10);
    state = strtoul(arguments[3], NULL, 10);
    for (uint32_t i = 0; i < times; ++i) {
        const int32_t status = try_one(file, size, 1 + draw(3));
        CHECK(status >= 0 && status < STATUSES);
        ++found[status];
    }
    for (uint32_t i = 0; i < STATUSES; ++i) {
        if (found[i] > 0) {
            printf("%u %u\n", i, found[i]);
        }
    }
    return 0;
}
