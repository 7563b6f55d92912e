/* Internal to mtool: applications include mtool.h. */
/* Slots for modules in memory that survives a reset, and a journal of their contents. One slot is always free:
 * a load goes into it, and becomes active with a single record that is written last. If power is lost at any byte, the
 * previous modules remain.
 *
 * The storage has slots of one size, then the journal in two areas, one of them in use. Its records have a checksum, or
 * with a link key a MAC; later records take precedence:
 *
 *   LOAD    the number of bytes of the file with this identity in this slot: an interrupted load continues there
 *   COMMIT  the module in this slot is complete and was checked; its name and counter
 *   TRIAL   the same, but the module is on trial; the number of starts that are left. The last one of a slot counts;
 *           COMMIT follows when the module is confirmed
 *   KEY     this key (instead of an identity) has replaced the one with these first 8 bytes (name, counter); for good
 *   HEAD    the preceding records are the whole journal
 *
 * A slot is active if it has the last COMMIT of its name, or a TRIAL with starts left, and is not the free slot. The
 * free slot has no COMMIT, or an earlier module of a name, or the module that was loaded first. The highest counter of
 * each name stays in the journal, whatever happens to the slots; a module on trial does not raise it.
 *
 * At most one module is on trial, and nothing is loaded meanwhile: when the trial ends without a COMMIT, the module
 * that it replaced, in the then free slot, is active again.
 *
 * A power loss can leave worse than half a record: bits that read differently after the next reset.
 * So nothing is ever programmed where a power loss may have left something, sectors are erased before a load continues,
 * and before each load the journal is copied to the other area, HEAD last. */
#ifndef MT_SLOTS_H
#define MT_SLOTS_H

#include <stdint.h>

#include "mt_siphash.h"
#include "mtool.h"

#ifndef MT_SLOTS_MOST
#define MT_SLOTS_MOST 8u            /* slots of a storage, at least 2: one more than the models that it keeps */
#endif
#define MT_SLOTS_NONE 0xFFu         /* instead of a slot's number */
#define MT_SLOTS_IDENTITY_BYTES 32u /* of a file's identity */
#define MT_SLOTS_JOURNAL_BYTES 4096u /* the least size of an area; it ends with a sector */

/* A record's check is its MAC under the link key, or its CRC-32. */
#ifdef MT_LINK_KEY
typedef uint64_t mt_slot_check;
typedef uint16_t mt_slot_word;
#else
typedef uint32_t mt_slot_check;
typedef uint32_t mt_slot_word;
#endif

/* A record in the storage: 64 bytes. */
struct mt_slot_record {
    mt_slot_word kind;
    mt_slot_word slot;
    uint32_t bytes;     /* of the file */
    uint32_t there;     /* of the file, in the slot */
    uint32_t name;      /* of the model: its CRC-32 */
    uint32_t counter;   /* the module's; of HEAD: one more than that of the other area */
    uint32_t step;      /* LOAD: bytes between two of a file; TRIAL: starts left, with the current one */
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES];
    mt_slot_check check; /* of the fields before it */
};

struct mt_slots {
    const struct mt_storage *storage;
    uint32_t slot_bytes;                /* of a slot, and of the largest module */
    uint32_t area;                      /* the offset of the journal area in use */
    uint32_t areas;                     /* the sum of both areas' offsets */
    uint32_t at;                        /* where the next record is written, from the area's start */
    uint32_t head;                      /* the counter of its HEAD; 0: it has none */
    const struct mt_slot_record *records[MT_SLOTS_MOST]; /* the last LOAD or COMMIT of each slot, in the storage, or NULL */
    struct mt_slot_record load;         /* the load into the free slot; kind 0: none since the reset */
    uint32_t active;                    /* active slots, one bit each */
#ifdef MT_LINK_KEY
    uint32_t drawn;                     /* numbers drawn since the reset */
#endif
    uint8_t free;                       /* the slot for the next load */
    uint8_t count;                      /* the number of slots */
    uint8_t chunk[MT_STORAGE_CHUNK];    /* the load's last bytes, less than a chunk */
};

/* Read the journal; called once, at the start, which a module on trial has then used. The whole storage is divided into
 * slots of at least `slot_bytes`, at most MT_SLOTS_MOST; into two if it is too small for that. MT_NO_MEMORY: the storage
 * is too small, or its sizes are inconsistent. */
/*@ requires \valid(slots) && \valid_read(storage);
    requires \valid_read(storage->memory + (0 .. storage->bytes - 1)); */
int32_t mt_slots_open(struct mt_slots *slots, const struct mt_storage *storage, uint32_t slot_bytes);

/* Return the module in an active slot and its size from the record; NULL: the slot is not active. */
/*@ requires \valid_read(slots) && slot < slots->count; */
const uint8_t *mt_slots_active(const struct mt_slots *slots, uint8_t slot, uint32_t *bytes);

/* Reject an active slot's damaged module: its predecessor of the same name becomes active, if it is still stored. */
/*@ requires \valid(slots) && slot < slots->count; */
void mt_slots_reject(struct mt_slots *slots, uint8_t slot);

/* Return the slot of the module on trial; MT_SLOTS_NONE: none is. */
uint8_t mt_slots_trial(const struct mt_slots *slots);

/* Confirm the module on trial, if one is: it stays. The status is the storage's. */
int32_t mt_slots_confirm(struct mt_slots *slots);

/* The module on trial has failed, if one is: from the next start on, or when its slot is rejected, its predecessor is
 * active. The status is the storage's. */
int32_t mt_slots_fail(struct mt_slots *slots);

/* Return the lowest counter that a new module may have: the highest one of its name so far. */
uint32_t mt_slots_counter(const struct mt_slots *slots, uint32_t name);

/* Return the key that has replaced a key, 32 bytes; NULL: none has. */
const uint8_t *mt_slots_next_key(const struct mt_slots *slots, const uint8_t *key);

/* Replace a key by another, for good, if neither was replaced before. The status is the storage's. */
int32_t mt_slots_replace_key(struct mt_slots *slots, const uint8_t *key, const uint8_t *next);

/* Return the active slot whose module a new one replaces: that of its name, or the first loaded if no slot is left;
 * MT_SLOTS_NONE: it replaces none. */
uint8_t mt_slots_replaced(const struct mt_slots *slots, uint32_t name);

/* Begin to load a file of `bytes` bytes into the free slot, or continue: *there is the number of bytes that the device
 * already has. If it has all, only mt_slots_commit is left to do, or the module is already active.
 * MT_BAD_ORDER: another module is on trial. MT_NO_MEMORY: it does not fit, or the journal has no space for another
 * name's counter. MT_IO and others: the storage's. */
int32_t mt_slots_begin(struct mt_slots *slots, const uint8_t identity[MT_SLOTS_IDENTITY_BYTES], uint32_t name,
                       uint32_t bytes, uint32_t *there);

/* Write the next `count` bytes, `offset` bytes from the file's start.
 * MT_BAD_ORDER: no load was started, or earlier bytes are missing. MT_BAD_RANGE: the file is shorter. */
/*@ requires \valid(slots) && \valid_read(bytes + (0 .. count - 1)); */
int32_t mt_slots_write(struct mt_slots *slots, uint32_t offset, const uint8_t *bytes, uint32_t count);

/* Return the loaded file, to check it; NULL: it is incomplete. */
const uint8_t *mt_slots_loaded(const struct mt_slots *slots, uint32_t *bytes);

/* Activate the loaded and checked module, on trial for `starts` starts after this one; 0: for good. MT_BAD_ORDER: it is
 * incomplete. */
int32_t mt_slots_commit(struct mt_slots *slots, uint32_t counter, uint32_t starts);

/* Discard the loaded file, as it is damaged. */
int32_t mt_slots_drop(struct mt_slots *slots);

#ifdef MT_LINK_KEY
/* Write 8 bytes that were never written before: HEAD's counter, which the first call after a reset raises by copying
 * the journal, and the number of the call. The status is the storage's. */
int32_t mt_slots_draw(struct mt_slots *slots, uint8_t *bytes);
#endif

#endif
