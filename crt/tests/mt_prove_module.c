/* Whatever module arrives, checking it reads only the file, and opening it writes only the RAM that it was given. First
 * any header; then files of up to two inputs, outputs and imports, and 20 bytes of arena, for which offsets, sizes,
 * the imports and everything else are arbitrary. The hash and the signature may match or not. */
#include "mt_bytes.h"
#include "mt_ed25519.h"
#include "mt_module.h"
#include "mt_prove.h"
#include "mt_sha512.h"

#define MOST 2u
#define IMAGE 16u
#define FILE_BYTES (MT_MODULE_HEAD_BYTES + 2u * MOST * MT_MODULE_TENSOR_BYTES + MOST * MT_MODULE_IMPORT_BYTES + 32u + IMAGE)
#define RAM_BYTES 160u

static uint8_t file[FILE_BYTES], ram[RAM_BYTES];
static struct mt_module opened;

void mt_sha512_begin(struct mt_sha512 *sha)
{
    any_bytes(sha, sizeof *sha);
}

void mt_sha512_add(struct mt_sha512 *sha, const uint8_t *bytes, uint32_t count)
{
    any_bytes(sha, sizeof *sha);
    use_bytes(bytes, count);
}

void mt_sha512_end(struct mt_sha512 *sha, uint8_t hash[MT_SHA512_BYTES])
{
    any_bytes(sha, sizeof *sha);
    any_bytes(hash, MT_SHA512_BYTES);
}

int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count)
{
    use_bytes(signature, 64);
    use_bytes(public_key, 32);
    use_bytes(message, count);
    return (int)any(0, 1);
}

static int32_t check(const struct mt_module_view *view)
{
    use_bytes(view->image, view->image_bytes);
    return any(0, 1) ? MT_OK : (int32_t)any(1, 31);
}

static int32_t call(const struct mt_module *module, uint32_t number)
{
    (void)number;
    any_bytes(ram, module->model.arena_bytes);
    return any(0, 1) ? MT_OK : (int32_t)any(1, 31);
}

static void nothing(void)
{
}

static const uint8_t keys[2][32];
static const struct mt_module_kind native = {MT_MODULE_NATIVE, check, call};
static const struct mt_module_kind *const kinds[] = {&native, NULL};
static const struct mt_export exports[] = {{1, nothing}, {0x100, nothing}, {0xFFFFFFFF, nothing}};

int main(void)
{
    struct mt_module_view view;
    struct mt_module_host host = {
        .exports = exports, .export_count = 3, .machine = any(0, UINT32_MAX), .keys = keys, .key_count = 2,
        .takes_unsigned = (uint8_t)any(0, 1), .least_counter = any(0, UINT32_MAX), .kinds = kinds, .ram = ram,
        .ram_bytes = RAM_BYTES,
    };
    any_bytes(file, sizeof file);
    (void)mt_module_check_head(file, &host, &view);
    (void)mt_module_check(file, any(0, MT_MODULE_HEAD_BYTES - 1u), &host);
    for (uint32_t inputs = 0; inputs <= MOST; ++inputs) {
        for (uint32_t outputs = 0; outputs <= MOST; ++outputs) {
            for (uint32_t imports = 0; imports <= MOST; ++imports) {
                for (uint32_t arena = 0; arena <= 20; arena += 20) {
                    any_bytes(file, sizeof file);
                    const uint32_t tensors = inputs + outputs;
                    const uint32_t image_at = (MT_MODULE_HEAD_BYTES + MT_MODULE_TENSOR_BYTES * tensors +
                                               MT_MODULE_IMPORT_BYTES * imports + 5u + 15u) / 16u * 16u;
                    mt_put_u32(file + MT_MODULE_AT_KIND, MT_MODULE_NATIVE);
                    mt_put_u32(file + MT_MODULE_AT_ALIGNMENT, 16);
                    mt_put_u32(file + MT_MODULE_AT_IMAGE_BYTES, IMAGE);
                    mt_put_u32(file + MT_MODULE_AT_FILE_BYTES, image_at + IMAGE);
                    mt_put_u32(file + MT_MODULE_AT_INPUTS, inputs);
                    mt_put_u32(file + MT_MODULE_AT_OUTPUTS, outputs);
                    mt_put_u32(file + MT_MODULE_AT_IMPORTS, imports);
                    mt_put_u32(file + MT_MODULE_AT_DESCRIPTION_BYTES, 5);
                    mt_put_u32(file + MT_MODULE_AT_ARENA_BYTES, arena);
                    if (mt_module_open(file, image_at + IMAGE, &host, &opened) == MT_OK) {
                        (void)opened.model.run(&opened.model);
                        (void)opened.model.step(&opened.model, (uint16_t)any(0, 65535));
                    }
                }
            }
        }
    }
    return 0;
}
