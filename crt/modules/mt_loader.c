#include "mt_loader.h"

#include <stddef.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mt_protocol.h"
#include "mtool.h"

/* For a module's RAM. */
#ifdef MT_PROTECT
#define LEAST_ALIGNMENT 4096u /* so that few MPU regions cover it */
#else
#define LEAST_ALIGNMENT 32u
#endif

enum { RAM = MT_SLOTS_MOST, MODULES }; /* indices of `modules`; the slots' modules come first */

static int32_t execute(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply);

static uint32_t name_of(const uint8_t *name)
{
    return mt_crc32(name, MT_MODULE_NAME_BYTES);
}

/* The host that a module sees: its RAM begins `used_bytes` after the start of the whole RAM, and ends before `file`,
 * which lies at the end; NULL: no file. */
static struct mt_module_host host_of(const struct mt_loader *loader, uint32_t used_bytes, const uint8_t *head,
                                     const uint8_t *file)
{
    struct mt_module_host host = loader->host;
    const uint32_t wanted = mt_get_u32(head + MT_MODULE_AT_ARENA_ALIGNMENT);
    const uintptr_t alignment = wanted > LEAST_ALIGNMENT ? wanted : LEAST_ALIGNMENT;
    const uintptr_t end = file != NULL ? (uintptr_t)file : (uintptr_t)host.ram + host.ram_bytes;
    const uintptr_t begin = ((uintptr_t)host.ram + used_bytes + alignment - 1u) & ~(alignment - 1u);
    host.ram = (uint8_t *)host.ram + (begin - (uintptr_t)host.ram);
    host.ram_bytes = begin < end ? (uint32_t)(end - begin) : 0;
    host.least_counter = 0; /* LOAD checks the counter and the key of a new module; stored ones are accepted */
    host.takes_replaced = 1;
    return host;
}

/* The RAM that the modules in flash need, except for one of them. */
static uint32_t used_but(const struct mt_loader *loader, uint8_t but)
{
    uint32_t bytes = 0;
    for (uint8_t which = 0; which < RAM; ++which) {
        if (loader->is_open[which] && which != but) {
            bytes += loader->modules[which].view.ram_bytes + LEAST_ALIGNMENT - 1u;
        }
    }
    return bytes;
}

/* Record which modules are open from now on. */
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
    const struct mt_module_host host = host_of(loader, loader->used_bytes, file, which == RAM ? file : NULL);
    struct mt_module *const module = loader->modules + which;
    const int32_t status = mt_module_open(file, bytes, &host, module);
    set_open(loader, which, status == MT_OK);
    if (status == MT_OK && which != RAM) {
        loader->used_bytes = (uint32_t)((const uint8_t *)host.ram - (const uint8_t *)loader->host.ram) + module->view.ram_bytes;
    }
    return status;
}

/* Open the modules of all active slots, and `file`, if it is not NULL, in the free slot, instead of the one that it
 * replaces. Returns the status of a module that did not open. */
static int32_t open_all(struct mt_loader *loader, const uint8_t *file, uint32_t file_bytes)
{
    const struct mt_slots *const slots = &loader->slots;
    const uint8_t replaced =
        file != NULL ? mt_slots_replaced(slots, name_of(file + MT_MODULE_AT_NAME)) : (uint8_t)MT_SLOTS_NONE;
    int32_t status = MT_OK;
    loader->used_bytes = 0;
    for (uint8_t slot = 0; slot < MODULES; ++slot) {
        set_open(loader, slot, 0);
    }
    for (uint8_t slot = 0; slot < slots->count; ++slot) {
        uint32_t bytes = file_bytes;
        const uint8_t *const module =
            file != NULL && slot == slots->free ? file : slot == replaced ? NULL : mt_slots_active(slots, slot, &bytes);
        const int32_t found = module == NULL ? MT_OK : open_module(loader, slot, module, bytes);
        status = found != MT_OK ? found : status;
    }
    return status;
}

/* Open the modules in flash; instead of a damaged one, its predecessor of the same name. */
static int32_t open_active(struct mt_loader *loader)
{
    const int32_t status = open_all(loader, NULL, 0);
    int is_again = status != MT_OK;
    while (is_again) {
        is_again = 0;
        for (uint8_t slot = 0; slot < loader->slots.count; ++slot) {
            uint32_t bytes;
            if (!loader->is_open[slot] && mt_slots_active(&loader->slots, slot, &bytes) != NULL) {
                mt_slots_reject(&loader->slots, slot);
                is_again = 1;
            }
        }
        (void)open_all(loader, NULL, 0);
    }
    return status;
}

static const uint8_t *next_key(const struct mt_module_host *host, const uint8_t *key)
{
    return mt_slots_next_key(host->slots, key);
}

/* Replace the keys of signers whose modules in flash name the next one; a module on trial does not count yet. Called
 * whenever one may have come to stay, so that a power loss in between is made up for at the next start. */
static int32_t replace_keys(struct mt_loader *loader)
{
    const uint8_t trial = mt_slots_trial(&loader->slots);
    int32_t status = MT_OK;
    for (uint8_t slot = 0; slot < loader->slots.count && status == MT_OK; ++slot) {
        const struct mt_module_view *const view = &loader->modules[slot].view;
        if (loader->is_open[slot] && slot != trial && view->next_key != NULL) {
            const uint8_t *const signer = mt_module_signer(view->bytes, &loader->host);
            status = signer != NULL ? mt_slots_replace_key(&loader->slots, signer, view->next_key) : MT_OK;
        }
    }
    return status;
}

static void stopped(struct mt_extension *extension, const struct mt_model *model)
{
    struct mt_loader *const loader = (struct mt_loader *)(void *)extension;
    const uint8_t trial = loader->storage != NULL ? mt_slots_trial(&loader->slots) : (uint8_t)MT_SLOTS_NONE;
    if (trial != MT_SLOTS_NONE && model == &loader->modules[trial].model) {
        (void)mt_slots_fail(&loader->slots); /* the host may still use it in this session */
    }
}

#ifdef MT_LINK_KEY
static int32_t draw(struct mt_extension *extension, uint8_t *bytes)
{
    struct mt_loader *const loader = (struct mt_loader *)(void *)extension;
    return loader->storage != NULL ? mt_slots_draw(&loader->slots, bytes) : MT_NOT_SUPPORTED;
}
#endif

int32_t mt_loader_start(struct mt_loader *loader)
{
    loader->extension.execute = execute;
#ifdef MT_LINK_KEY
    loader->extension.draw = draw;
#endif
    loader->extension.stopped = stopped;
    if (loader->storage == NULL) {
        return MT_OK;
    }
    const int32_t status = mt_slots_open(&loader->slots, loader->storage, loader->slot_bytes);
    if (status != MT_OK) {
        loader->storage = NULL;
        return status;
    }
    loader->host.slots = &loader->slots;
    loader->host.next_key = next_key;
    const int32_t opened = open_active(loader);
    const int32_t replaced = replace_keys(loader);
    return opened != MT_OK ? opened : replaced;
}

/* Identify a file: by a part of its contents' hash, and a checksum of its header. */
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

/* Find the place of a file at the end of the RAM. */
static int32_t begin_in_ram(struct mt_loader *loader, const uint8_t *head, const struct mt_module_view *view)
{
    const uintptr_t end = (uintptr_t)loader->host.ram + loader->host.ram_bytes;
    if (view->file_bytes > loader->host.ram_bytes) {
        return MT_NO_MEMORY;
    }
    const uintptr_t begin = (end - view->file_bytes) & ~(uintptr_t)(mt_get_u32(head + MT_MODULE_AT_ALIGNMENT) - 1u);
    uint8_t *const file = (uint8_t *)loader->host.ram + (begin - (uintptr_t)loader->host.ram);
    if (begin < (uintptr_t)loader->host.ram || host_of(loader, loader->used_bytes, head, file).ram_bytes < view->ram_bytes) {
        return MT_NO_MEMORY;
    }
    loader->ram_file = file;
    return MT_OK;
}

/* The slot of the module with a name, from which a delta starts; MT_SLOTS_NONE: none, or no delta is accepted: by the
 * firmware, or while a module is on trial. */
static uint8_t delta_base(const struct mt_loader *loader, uint32_t name)
{
    const uint8_t slot = loader->delta == NULL || loader->storage == NULL ||
                                 mt_slots_trial(&loader->slots) != MT_SLOTS_NONE
                             ? (uint8_t)MT_SLOTS_NONE
                             : mt_slots_replaced(&loader->slots, name);
    return slot != MT_SLOTS_NONE && loader->slots.records[slot]->name == name && loader->is_open[slot]
               ? slot
               : (uint8_t)MT_SLOTS_NONE;
}

/* Begin or continue a delta, or discard it. */
static int32_t begin_delta(struct mt_loader *loader, const uint8_t *head, uint8_t is_delta)
{
    const uint32_t crc = is_delta ? mt_get_u32(head + MT_MODULE_HEAD_BYTES) : 0;
    if (is_delta && loader->is_delta && loader->delta_crc == crc) {
        return MT_OK;
    }
    loader->is_delta = is_delta && loader->there < loader->file_bytes;
    loader->delta_crc = crc;
    loader->taken = 0;
    if (!loader->is_delta) {
        return MT_OK;
    }
    const struct mt_module_view *const old =
        &loader->modules[delta_base(loader, name_of(head + MT_MODULE_AT_NAME))].view;
    return loader->delta->begin(loader, old->bytes, old->file_bytes, head);
}

/* The slot whose module one with this name replaces in flash; MT_SLOTS_NONE: it replaces none. */
static uint8_t replaced_by(const struct mt_loader *loader, uint32_t name)
{
    return loader->storage != NULL ? mt_slots_replaced(&loader->slots, name) : (uint8_t)MT_SLOTS_NONE;
}

static uint32_t least_counter(const struct mt_loader *loader, uint32_t name)
{
    return loader->storage != NULL ? mt_slots_counter(&loader->slots, name) : 0;
}

/* Acknowledge the frame; unlike mt_requests_begin_work, this leaves the reply to LOAD as it is. */
static int32_t acknowledge(struct mt_requests *state, const struct mt_frame *request)
{
    return mt_link_send(&state->link, MT_RUNNING, request->session, request->sequence, 0);
}

/* If the identified file is not that of the module on trial, end the trial: the previous modules are opened again. */
static int32_t end_trial(struct mt_loader *loader, struct mt_requests *state)
{
    const uint8_t trial = mt_slots_trial(&loader->slots);
    if (trial == MT_SLOTS_NONE ||
        memcmp(loader->slots.records[trial]->identity, loader->identity, sizeof loader->identity) == 0) {
        return MT_OK;
    }
    const int32_t status = mt_slots_fail(&loader->slots);
    if (status == MT_OK) {
        mt_slots_reject(&loader->slots, trial);
        state->model = state->config->model;
        state->last.fed_bytes = 0;
        (void)open_active(loader);
    }
    return status;
}

static int32_t on_load(struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply)
{
    const uint8_t *const head = request->payload + 1;
    const uint8_t where = request->payload[0] & (uint8_t)~MT_BY_DELTA;
    const uint8_t is_delta = (request->payload[0] & MT_BY_DELTA) != 0;
    struct mt_module_view view;
    if (request->count != 1u + MT_MODULE_HEAD_BYTES + (is_delta ? 4u : 0)) {
        return MT_BAD_MESSAGE;
    }
    const uint32_t name = name_of(head + MT_MODULE_AT_NAME);
    if ((where != MT_IN_RAM && (where != MT_IN_FLASH || loader->storage == NULL)) ||
        (is_delta && delta_base(loader, name) == MT_SLOTS_NONE)) {
        return MT_NOT_SUPPORTED;
    }
    int32_t status = mt_requests_begin_work(state, request);
    if (status == MT_OK) {
        const uint8_t replaced = where == MT_IN_RAM ? (uint8_t)RAM : replaced_by(loader, name);
        struct mt_module_host host = host_of(loader, used_but(loader, replaced), head, NULL);
        host.least_counter = least_counter(loader, name);
        host.takes_replaced = 0;
        status = mt_module_check_head(head, &host, &view);
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
    if (where == MT_IN_FLASH) { /* a module that is refused before leaves the trial as it is */
        status = view.file_bytes > loader->slots.slot_bytes ? MT_NO_MEMORY : end_trial(loader, state);
        if (status == MT_OK) {
            status = mt_slots_begin(&loader->slots, loader->identity, name, view.file_bytes, &loader->there);
        }
    } else if (loader->there == 0) {
        state->model = state->config->model; /* the module in RAM may be overwritten */
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

int32_t mt_loader_confirm(struct mt_loader *loader)
{
    const int32_t status = loader->storage != NULL ? mt_slots_confirm(&loader->slots) : MT_OK;
    return loader->storage != NULL && status == MT_OK ? replace_keys(loader) : status;
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

/* A wrong delta or a wrong result makes the whole load wrong: it starts again. */
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
    const int is_delta = loader->where != 0 && loader->is_delta; /* its bytes may expand to many sectors */
    int is_long = is_delta;
    if (loader->where == MT_IN_FLASH) {
        const uint32_t sector = loader->storage->sector_bytes;
        is_long |= offset % sector == 0 || offset % sector + count > sector; /* one must be erased */
    }
    const int32_t status = is_long ? acknowledge(state, request) : MT_OK;
    if (status != MT_OK) {
        return status;
    }
    return is_delta ? take_delta(loader, offset, bytes, count) : mt_loader_store(loader, offset, bytes, count);
}

/* Turn the loaded file in the free slot into a module in flash, on trial for `starts` starts; 0: for good. If anything
 * is wrong, the previous modules are opened again. */
static int32_t commit(struct mt_loader *loader, uint32_t starts)
{
    uint32_t bytes;
    const uint8_t *const file = mt_slots_loaded(&loader->slots, &bytes);
    const uint8_t slot = loader->slots.free;
    if (file == NULL) { /* it was already complete, in an active slot */
        if (loader->there != loader->file_bytes) {
            return MT_BAD_ORDER;
        }
        return starts > 0 ? MT_OK : mt_slots_confirm(&loader->slots);
    }
    int32_t status = is_identified(loader, file) ? open_all(loader, file, bytes) : MT_BAD_MODULE;
    const uint8_t *const next = status == MT_OK ? loader->modules[slot].view.next_key : NULL;
    if (next != NULL && mt_slots_next_key(&loader->slots, next) != NULL) {
        status = MT_BAD_SIGNATURE; /* it names a key that was replaced itself */
    }
    if (status == MT_OK) {
        status = mt_slots_commit(&loader->slots, loader->modules[slot].view.counter, starts);
    }
    if (status != MT_OK) {
        (void)mt_slots_drop(&loader->slots);
        (void)open_active(loader);
    }
    return status;
}

static int32_t on_commit(struct mt_loader *loader, struct mt_requests *state, const struct mt_frame *request)
{
    const uint8_t where = loader->where;
    const uint8_t starts = request->count > 0 ? request->payload[0] : 0;
    int32_t status = request->count > 1 ? MT_BAD_MESSAGE : acknowledge(state, request);
    if (status != MT_OK) {
        return status;
    }
    state->model = state->config->model;
    state->last.fed_bytes = 0;
    if (where == MT_IN_FLASH) {
        status = commit(loader, starts);
        status = status == MT_OK ? replace_keys(loader) : status;
    } else if (where != MT_IN_RAM || loader->there != loader->file_bytes) {
        return MT_BAD_ORDER; /* the load may continue */
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

/* The number of an open module's model; 0xFF: the module is not open. */
static uint8_t number_of(const struct mt_loader *loader, const struct mt_requests *state, uint8_t which)
{
    uint8_t number = 0xFFu;
    if (which < MODULES && loader->is_open[which]) {
        do {
            ++number;
        } while (mt_requests_model_at(state, number) != &loader->modules[which].model);
    }
    return number;
}

static int32_t on_room(const struct mt_loader *loader, const struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply)
{
    uint8_t name[MT_MODULE_NAME_BYTES] = {0};
    uint32_t kinds = 0;
    if (request->count >= sizeof name) {
        return MT_BAD_MESSAGE;
    }
    memcpy(name, request->payload, request->count);
    const uint32_t crc = name_of(name);
    const uint8_t replaced = replaced_by(loader, crc);
    const uint32_t used_bytes = used_but(loader, replaced);
    for (const struct mt_module_kind *const *kind = loader->host.kinds; *kind != NULL; ++kind) {
        kinds |= 1u << (*kind)->kind;
    }
    mt_put_u32(reply->bytes, loader->host.machine);
    mt_put_u32(reply->bytes + 4, kinds);
    mt_put_u32(reply->bytes + 8, loader->storage != NULL ? loader->slots.slot_bytes : 0);
    mt_put_u32(reply->bytes + 12, loader->host.ram_bytes - (used_bytes < loader->host.ram_bytes ? used_bytes : loader->host.ram_bytes));
    mt_put_u32(reply->bytes + 16, least_counter(loader, crc));
    reply->bytes[20] = (uint8_t)(loader->storage != NULL ? loader->slots.count - 1u : 0);
    reply->bytes[21] = number_of(loader, state, replaced);
    reply->bytes[22] = number_of(loader, state, delta_base(loader, crc));
    reply->bytes[23] = 0xFFu;
    if (loader->storage != NULL) {
        reply->bytes[23] = number_of(loader, state, mt_slots_trial(&loader->slots));
    }
    reply->count = 24;
    return MT_OK;
}

/* The module whose model this is; NULL: the firmware's own model. */
static const struct mt_module *module_of(const struct mt_loader *loader, const struct mt_model *model, uint8_t *where)
{
    *where = MT_IN_FIRMWARE;
    for (uint8_t which = 0; which < MODULES; ++which) {
        if (model == &loader->modules[which].model) {
            *where = which == RAM ? MT_IN_RAM : MT_IN_FLASH;
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
#ifdef MT_MODULES_READABLE
    const uint32_t end = module->view.file_bytes;
#else
    const uint32_t end = module->view.image_at; /* the code and constants stay in the device */
#endif
    if (offset > end || count > end - offset) {
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
    struct mt_loader *const loader = (struct mt_loader *)(void *)extension; /* the extension is its first member */
    switch (request->type) {
    case MT_LOAD:
        return on_load(loader, state, request, reply);
    case MT_DATA:
        return on_data(loader, state, request);
    case MT_COMMIT:
        return on_commit(loader, state, request);
    case MT_ROOM:
        return on_room(loader, state, request, reply);
    case MT_MODELS:
        return on_models(loader, state, request, reply);
    case MT_FETCH:
        return on_fetch(loader, state, request, reply);
    default:
        return MT_UNKNOWN_MESSAGE;
    }
}
