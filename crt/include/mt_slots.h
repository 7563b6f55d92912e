/* Two slots for modules, A and B, in memory that survives a reset. One of them is active; a load goes into the other,
 * and becomes active with the one record that is written last. Power that is lost at any byte leaves the old one.
 *
 * A slot is half of the storage: the module from its start on, and in its last sectors a log of records, each with a
 * checksum:
 *
 *   LOAD    so many bytes of the file with this identity are there: a load that was cut off goes on behind them
 *   COMMIT  the file is whole, and was checked; its counter
 *
 * The active slot is the one with a COMMIT that has the highest counter, the later one of two that are equal.
 *
 * What a cut leaves can be worse than half a record: bits that read one way now and another way after the next reset.
 * So nothing is ever programmed where a cut may have left something, sectors are erased anew before a load goes on, and
 * before the slot that is not active is erased, the COMMIT of the active one is written once more: it may be one that a
 * cut has left half-written, and read well by chance. */
#ifndef MT_SLOTS_H
#define MT_SLOTS_H

#include <stdint.h>

#include "mt_storage.h"

#define MT_SLOTS_NONE 2u            /* in place of a slot's number: neither */
#define MT_SLOTS_IDENTITY_BYTES 32u /* what tells one file from another */

/* A record, as it stands in the storage. */
struct mt_slot_record {
    uint32_t kind;
    uint32_t bytes;     /* of the file */
    uint32_t there;     /* of them, in the slot */
    uint32_t counter;   /* of COMMIT: the module's */
    uint32_t sequence;  /* of COMMIT: one more than that of the slot which was active */
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES];
    uint8_t reserved[8]; /* zeros */
    uint32_t check;     /* CRC-32 of all before */
};

struct mt_slots {
    const struct mt_storage *storage;
    uint32_t slot_bytes, capacity, log_bytes; /* of a slot: of it, of a module in it, of its log behind the module */
    uint32_t step_bytes;                /* of a load, between two LOAD records */
    struct mt_slot_record records[2];   /* the last good one of each slot; kind 0: it has none */
    struct mt_slot_record load;         /* what goes into the slot that is not active; kind 0: nothing since the reset */
    uint32_t log_at[2];                 /* where the next record of a slot is written, from its log's start */
    uint8_t active;                     /* 0, 1 or MT_SLOTS_NONE */
    uint8_t is_confirmed;               /* since the reset, the active slot's COMMIT was written once more */
    uint8_t chunk[MT_STORAGE_CHUNK];    /* the last bytes of the load that fill none yet */
};

/* Find the active slot; called once, at the start. MT_NO_MEMORY: the storage is too small for two slots, or its sizes
 * don't fit together. */
int32_t mt_slots_open(struct mt_slots *slots, const struct mt_storage *storage);

/* Return the module in the active slot and the bytes that the record says it has; NULL: there is none. */
const uint8_t *mt_slots_active(const struct mt_slots *slots, uint32_t *bytes);

/* The active slot's module is no good after all: take the other one, if that is committed. */
void mt_slots_reject(struct mt_slots *slots);

/* The least counter that a new module may have: the highest that a slot has. */
uint32_t mt_slots_counter(const struct mt_slots *slots);

/* Begin to load a file of `bytes` bytes into the slot that is not active, or go on with it: *there tells how many of them
 * the device has. All of them: nothing is left to do but mt_slots_commit, or it is the active one already.
 * MT_NO_MEMORY: it does not fit. MT_IO and others: the storage's. */
int32_t mt_slots_begin(struct mt_slots *slots, const uint8_t identity[MT_SLOTS_IDENTITY_BYTES], uint32_t bytes,
                       uint32_t *there);

/* Write the next `count` bytes, which are those `offset` bytes from the file's start.
 * MT_BAD_ORDER: no load has begun, or those before are missing. MT_BAD_RANGE: the file has not so many. */
int32_t mt_slots_write(struct mt_slots *slots, uint32_t offset, const uint8_t *bytes, uint32_t count);

/* Return what has been loaded, to check it; NULL: it is not whole. */
const uint8_t *mt_slots_loaded(const struct mt_slots *slots, uint32_t *bytes);

/* Make what has been loaded, and was checked, the active one. MT_BAD_ORDER: it is not whole. */
int32_t mt_slots_commit(struct mt_slots *slots, uint32_t counter);

/* Forget what has been loaded: it is no good. */
int32_t mt_slots_drop(struct mt_slots *slots);

#endif
