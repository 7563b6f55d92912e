/* Internal to mtool: applications include mtool.h. */
/* Accepts modules over RPC, stores them in a flash slot or in RAM, and makes their models available besides the
 * firmware's. crt/PROTOCOL.md has the messages ("Modules"), mt_slots.h the contents of flash. */
#ifndef MT_LOADER_H
#define MT_LOADER_H

#include <stdint.h>

#include "mt_module.h"
#include "mt_requests.h"
#include "mt_slots.h"
#include "mtool.h"

/* The place of a model, in MODELS, and of a new module, in LOAD. */
#define MT_IN_FIRMWARE 0u
#define MT_IN_FLASH 1u
#define MT_IN_RAM 2u
#define MT_BY_DELTA 0x80u /* added to it in LOAD: a delta from the module in flash follows */

struct mt_loader;

/* Decodes deltas, in firmware that accepts them. */
struct mt_loader_delta {
    int32_t (*begin)(struct mt_loader *loader, const uint8_t *old, uint32_t old_bytes, const uint8_t *head);
    int32_t (*take)(const uint8_t *bytes, uint32_t count);
};

extern const struct mt_loader_delta mt_loader_delta;

/* FETCH reads a module's file up to its image; with MT_MODULES_READABLE defined, also its code and constants. */

/* A firmware has one, with `host` and `storage` set and all else zero; its `extension` is that of the server's
 * configuration. */
struct mt_loader {
    struct mt_extension extension;      /* the first member; its `models` are those of the modules */
    struct mt_module_host host;         /* its RAM is for all modules: contexts from the start, and at the end
                                         * the file of the module in RAM. The loader sets `least_counter` and what concerns
                                         * replaced keys. */
    const struct mt_storage *storage;   /* NULL: modules are kept in RAM only */
    uint32_t slot_bytes;                /* the least size of a slot: for mt_slots_open */
    const struct mt_loader_delta *delta; /* &mt_loader_delta, or NULL: deltas are not accepted */
    struct mt_module modules[MT_SLOTS_MOST + 1u]; /* those in the slots, and the one in RAM */
    struct mt_slots slots;
    uint32_t used_bytes;                /* of the RAM, from its start: used by the modules in flash */
    uint8_t *ram_file;                  /* the address of a file that is being loaded into RAM */
    uint32_t file_bytes;                /* of the file that is being loaded */
    uint32_t there;                     /* the part of it that has arrived, in RAM */
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES]; /* of that file */
    uint8_t is_open[MT_SLOTS_MOST + 1u]; /* of `modules` */
    uint8_t where;                      /* its place; 0: nothing is being loaded */
    uint8_t is_delta;                   /* it arrives as a delta */
    uint32_t taken;                     /* the bytes of the delta that have arrived */
    uint32_t delta_crc;                 /* identifies the delta */
};

/* Check and open the modules of the active slots; instead of a damaged one, its predecessor of the same name. Called
 * once, before the server. Returns MT_OK also if there is none; another status is that of a module that did not
 * open, and the firmware continues without it. */
int32_t mt_loader_start(struct mt_loader *loader);

/* Confirm the module on trial, if one is: it stays. An application calls this once the module has proved itself. The
 * status is the storage's. */
int32_t mt_loader_confirm(struct mt_loader *loader);

/* Store the next bytes of the file that is being loaded, `offset` bytes from its start. MT_BAD_ORDER: earlier bytes
 * are missing. MT_BAD_RANGE: the file is shorter. */
int32_t mt_loader_store(struct mt_loader *loader, uint32_t offset, const uint8_t *bytes, uint32_t count);

#endif
