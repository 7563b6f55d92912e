/* Internal to mtool: applications include mtool.h. */
/* Takes modules over the RPC, into a flash slot or into RAM, and has their models beside the firmware's own.
 * crt/PROTOCOL.md has the messages ("Modules"), mt_slots.h what is kept in flash. */
#ifndef MT_LOADER_H
#define MT_LOADER_H

#include <stdint.h>

#include "mt_module.h"
#include "mt_requests.h"
#include "mt_slots.h"
#include "mtool.h"

/* Where a model is, in MODELS, and where a module goes, in LOAD. */
#define MT_IN_FIRMWARE 0u
#define MT_IN_FLASH 1u
#define MT_IN_RAM 2u
#define MT_BY_DELTA 0x80u /* beside them, in LOAD: what comes is a delta from the module in flash */

struct mt_loader;

/* What decodes a delta, for firmware that takes such. */
struct mt_loader_delta {
    int32_t (*begin)(struct mt_loader *loader, const uint8_t *old, uint32_t old_bytes, const uint8_t *head);
    int32_t (*take)(const uint8_t *bytes, uint32_t count);
};

extern const struct mt_loader_delta mt_loader_delta;

/* A firmware has one, with `host` and `storage` set and zeros else; its `extension` is that of its server's
 * configuration. */
struct mt_loader {
    struct mt_extension extension;      /* first; its `models` are those of the modules */
    struct mt_module_host host;         /* its RAM is for all modules: contexts from its start on, at its end the file
                                         * of the module in RAM. `least_counter` is the loader's own. */
    const struct mt_storage *storage;   /* NULL: modules go into RAM alone */
    uint32_t slot_bytes;                /* of a slot in it, at least: as mt_slots_open takes it */
    const struct mt_loader_delta *delta; /* &mt_loader_delta, or NULL: modules come whole alone */
    struct mt_module modules[MT_SLOTS_MOST + 1u]; /* those of the slots, and that in RAM */
    struct mt_slots slots;
    uint32_t used_bytes;                /* of the RAM, from its start on: by the modules in flash */
    uint8_t *ram_file;                  /* where a file is being loaded to in RAM */
    uint32_t file_bytes;                /* of the file that is being loaded */
    uint32_t there;                     /* of them, what has come, in RAM */
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES]; /* of that file */
    uint8_t is_open[MT_SLOTS_MOST + 1u]; /* of `modules` */
    uint8_t where;                      /* it goes to; 0: nothing is being loaded */
    uint8_t is_delta;                   /* it comes as a delta, */
    uint32_t taken;                     /* how many of its bytes have arrived; */
    uint32_t delta_crc;                 /* which distinguishes it from another */
};

/* Check and open the modules of the active slots, or where one is damaged its predecessor of the same name. Called once, before the server.
 * MT_OK also where there is none; another status is that of what would not open, and the firmware goes on without. */
int32_t mt_loader_start(struct mt_loader *loader);

/* Store the next bytes of the file that is being loaded, `offset` bytes from its start.
 * MT_BAD_ORDER: those before are missing. MT_BAD_RANGE: the file is shorter. */
int32_t mt_loader_store(struct mt_loader *loader, uint32_t offset, const uint8_t *bytes, uint32_t count);

#endif
