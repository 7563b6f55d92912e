/* Internal to mtool: applications include mtool.h. */
/* Slots for modules in memory that survives a reset, and a journal that says what is in them. One slot is always free:
 * a load goes into it, and becomes active with the one record that is written last. Power that is lost at any byte
 * leaves what was there.
 *
 * The storage is slots of one size, then the journal in two areas of which one is in use. Its records have a checksum;
 * a later one has precedence:
 *
 *   LOAD    the number of bytes of the file with this identity in this slot: a load that was cut off continues there
 *   COMMIT  the module in this slot is whole, and was checked; its name and counter
 *   HEAD    the records before are all of the journal
 *
 * A slot is active if it has a COMMIT that is the last of its name, and is not the free slot: one without a COMMIT, or
 * with an earlier module of a name, or the one that was loaded first. The highest counter of each name stays in the
 * journal, whatever becomes of the slots.
 *
 * What a cut leaves can be worse than half a record: bits that read one way now and another way after the next reset.
 * So nothing is ever programmed where a cut may have left something, sectors are erased before a load goes on, and
 * before each load the journal is copied to the other area, HEAD last. */
#ifndef MT_SLOTS_H
#define MT_SLOTS_H

#include <stdint.h>

#include "mtool.h"

#ifndef MT_SLOTS_MOST
#define MT_SLOTS_MOST 8u            /* of a storage, at least 2: one more than the models that it keeps */
#endif
#define MT_SLOTS_NONE 0xFFu         /* in place of a slot's number */
#define MT_SLOTS_IDENTITY_BYTES 32u /* what tells one file from another */
#define MT_SLOTS_JOURNAL_BYTES 4096u /* of an area, at least; it ends with a sector */

/* A record, as it stands in the storage. */
struct mt_slot_record {
    uint32_t kind;
    uint32_t slot;
    uint32_t bytes;     /* of the file */
    uint32_t there;     /* of them, in the slot */
    uint32_t name;      /* of the model: its CRC-32 */
    uint32_t counter;   /* the module's; of HEAD: one more than that of the other area */
    uint32_t step;      /* bytes between two LOADs of a file */
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES];
    uint32_t check;     /* CRC-32 of all before */
};

struct mt_slots {
    const struct mt_storage *storage;
    uint32_t slot_bytes;                /* of a slot, and of the largest module */
    uint32_t area;                      /* of the journal, which is in use: its place in the storage */
    uint32_t areas;                     /* the places of both, added */
    uint32_t at;                        /* where the next record is written, from the area's start */
    uint32_t head;                      /* the counter of its HEAD; 0: it has none */
    const struct mt_slot_record *records[MT_SLOTS_MOST]; /* the last LOAD or COMMIT of each slot, in the storage, or NULL */
    struct mt_slot_record load;         /* what goes into the free slot; kind 0: nothing since the reset */
    uint32_t active;                    /* slots, a bit each */
    uint8_t free;                       /* the slot that a load goes into */
    uint8_t count;                      /* of slots */
    uint8_t chunk[MT_STORAGE_CHUNK];    /* the last bytes of the load that fill none yet */
};

/* Find what is in the slots; called once, at the start. All of the storage is divided into as many of at least
 * `slot_bytes` as there is room for, at most MT_SLOTS_MOST; into two, where there is less. MT_NO_MEMORY: the storage is too small, or its
 * sizes don't fit together. */
int32_t mt_slots_open(struct mt_slots *slots, const struct mt_storage *storage, uint32_t slot_bytes);

/* Return the module in an active slot and the bytes that the record says it has; NULL: the slot is not active. */
const uint8_t *mt_slots_active(const struct mt_slots *slots, uint8_t slot, uint32_t *bytes);

/* An active slot's module turns out to be damaged: its predecessor of the same name is active, if that is still there. */
void mt_slots_reject(struct mt_slots *slots, uint8_t slot);

/* The least counter that a new module may have: the highest that a module of its name has had. */
uint32_t mt_slots_counter(const struct mt_slots *slots, uint32_t name);

/* The active slot whose module a new one replaces: that of its name, or the first loaded where no slot is left for
 * another; MT_SLOTS_NONE: it replaces none. */
uint8_t mt_slots_replaced(const struct mt_slots *slots, uint32_t name);

/* Begin to load a file of `bytes` bytes into the free slot, or go on with it: *there says how many of them the device
 * has. All of them: nothing is left to do but mt_slots_commit, or it is active already.
 * MT_NO_MEMORY: it does not fit, or there is no room for the counter of one more name. MT_IO and others: the storage's. */
int32_t mt_slots_begin(struct mt_slots *slots, const uint8_t identity[MT_SLOTS_IDENTITY_BYTES], uint32_t name,
                       uint32_t bytes, uint32_t *there);

/* Write the next `count` bytes, which are those `offset` bytes from the file's start.
 * MT_BAD_ORDER: no load has begun, or those before are missing. MT_BAD_RANGE: the file is shorter. */
int32_t mt_slots_write(struct mt_slots *slots, uint32_t offset, const uint8_t *bytes, uint32_t count);

/* Return what has been loaded, to check it; NULL: it is not whole. */
const uint8_t *mt_slots_loaded(const struct mt_slots *slots, uint32_t *bytes);

/* Make what has been loaded, and was checked, active. MT_BAD_ORDER: it is not whole. */
int32_t mt_slots_commit(struct mt_slots *slots, uint32_t counter);

/* Forget what has been loaded: it is damaged. */
int32_t mt_slots_drop(struct mt_slots *slots);

#endif
