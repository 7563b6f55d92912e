/* libFuzzer: whatever is sent to the module loader, it accesses only its own memory, its models lie in its RAM, and it
 * starts after a reset.
 *
 * An input is records (kind, length (2), bytes): a message of the loader's, or one of those below. Modules that they
 * send have the right size and hash, so that their numbers and tables are reached. */
#include <stdlib.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_loader.h"
#include "mt_protocol.h"
#include "mt_sha512.h"
#include "mtool.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())
#define FLASH_BYTES (24u * 1024u)
#define SLOT_BYTES 4096u
#define SECTOR_BYTES 1024u
#define UNIT_BYTES 16u
#define RAM_BYTES 8192u
#define PIECE 200u

enum { MODULE = 0xF0, SEND = 0xF1, RESET = 0xF2 }; /* the module's bytes; LOAD, its DATA and COMMIT; a reset */

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint8_t flash[FLASH_BYTES] __attribute__((aligned(4096)));
static uint8_t ram[RAM_BYTES] __attribute__((aligned(4096)));
static uint8_t module[SLOT_BYTES], buffer[1024];
static uint32_t module_bytes;
static struct mt_loader loader;
static struct mt_requests state;

/* The rest of the runtime: the firmware's own model, and a line that accepts everything. */
static int32_t run(const struct mt_model *model)
{
    (void)model;
    return MT_OK;
}

static const struct mt_model own = {
    .name = "own",
    .model_hash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    .run = run,
};
static const struct mt_server_config config = {.model = &own};

int32_t mt_requests_begin_work(struct mt_requests *requests, const struct mt_frame *request)
{
    (void)requests;
    (void)request;
    return MT_OK;
}

void mt_requests_keep_work(struct mt_requests *requests, struct mt_reply *reply, uint8_t count)
{
    (void)requests;
    reply->count = count;
}

const struct mt_model *mt_requests_model_at(const struct mt_requests *requests, uint8_t index)
{
    const struct mt_model *model = index == 0 ? requests->config->model : loader.extension.models;
    for (; model != NULL && index > 1; --index) {
        model = model->next;
    }
    return model;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    (void)bytes;
    (void)count;
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    (void)bytes;
    (void)capacity;
    *count = 0;
    return MT_IO;
}

void mt_port_idle(void) {}

/* A signature is valid if its first byte is 1. */
int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count)
{
    (void)public_key;
    (void)message;
    (void)count;
    return signature[0] == 1;
}

static int32_t erase(uint32_t offset)
{
    CHECK(offset % SECTOR_BYTES == 0 && offset < FLASH_BYTES);
    memset(flash + offset, 0xFF, SECTOR_BYTES);
    return MT_OK;
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    CHECK(offset % UNIT_BYTES == 0 && count % UNIT_BYTES == 0 && offset <= FLASH_BYTES && count <= FLASH_BYTES - offset);
    for (uint32_t i = 0; i < count; ++i) {
        CHECK(flash[offset + i] == 0xFF); /* erased before */
        flash[offset + i] = bytes[i];
    }
    return MT_OK;
}

static const struct mt_storage storage = {flash, FLASH_BYTES, SECTOR_BYTES, erase, program};

static int32_t check(const struct mt_module_view *view)
{
    return view->image_bytes > 0 && view->image[view->image_bytes - 1u] != 13u ? MT_OK : MT_BAD_MODULE;
}

static int32_t call(const struct mt_module *opened, uint32_t number)
{
    return number == MT_MODULE_BEGIN && opened->view.image[0] == 13u ? MT_MODEL : MT_OK;
}

static void nothing(void) {}

static const struct mt_module_kind native = {MT_MODULE_NATIVE, check, call};
static const struct mt_module_kind *const kinds[] = {&native, NULL};
static const struct mt_export exports[] = {{1, nothing}, {0x100, nothing}, {0xFFFFFFFF, nothing}};

static void reset(void)
{
    memset(&loader, 0, sizeof loader);
    memset(&state, 0, sizeof state);
    state.config = &config;
    state.model = &own;
    mt_link_open(&state.link, buffer, sizeof buffer);
    loader.host.exports = exports;
    loader.host.export_count = 3;
    loader.host.machine = 3;
    loader.host.takes_unsigned = 1;
    loader.host.kinds = kinds;
    loader.host.ram = ram;
    loader.host.ram_bytes = sizeof ram;
    loader.storage = &storage;
    loader.slot_bytes = SLOT_BYTES;
    loader.delta = &mt_loader_delta;
    CHECK(mt_loader_start(&loader) == MT_OK); /* committed modules were checked */
}

static int32_t request(uint8_t type, const uint8_t *payload, size_t count)
{
    uint8_t *const exact = malloc(count);
    const struct mt_frame frame = {exact, count, 1, 1, type};
    struct mt_reply reply = {mt_link_payload(&state.link) + 1, 0};
    if (count > 0) {
        memcpy(exact, payload, count);
    }
    const int32_t status = loader.extension.execute(&loader.extension, &state, &frame, &reply);
    CHECK(reply.count < mt_link_payload_bytes(&state.link));
    free(exact);
    return status;
}

/* The models' memory lies within the RAM. */
static void look_at_models(void)
{
    for (const struct mt_model *model = loader.extension.models; model != NULL; model = model->next) {
        const struct mt_module *const opened = (const struct mt_module *)(const void *)model; /* its first member */
        CHECK(opened->view.ram_bytes <= RAM_BYTES);
        for (uint32_t i = 0; i < (uint32_t)model->input_count + model->output_count; ++i) {
            const struct mt_tensor *const tensor =
                i < model->input_count ? &model->inputs[i] : &model->outputs[i - model->input_count];
            const uintptr_t at = (uintptr_t)tensor->data - (uintptr_t)ram;
            CHECK(tensor->bytes == 0 || (at < RAM_BYTES && tensor->bytes <= RAM_BYTES - at));
        }
        CHECK(model->run(model) == MT_OK);
    }
}

static void send(uint8_t where)
{
    uint8_t load[1u + MT_MODULE_HEAD_BYTES], data[4u + PIECE];
    load[0] = where;
    memcpy(load + 1, module, MT_MODULE_HEAD_BYTES);
    if (request(MT_LOAD, load, sizeof load) != MT_OK) {
        return;
    }
    for (uint32_t at = loader.there; at < module_bytes;) {
        const uint32_t count = module_bytes - at < PIECE ? module_bytes - at : PIECE;
        mt_put_u32(data, at);
        memcpy(data + 4, module + at, count);
        if (request(MT_DATA, data, 4u + count) != MT_OK) {
            return;
        }
        at += count;
    }
    (void)request(MT_COMMIT, NULL, 0);
}

static void put_module(const uint8_t *bytes, size_t count)
{
    struct mt_sha512 sha;
    if (count < MT_MODULE_HEAD_BYTES || count > sizeof module) {
        return;
    }
    module_bytes = (uint32_t)count;
    memcpy(module, bytes, count);
    mt_put_u32(module + MT_MODULE_AT_FILE_BYTES, module_bytes);
    mt_sha512_begin(&sha);
    mt_sha512_add(&sha, module + MT_MODULE_HEAD_BYTES, module_bytes - MT_MODULE_HEAD_BYTES);
    mt_sha512_end(&sha, module + MT_MODULE_AT_CONTENTS_HASH);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    memset(flash, 0xFF, sizeof flash);
    module_bytes = 0;
    reset();
    for (size_t at = 0; at + 3u <= count;) {
        const uint8_t what = bytes[at];
        size_t length = mt_get_u16(bytes + at + 1);
        at += 3u;
        length = length < count - at ? length : count - at;
        if (what == MODULE) {
            put_module(bytes + at, length);
        } else if (what == RESET) {
            reset();
        } else if (what != SEND) {
            (void)request(what, bytes + at, length);
        } else if (module_bytes > 0) {
            send(length > 0 ? bytes[at] : MT_IN_FLASH);
        }
        look_at_models();
        at += length;
    }
    return 0;
}
