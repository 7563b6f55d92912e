#include "mt_module.h"

#include <stddef.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_ed25519.h"
#include "mt_sha512.h"
#include "mtool.h"

/* Limits that keep every sum of sizes far below 2^32; see mt_module.h. */
#define MOST_BYTES 0x40000000u
#define MOST_TENSORS 255u
#define MOST_IMPORTS 1024u
#define MOST_OPERATORS 0xFFFDu
#define MOST_DESCRIPTION_BYTES 0x10000u
#define LEAST_ALIGNMENT 16u
#define MOST_ALIGNMENT 4096u
#define TABLE_ALIGNMENT 32u

#define ARCHITECTURE 0xFFu

static uint32_t up(uint32_t number, uint32_t alignment)
{
    return (number + alignment - 1u) & ~(alignment - 1u);
}

static int is_alignment(uint32_t number)
{
    return number >= LEAST_ALIGNMENT && number <= MOST_ALIGNMENT && (number & (number - 1u)) == 0;
}

static int is_aligned(const void *place, uint32_t alignment)
{
    return ((uintptr_t)place & (alignment - 1u)) == 0;
}

static int is_zero(const uint8_t *bytes, uint32_t count)
{
    uint8_t all = 0;
    for (uint32_t i = 0; i < count; ++i) {
        all |= bytes[i];
    }
    return all == 0;
}

/* A name that is valid in C and in a message, padded with zeros. */
static int is_name(const uint8_t *name)
{
    uint32_t length = 0;
    for (; length < MT_MODULE_NAME_BYTES; ++length) {
        const uint8_t c = name[length], letter = c | 0x20u;
        const int is_letter = (letter >= 'a' && letter <= 'z') || c == '_';
        if (!is_letter && !(length > 0 && c >= '0' && c <= '9')) {
            break;
        }
    }
    return length > 0 && length < MT_MODULE_NAME_BYTES && is_zero(name + length, MT_MODULE_NAME_BYTES - length);
}

static const struct mt_module_kind *kind_of(const struct mt_module_host *host, uint32_t kind)
{
    const struct mt_module_kind *const *one = host->kinds;
    while (*one != NULL && (*one)->kind != kind) {
        ++one;
    }
    return *one;
}

/* A core runs code for itself and for smaller ones of its family: all later Arm architectures have Armv6-M's
 * instructions. */
static int runs(uint32_t core, uint32_t machine)
{
    const uint32_t own = core & ARCHITECTURE, wanted = machine & ARCHITECTURE;
    if (wanted == MT_MACHINE_ANY) {
        return machine == MT_MACHINE_ANY;
    }
    const int both_arm = own < MT_MACHINE_RV32 && wanted < MT_MACHINE_RV32;
    const int is_within = wanted == own || (both_arm && wanted < own &&
                                            (own != MT_MACHINE_ARMV8M_BASE || wanted == MT_MACHINE_ARMV6M));
    return is_within && ((core ^ machine) & MT_MACHINE_HARD_FLOAT) == 0 && (machine & ~core & ~ARCHITECTURE) == 0;
}

static int is_signed_by(const uint8_t *head, const uint8_t *key)
{
    struct mt_sha512 sha;
    uint8_t id[MT_SHA512_BYTES];
    mt_sha512_begin(&sha);
    mt_sha512_add(&sha, key, MT_MODULE_KEY_BYTES);
    mt_sha512_end(&sha, id);
    return memcmp(id, head + MT_MODULE_AT_KEY_ID, MT_MODULE_KEY_ID_BYTES) == 0 &&
           mt_ed25519_is_right(head + MT_MODULE_AT_SIGNATURE, key, head, MT_MODULE_SIGNED_BYTES);
}

const uint8_t *mt_module_signer(const uint8_t *head, const struct mt_module_host *host)
{
    for (uint32_t i = 0; i < host->key_count; ++i) {
        const uint8_t *next = host->keys[i];
        while (next != NULL) {
            const uint8_t *const key = next;
            next = host->next_key != NULL ? host->next_key(host, key) : NULL;
            if ((next == NULL || host->takes_replaced) && is_signed_by(head, key)) {
                return key;
            }
        }
    }
    return NULL;
}

static int is_accepted(const uint8_t *head, const struct mt_module_host *host)
{
    return mt_module_signer(head, host) != NULL ||
           (host->takes_unsigned && is_zero(head + MT_MODULE_AT_KEY_ID, MT_MODULE_HEAD_BYTES - MT_MODULE_AT_KEY_ID));
}

static int32_t read_head(const uint8_t *head, struct mt_module_view *view)
{
    memset(view, 0, sizeof *view);
    for (uint32_t at = MT_MODULE_AT_FILE_BYTES; at < MT_MODULE_AT_NAME; at += 4u) {
        const uint32_t number = mt_get_u32(head + at);
        memcpy((uint8_t *)view + at - MT_MODULE_AT_FILE_BYTES, &number, sizeof number);
    }
    const uint32_t key_bytes = (view->kind & MT_MODULE_NAMES_KEY) != 0 ? MT_MODULE_KEY_BYTES : 0;
    view->kind &= ~MT_MODULE_NAMES_KEY;
    if (mt_get_u32(head) != MT_MODULE_MAGIC || view->version != MT_MODULE_VERSION ||
        !is_alignment(view->alignment) || !is_alignment(view->arena_alignment) || view->image_bytes > MOST_BYTES ||
        view->arena_bytes > MOST_BYTES || view->image_bytes < key_bytes ||
        view->code_bytes > view->image_bytes - key_bytes || view->entry >= view->code_bytes ||
        view->input_count > MOST_TENSORS || view->output_count > MOST_TENSORS || view->import_count > MOST_IMPORTS ||
        view->operator_count > MOST_OPERATORS || view->description_bytes > MOST_DESCRIPTION_BYTES ||
        !is_name(head + MT_MODULE_AT_NAME)) {
        return MT_BAD_MODULE;
    }
    const uint32_t tensors = view->input_count + view->output_count;
    view->imports_at = MT_MODULE_HEAD_BYTES + MT_MODULE_TENSOR_BYTES * tensors;
    view->description_at = view->imports_at + MT_MODULE_IMPORT_BYTES * view->import_count;
    view->image_at = up(view->description_at + view->description_bytes, view->alignment);
    view->table_offset = up(view->arena_bytes, TABLE_ALIGNMENT);
    view->tensors_offset = view->table_offset + (uint32_t)sizeof(void *) * view->import_count;
    view->ram_bytes = view->tensors_offset + (uint32_t)sizeof(struct mt_tensor) * tensors;
    view->image_bytes -= key_bytes;
    return view->file_bytes == view->image_at + view->image_bytes + key_bytes ? MT_OK : MT_BAD_MODULE;
}

int32_t mt_module_check_head(const uint8_t *head, const struct mt_module_host *host, struct mt_module_view *view)
{
    const int32_t status = read_head(head, view);
    if (status != MT_OK) {
        return status;
    }
    if (!is_accepted(head, host)) {
        return MT_BAD_SIGNATURE;
    }
    if (view->counter < host->least_counter) {
        return MT_OLD_MODULE;
    }
    if (kind_of(host, view->kind) == NULL || !runs(host->machine, view->machine)) {
        return MT_WRONG_MACHINE;
    }
    const uint32_t alignment = view->arena_alignment < TABLE_ALIGNMENT ? TABLE_ALIGNMENT : view->arena_alignment;
    return view->ram_bytes <= host->ram_bytes && is_aligned(host->ram, alignment) ? MT_OK : MT_NO_MEMORY;
}

static int is_whole(const uint8_t *module, const struct mt_module_view *view)
{
    struct mt_sha512 sha;
    uint8_t hash[MT_SHA512_BYTES];
    mt_sha512_begin(&sha);
    mt_sha512_add(&sha, module + MT_MODULE_HEAD_BYTES, view->file_bytes - MT_MODULE_HEAD_BYTES);
    mt_sha512_end(&sha, hash);
    return memcmp(hash, module + MT_MODULE_AT_CONTENTS_HASH, MT_MODULE_CONTENTS_HASH_BYTES) == 0;
}

static int32_t check_tensors(const struct mt_module_view *view)
{
    for (uint32_t i = 0; i < view->input_count + view->output_count; ++i) {
        const uint8_t *const tensor = view->tensors + MT_MODULE_TENSOR_BYTES * (size_t)i;
        const uint32_t offset = mt_get_u32(tensor), bytes = mt_get_u32(tensor + 4);
        if (offset > view->arena_bytes || bytes > view->arena_bytes - offset) {
            return MT_BAD_MODULE;
        }
    }
    return MT_OK;
}

void (*mt_module_find(const struct mt_export *exports, uint32_t count, uint32_t hash))(void)
{
    uint32_t low = 0;
    while (low < count) {
        const uint32_t middle = low + (count - low) / 2u;
        if (exports[middle].hash == hash) {
            return exports[middle].address;
        }
        if (exports[middle].hash < hash) {
            low = middle + 1u;
        } else {
            count = middle;
        }
    }
    return NULL;
}

static int32_t check_imports(const struct mt_module_view *view)
{
    for (uint32_t i = 0; i < view->import_count; ++i) {
        const uint32_t hash = mt_get_u32(view->imports + MT_MODULE_IMPORT_BYTES * (size_t)i);
        if (mt_module_find(view->exports, view->export_count, hash) == NULL) {
            return MT_MISSING_IMPORT;
        }
    }
    return MT_OK;
}

static int32_t look(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host,
                    struct mt_module_view *view)
{
    int32_t status = bytes < MT_MODULE_HEAD_BYTES ? MT_BAD_MODULE : mt_module_check_head(module, host, view);
    if (status != MT_OK) {
        return status;
    }
    if (view->file_bytes != bytes || !is_whole(module, view)) {
        return MT_BAD_MODULE;
    }
    if (!is_aligned(module, view->alignment)) {
        return MT_NO_MEMORY;
    }
    view->bytes = module;
    view->tensors = module + MT_MODULE_HEAD_BYTES;
    view->imports = module + view->imports_at;
    view->description = module + view->description_at;
    view->image = module + view->image_at;
    view->next_key = view->image_at + view->image_bytes < bytes ? view->image + view->image_bytes : NULL;
    view->exports = host->exports;
    view->export_count = host->export_count;
    status = check_tensors(view);
    if (status == MT_OK) {
        status = check_imports(view);
    }
    return status == MT_OK ? kind_of(host, view->kind)->check(view) : status;
}

int32_t mt_module_check(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host)
{
    struct mt_module_view view;
    return look(module, bytes, host, &view);
}

static int32_t run(const struct mt_model *model)
{
    const struct mt_module *const module = (const void *)model;
    return module->kind->call(module, MT_MODULE_RUN);
}

static int32_t step(const struct mt_model *model, uint16_t number)
{
    const struct mt_module *const module = (const void *)model;
    return number < model->operator_count ? module->kind->call(module, number) : MT_BAD_INDEX;
}

static void write_hash(const uint8_t *hash, char *digits)
{
    for (uint32_t i = 0; i < 2u * MT_MODULE_MODEL_HASH_BYTES; ++i) {
        digits[i] = "0123456789abcdef"[hash[i / 2u] >> (i % 2u == 0 ? 4 : 0) & 15];
    }
    digits[2u * MT_MODULE_MODEL_HASH_BYTES] = '\0';
}

#ifdef MT_PROTECT
static struct mt_protect_area area_of(const void *start, size_t bytes, uint32_t access)
{
    const struct mt_protect_area area = {start, (const uint8_t *)start + bytes, access};
    return area;
}

/* A running module's areas: its image; its arena, which it may write; and, read-only, the rest of its RAM and
 * `opened`. */
static int32_t begin(struct mt_module *opened, const uint8_t *ram)
{
    const struct mt_module_view *const view = &opened->view;
    int32_t result = MT_OK;
    opened->areas[0] = area_of(view->image, view->image_bytes, MT_PROTECT_EXECUTE);
    opened->areas[1] = area_of(ram, view->table_offset, MT_PROTECT_WRITE);
    opened->areas[2] = area_of(ram + view->table_offset, view->ram_bytes - view->table_offset, MT_PROTECT_READ);
    opened->areas[3] = area_of(opened, sizeof *opened, MT_PROTECT_READ);
    opened->model.areas = opened->areas;
    opened->model.area_count = 4;
    const int32_t status = mt_protect_call(opened->areas, 4, (mt_protect_function *)opened->kind->call,
                                           (uintptr_t)opened, MT_MODULE_BEGIN, &result);
    return status == MT_OK ? result : status;
}
#endif

int32_t mt_module_open(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host,
                       struct mt_module *opened)
{
    struct mt_module_view *const view = &opened->view;
    memset(opened, 0, sizeof *opened);
    const int32_t status = look(module, bytes, host, view);
    if (status != MT_OK) {
        return status;
    }
    uint8_t *const ram = host->ram;
    void (**const table)(void) = (void (**)(void))(void *)(ram + view->table_offset);
    struct mt_tensor *const tensors = (struct mt_tensor *)(void *)(ram + view->tensors_offset);
    memset(ram, 0, view->ram_bytes);
    for (uint32_t i = 0; i < view->import_count; ++i) {
        const uint32_t hash = mt_get_u32(view->imports + MT_MODULE_IMPORT_BYTES * (size_t)i);
        table[i] = mt_module_find(view->exports, view->export_count, hash);
    }
    for (uint32_t i = 0; i < view->input_count + view->output_count; ++i) {
        const uint8_t *const tensor = view->tensors + MT_MODULE_TENSOR_BYTES * (size_t)i;
        tensors[i].data = ram + mt_get_u32(tensor);
        tensors[i].bytes = mt_get_u32(tensor + 4);
    }
    memcpy(opened->name, module + MT_MODULE_AT_NAME, sizeof opened->name);
    write_hash(module + MT_MODULE_AT_MODEL_HASH, opened->hash);
    opened->kind = kind_of(host, view->kind);
    opened->table = table;
    opened->model.name = opened->name;
    opened->model.model_hash = opened->hash;
    opened->model.inputs = tensors;
    opened->model.outputs = tensors + view->input_count;
    opened->model.input_count = (uint8_t)view->input_count;
    opened->model.output_count = (uint8_t)view->output_count;
    opened->model.operator_count = (uint16_t)view->operator_count;
    opened->model.arena = view->arena_bytes > 0 ? ram : NULL;
    opened->model.arena_bytes = view->arena_bytes;
    opened->model.run = run;
    opened->model.step = step;
#ifdef MT_PROTECT
    return begin(opened, ram);
#else
    return opened->kind->call(opened, MT_MODULE_BEGIN);
#endif
}
