#include "mt_loader.h"

#include <stddef.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mt_protocol.h"
#include "mt_status.h"

/* Of a module's RAM. */
#ifdef MT_PROTECT
#define LEAST_ALIGNMENT 4096u /* so that a few regions of an MPU cover it */
#else
#define LEAST_ALIGNMENT 32u
#endif

enum { FLASH, RAM, MODULES }; /* indices of `modules` */

static int32_t execute(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply);

/* The host that a module sees: of the RAM it has what is behind the other's context, and in front of `file`, if that is
 * not NULL, which lies at the RAM's end. */
static struct mt_module_host host_of(const struct mt_loader *loader, uint8_t which, const uint8_t *head,
                                     const uint8_t *file)
{
    struct mt_module_host host = loader->host;
    const uint32_t wanted = mt_get_u32(head + MT_MODULE_AT_ARENA_ALIGNMENT);
    const uintptr_t alignment = wanted > LEAST_ALIGNMENT ? wanted : LEAST_ALIGNMENT;
    const uintptr_t end = file != NULL ? (uintptr_t)file : (uintptr_t)host.ram + host.ram_bytes;
    uintptr_t begin = (uintptr_t)host.ram;
    if (which == RAM && loader->is_open[FLASH]) {
        begin += loader->modules[FLASH].view.ram_bytes;
    }
    begin = (begin + alignment - 1u) & ~(alignment - 1u);
    host.ram = (uint8_t *)host.ram + (begin - (uintptr_t)host.ram);
    host.ram_bytes = begin < end ? (uint32_t)(end - begin) : 0;
    return host;
}

/* Say which modules are open, from then on. */
static void set_open(struct mt_loader *loader, uint8_t which, int is_open)
{
    const struct mt_model **link = &loader->extension.models;
    loader->is_open[which] = is_open != 0;
    *link = NULL;
    for (which = 0; which < MODULES; ++which) {
        if (loader->is_open[which]) {
            loader->modules[which].model.next = NULL;
            *link = &loader->modules[which].model;
            link = &loader->modules[which].model.next;
        }
    }
}

static int32_t open_module(struct mt_loader *loader, uint8_t which, const uint8_t *file, uint32_t bytes)
{
    const struct mt_module_host host = host_of(loader, which, file, which == RAM ? file : NULL);
    const int32_t status = mt_module_open(file, bytes, &host, loader->modules + which);
    set_open(loader, which, status == MT_OK);
    return status;
}

static int32_t open_active(struct mt_loader *loader)
{
    uint32_t bytes;
    const uint8_t *const file = mt_slots_active(&loader->slots, &bytes);
    return file == NULL ? MT_OK : open_module(loader, FLASH, file, bytes);
}

int32_t mt_loader_start(struct mt_loader *loader)
{
    loader->extension.execute = execute;
    if (loader->storage == NULL) {
        return MT_OK;
    }
    int32_t status = mt_slots_open(&loader->slots, loader->storage);
    if (status != MT_OK) {
        loader->storage = NULL;
        return status;
    }
    status = open_active(loader);
    if (status != MT_OK) {
        mt_slots_reject(&loader->slots);
        (void)open_active(loader);
    }
    loader->host.least_counter = mt_slots_counter(&loader->slots);
    return status;
}

/* What tells a file from any other: of the hash of its contents a part, and a checksum of its head. */
static void identify(const uint8_t *head, uint8_t *identity)
{
    memcpy(identity, head + MT_MODULE_AT_CONTENTS_HASH, MT_SLOTS_IDENTITY_BYTES - 4u);
    mt_put_u32(identity + MT_SLOTS_IDENTITY_BYTES - 4u, mt_crc32(head, MT_MODULE_HEAD_BYTES));
}

static int is_identified(const struct mt_loader *loader, const uint8_t *head)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES];
    identify(head, identity);
    return memcmp(identity, loader->identity, sizeof identity) == 0;
}

/* Find the place of a file at the RAM's end. */
static int32_t begin_in_ram(struct mt_loader *loader, const uint8_t *head, const struct mt_module_view *view)
{
    const uintptr_t end = (uintptr_t)loader->host.ram + loader->host.ram_bytes;
    if (view->file_bytes > loader->host.ram_bytes) {
        return MT_NO_MEMORY;
    }
    const uintptr_t begin = (end - view->file_bytes) & ~(uintptr_t)(mt_get_u32(head + MT_MODULE_AT_ALIGNMENT) - 1u);
    uint8_t *const file = (uint8_t *)loader->host.ram + (begin - (uintptr_t)loader->host.ram);
    if (begin < (uintptr_t)loader->host.ram || host_of(loader, RAM, head, file).ram_bytes < view->ram_bytes) {
        return MT_NO_MEMORY;
    }
    loader->ram_file = file;
    return MT_OK;
}

/* The module in flash, which a delta starts from; NULL: there is none, or the firmware takes no deltas. */
static const uint8_t *delta_base(const struct mt_loader *loader, uint32_t *bytes)
{
    return loader->delta == NULL || loader->storage == NULL || !loader->is_open[FLASH]
               ? NULL
               : mt_slots_active(&loader->slots, bytes);
}

/* Begin a delta, or go on with it; or have none. */
static int32_t begin_delta(struct mt_loader *loader, const uint8_t *head, uint8_t is_delta)
{
    const uint32_t crc = is_delta ? mt_get_u32(head + MT_MODULE_HEAD_BYTES) : 0;
    uint32_t old_bytes = 0;
    if (is_delta && loader->is_delta && loader->delta_crc == crc) {
        return MT_OK;
    }
    loader->is_delta = is_delta && loader->there < loader->file_bytes;
    loader->delta_crc = crc;
    loader->taken = 0;
    return loader->is_delta ? loader->delta->begin(loader, delta_base(loader, &old_bytes), old_bytes, head) : MT_OK;
}

static int32_t on_load(struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply)
{
    const uint8_t *const head = request->payload + 1;
    const uint8_t where = request->payload[0] & (uint8_t)~MT_BY_DELTA;
    const uint8_t is_delta = (request->payload[0] & MT_BY_DELTA) != 0;
    struct mt_module_view view;
    uint32_t old_bytes = 0;
    if (request->count != 1u + MT_MODULE_HEAD_BYTES + (is_delta ? 4u : 0)) {
        return MT_BAD_MESSAGE;
    }
    if ((where != MT_IN_RAM && (where != MT_IN_FLASH || loader->storage == NULL)) ||
        (is_delta && delta_base(loader, &old_bytes) == NULL)) {
        return MT_NOT_SUPPORTED;
    }
    int32_t status = mt_requests_begin_work(state, request);
    if (status == MT_OK) {
        status = mt_module_check_head(head, &loader->host, &view);
    }
    if (status == MT_OK && where == MT_IN_RAM) {
        status = begin_in_ram(loader, head, &view);
    }
    if (status != MT_OK) {
        return status;
    }
    if (loader->where != where || !is_identified(loader, head)) {
        identify(head, loader->identity);
        loader->there = 0;
        loader->is_delta = 0;
    }
    loader->where = where;
    loader->file_bytes = view.file_bytes;
    if (where == MT_IN_FLASH) {
        status = mt_slots_begin(&loader->slots, loader->identity, view.file_bytes, &loader->there);
    } else if (loader->there == 0) {
        state->model = state->config->model; /* the one in RAM may be written over */
        set_open(loader, RAM, 0);
    }
    if (status == MT_OK) {
        status = begin_delta(loader, head, is_delta);
    }
    mt_put_u32(reply->bytes, loader->there);
    mt_put_u32(reply->bytes + 4, loader->taken);
    mt_requests_keep_work(state, reply, is_delta ? 8 : 4);
    return status;
}

/* Tell the host that the frame has come; unlike mt_requests_begin_work it leaves the reply to LOAD alone. */
static int32_t tell(struct mt_requests *state, const struct mt_frame *request)
{
    return mt_link_send(&state->link, MT_RUNNING, request->session, request->sequence, 0);
}

int32_t mt_loader_store(struct mt_loader *loader, uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    if (loader->where == MT_IN_FLASH) {
        return mt_slots_write(&loader->slots, offset, bytes, count);
    }
    if (loader->where != MT_IN_RAM || offset != loader->there) {
        return MT_BAD_ORDER;
    }
    if (count > loader->file_bytes - offset) {
        return MT_BAD_RANGE;
    }
    memcpy(loader->ram_file + offset, bytes, count);
    loader->there += count;
    return MT_OK;
}

/* What is wrong with a delta, or with what it makes, is so for all of the load: it begins anew. */
static int32_t take_delta(struct mt_loader *loader, uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    if (offset != loader->taken) {
        return MT_BAD_ORDER;
    }
    const int32_t status = loader->delta->take(bytes, count);
    loader->taken += count;
    if (status != MT_OK) {
        if (loader->where == MT_IN_FLASH && status == MT_BAD_DELTA) {
            (void)mt_slots_drop(&loader->slots);
        }
        loader->where = 0;
    }
    return status;
}

static int32_t on_data(struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request)
{
    if (request->count < 4) {
        return MT_BAD_MESSAGE;
    }
    const uint32_t offset = mt_get_u32(request->payload);
    const uint8_t *const bytes = request->payload + 4;
    const uint32_t count = (uint32_t)(request->count - 4u);
    const int is_delta = loader->where != 0 && loader->is_delta; /* whose bytes may stand for many sectors */
    int is_long = is_delta;
    if (loader->where == MT_IN_FLASH) {
        const uint32_t sector = loader->storage->sector_bytes;
        is_long |= offset % sector == 0 || offset % sector + count > sector; /* one has to be erased */
    }
    const int32_t status = is_long ? tell(state, request) : MT_OK;
    if (status != MT_OK) {
        return status;
    }
    return is_delta ? take_delta(loader, offset, bytes, count) : mt_loader_store(loader, offset, bytes, count);
}

/* Make what has come into the other slot the module in flash. Whatever is wrong, the one before is there again. */
static int32_t commit(struct mt_loader *loader)
{
    uint32_t bytes;
    const uint8_t *const file = mt_slots_loaded(&loader->slots, &bytes);
    if (file == NULL) { /* all of it was there already, in the active slot */
        return loader->there == loader->file_bytes && loader->is_open[FLASH] ? MT_OK : MT_BAD_ORDER;
    }
    set_open(loader, RAM, 0);
    int32_t status = is_identified(loader, file) ? open_module(loader, FLASH, file, bytes) : MT_BAD_MODULE;
    if (status == MT_OK) {
        status = mt_slots_commit(&loader->slots, loader->modules[FLASH].view.counter);
    }
    if (status != MT_OK) {
        (void)mt_slots_drop(&loader->slots);
        (void)open_active(loader);
    }
    loader->host.least_counter = mt_slots_counter(&loader->slots);
    return status;
}

static int32_t on_commit(struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request)
{
    const uint8_t where = loader->where;
    int32_t status = tell(state, request);
    if (status != MT_OK) {
        return status;
    }
    state->model = state->config->model;
    state->last.fed_bytes = 0;
    if (where == MT_IN_FLASH) {
        status = commit(loader);
    } else if (where != MT_IN_RAM || loader->there != loader->file_bytes) {
        return MT_BAD_ORDER; /* it may go on */
    } else {
        status = is_identified(loader, loader->ram_file)
                     ? open_module(loader, RAM, loader->ram_file, loader->file_bytes)
                     : MT_BAD_MODULE;
    }
    if (status != MT_BAD_ORDER) {
        loader->where = 0;
    }
    return status;
}

static void on_room(const struct mt_loader *loader, struct mt_reply *reply)
{
    uint32_t kinds = 0, old_bytes;
    for (const struct mt_module_kind *const *kind = loader->host.kinds; *kind != NULL; ++kind) {
        kinds |= 1u << (*kind)->kind;
    }
    mt_put_u32(reply->bytes, loader->host.machine);
    mt_put_u32(reply->bytes + 4, kinds);
    mt_put_u32(reply->bytes + 8, loader->storage != NULL ? loader->slots.capacity : 0);
    mt_put_u32(reply->bytes + 12, loader->host.ram_bytes);
    mt_put_u32(reply->bytes + 16, loader->host.least_counter);
    reply->bytes[20] = delta_base(loader, &old_bytes) != NULL;
    reply->count = 21;
}

/* The module whose model this is; NULL: it is the firmware's. */
static const struct mt_module *module_of(const struct mt_loader *loader, const struct mt_model *model, uint8_t *where)
{
    *where = MT_IN_FIRMWARE;
    for (uint8_t which = 0; which < MODULES; ++which) {
        if (model == &loader->modules[which].model) {
            *where = which == FLASH ? MT_IN_FLASH : MT_IN_RAM;
            return loader->modules + which;
        }
    }
    return NULL;
}

static int32_t on_models(const struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request,
                         struct mt_reply *reply)
{
    const size_t capacity = mt_link_payload_bytes(&state->link) - 1u;
    if (request->count != 1) {
        return MT_BAD_MESSAGE;
    }
    const struct mt_model *model;
    for (uint8_t i = request->payload[0]; (model = mt_requests_model_at(state, i)) != NULL; ++i) {
        uint8_t *const entry = reply->bytes + reply->count;
        size_t length = strlen(model->name);
        length = length < MT_NAME_BYTES ? length : MT_NAME_BYTES;
        if (reply->count + 2u + MT_HASH_DIGITS + length > capacity) {
            break;
        }
        (void)module_of(loader, model, entry);
        memcpy(entry + 1, model->model_hash, MT_HASH_DIGITS);
        entry[1u + MT_HASH_DIGITS] = (uint8_t)length;
        memcpy(entry + 2u + MT_HASH_DIGITS, model->name, length);
        reply->count += 2u + MT_HASH_DIGITS + length;
    }
    return MT_OK;
}

static int32_t on_fetch(const struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request,
                        struct mt_reply *reply)
{
    uint8_t where;
    if (request->count != 7) {
        return MT_BAD_MESSAGE;
    }
    const struct mt_module *const module =
        module_of(loader, mt_requests_model_at(state, request->payload[0]), &where);
    const uint32_t offset = mt_get_u32(request->payload + 1);
    const uint16_t count = mt_get_u16(request->payload + 5);
    if (module == NULL) {
        return MT_BAD_INDEX;
    }
    if (offset > module->view.file_bytes || count > module->view.file_bytes - offset) {
        return MT_BAD_RANGE;
    }
    if (count > mt_link_payload_bytes(&state->link) - 1u) {
        return MT_TOO_LARGE;
    }
    memcpy(reply->bytes, module->view.bytes + offset, count);
    reply->count = count;
    return MT_OK;
}

static int32_t execute(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply)
{
    struct mt_loader *const loader = (struct mt_loader *)(void *)extension; /* whose first member it is */
    switch (request->type) {
    case MT_LOAD:
        return on_load(loader, state, request, reply);
    case MT_DATA:
        return on_data(loader, state, request);
    case MT_COMMIT:
        return on_commit(loader, state, request);
    case MT_ROOM:
        on_room(loader, reply);
        return MT_OK;
    case MT_MODELS:
        return on_models(loader, state, request, reply);
    case MT_FETCH:
        return on_fetch(loader, state, request, reply);
    default:
        return MT_UNKNOWN_MESSAGE;
    }
}
