#include "mt_slots.h"

#include <stddef.h>
#include <string.h>

#include "mt_crc32.h"
#include "mt_status.h"

#define LOAD 0x4C42544Du   /* "MTBL" */
#define COMMIT 0x4342544Du /* "MTBC" */
#define RECORD ((uint32_t)sizeof(struct mt_slot_record))
#define CHUNK MT_STORAGE_CHUNK
#define LEAST_RECORDS 16u  /* in a slot's log */
#define COMMITS 8u         /* of them kept for COMMIT */

typedef char record_is_a_chunk[sizeof(struct mt_slot_record) == MT_STORAGE_CHUNK ? 1 : -1];

static uint32_t log_of(const struct mt_slots *slots, uint8_t slot)
{
    return slot * slots->slot_bytes + slots->capacity;
}

static uint32_t check_of(const struct mt_slot_record *record)
{
    return mt_crc32((const uint8_t *)record, offsetof(struct mt_slot_record, check));
}

static uint8_t target_of(const struct mt_slots *slots)
{
    return slots->active == 0 ? 1 : 0;
}

/* Keep a slot's last good record, and find where the next may be written. The place right behind what is not blank
 * stays free: a cut may have begun there. */
static void read_log(struct mt_slots *slots, uint8_t slot)
{
    const uint8_t *const log = slots->storage->memory + log_of(slots, slot);
    struct mt_slot_record *const last = slots->records + slot;
    for (uint32_t at = 0; at < slots->log_bytes; at += RECORD) {
        struct mt_slot_record record;
        uint8_t blank = 0xFFu;
        for (uint32_t i = at; i < at + RECORD; ++i) {
            blank &= log[i];
        }
        if (blank != 0xFFu) {
            slots->log_at[slot] = at + 2u * RECORD;
        }
        memcpy(&record, log + at, sizeof record);
        if (check_of(&record) == record.check && record.there <= record.bytes && record.bytes <= slots->capacity &&
            last->kind != COMMIT) {
            *last = record;
        }
    }
}

static int is_later(const struct mt_slot_record *one, const struct mt_slot_record *other)
{
    return one->counter != other->counter ? one->counter > other->counter : one->sequence > other->sequence;
}

int32_t mt_slots_open(struct mt_slots *slots, const struct mt_storage *storage)
{
    const uint32_t sector = storage->sector_bytes;
    memset(slots, 0, sizeof *slots);
    slots->storage = storage;
    slots->active = MT_SLOTS_NONE;
    slots->slot_bytes = storage->bytes / 2u;
    slots->log_bytes = (LEAST_RECORDS * RECORD + sector - 1u) / sector * sector;
    slots->capacity = slots->slot_bytes - slots->log_bytes;
    if (sector % CHUNK != 0 || slots->slot_bytes % sector != 0 || slots->slot_bytes <= slots->log_bytes) {
        return MT_NO_MEMORY;
    }
    /* So many sectors that the log has room for a LOAD of all of them, and COMMITs. */
    const uint32_t loads = slots->log_bytes / RECORD - COMMITS;
    slots->step_bytes = (slots->capacity / sector + loads - 1u) / loads * sector;
    for (uint8_t slot = 0; slot < 2; ++slot) {
        read_log(slots, slot);
        if (slots->records[slot].kind == COMMIT &&
            (slots->active == MT_SLOTS_NONE || is_later(slots->records + slot, slots->records + slots->active))) {
            slots->active = slot;
        }
    }
    return MT_OK;
}

const uint8_t *mt_slots_active(const struct mt_slots *slots, uint32_t *bytes)
{
    if (slots->active == MT_SLOTS_NONE) {
        return NULL;
    }
    *bytes = slots->records[slots->active].bytes;
    return slots->storage->memory + slots->active * slots->slot_bytes;
}

void mt_slots_reject(struct mt_slots *slots)
{
    const uint8_t rejected = slots->active;
    if (rejected != MT_SLOTS_NONE) {
        const uint8_t other = target_of(slots);
        slots->records[rejected].kind = 0;
        slots->active = slots->records[other].kind == COMMIT ? other : MT_SLOTS_NONE;
    }
}

uint32_t mt_slots_counter(const struct mt_slots *slots)
{
    uint32_t highest = 0;
    for (uint8_t slot = 0; slot < 2; ++slot) { /* of a COMMIT that was rejected too: `kind` alone is gone then */
        if (slots->records[slot].counter > highest) {
            highest = slots->records[slot].counter;
        }
    }
    return highest;
}

/* Write a record behind the others of a slot. Where a unit turns out to be used, the next places are tried. */
static int32_t append(struct mt_slots *slots, uint8_t slot, struct mt_slot_record *record)
{
    record->check = check_of(record);
    int32_t status = MT_IO;
    while (status != MT_OK && slots->log_at[slot] < slots->log_bytes) {
        status = slots->storage->program(log_of(slots, slot) + slots->log_at[slot], (const uint8_t *)record, RECORD);
        slots->log_at[slot] += RECORD;
    }
    if (status == MT_OK) {
        slots->records[slot] = *record;
    }
    return status;
}

static int32_t erase_log(struct mt_slots *slots, uint8_t slot)
{
    slots->records[slot].kind = 0;
    slots->log_at[slot] = 0;
    for (uint32_t at = 0; at < slots->log_bytes; at += slots->storage->sector_bytes) {
        const int32_t status = slots->storage->erase(log_of(slots, slot) + at);
        if (status != MT_OK) {
            return status;
        }
    }
    return MT_OK;
}

/* Write the active slot's COMMIT once more, as the one that is there may be half-written. With a log that is full of
 * them it is not. */
static void confirm(struct mt_slots *slots)
{
    if (slots->active != MT_SLOTS_NONE && !slots->is_confirmed) {
        (void)append(slots, slots->active, slots->records + slots->active);
        slots->is_confirmed = 1;
    }
}

static int is_of(const struct mt_slot_record *record, const uint8_t *identity, uint32_t bytes)
{
    return record->kind != 0 && record->bytes == bytes && memcmp(record->identity, identity, sizeof record->identity) == 0;
}

int32_t mt_slots_begin(struct mt_slots *slots, const uint8_t identity[MT_SLOTS_IDENTITY_BYTES], uint32_t bytes,
                       uint32_t *there)
{
    const uint8_t target = target_of(slots);
    *there = 0;
    if (bytes == 0 || bytes > slots->capacity) {
        return MT_NO_MEMORY;
    }
    if (slots->active != MT_SLOTS_NONE && is_of(slots->records + slots->active, identity, bytes)) {
        *there = bytes;
        return MT_OK;
    }
    if (!is_of(&slots->load, identity, bytes)) { /* else it goes on in the same power-up */
        struct mt_slot_record load = {.kind = LOAD, .bytes = bytes};
        memcpy(load.identity, identity, sizeof load.identity);
        if (slots->records[target].kind == LOAD && is_of(slots->records + target, identity, bytes)) {
            load.there = slots->records[target].there;
        }
        slots->load.kind = 0;
        confirm(slots);
        int32_t status = erase_log(slots, target);
        if (status == MT_OK) {
            status = append(slots, target, &load);
        }
        if (status != MT_OK) {
            return status;
        }
        slots->load = load;
    }
    *there = slots->load.there;
    return MT_OK;
}

/* Program the last chunk that has come, the file's last with what is behind it blank. */
static int32_t put(struct mt_slots *slots)
{
    const uint32_t at = (slots->load.there - 1u) / CHUNK * CHUNK;
    const uint32_t offset = target_of(slots) * slots->slot_bytes + at;
    int32_t status = MT_OK;
    memset(slots->chunk + (slots->load.there - at), 0xFF, (size_t)(CHUNK - (slots->load.there - at)));
    if (at % slots->storage->sector_bytes == 0) {
        status = slots->storage->erase(offset);
    }
    if (status == MT_OK) {
        status = slots->storage->program(offset, slots->chunk, CHUNK);
    }
    if (status == MT_OK && slots->load.there % slots->step_bytes == 0) {
        (void)append(slots, target_of(slots), &slots->load); /* without it, less is there after a cut */
    }
    return status;
}

int32_t mt_slots_write(struct mt_slots *slots, uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    struct mt_slot_record *const load = &slots->load;
    if (load->kind == 0 || offset != load->there) {
        return MT_BAD_ORDER;
    }
    if (count > load->bytes - offset) {
        return MT_BAD_RANGE;
    }
    while (count-- > 0) {
        slots->chunk[load->there++ % CHUNK] = *bytes++;
        if (load->there % CHUNK == 0 || load->there == load->bytes) {
            const int32_t status = put(slots);
            if (status != MT_OK) {
                load->kind = 0; /* mt_slots_begin goes on with the sectors that a record tells of */
                return status;
            }
        }
    }
    return MT_OK;
}

const uint8_t *mt_slots_loaded(const struct mt_slots *slots, uint32_t *bytes)
{
    const struct mt_slot_record *const load = &slots->load;
    if (load->kind == 0 || load->there != load->bytes) {
        return NULL;
    }
    *bytes = load->bytes;
    return slots->storage->memory + target_of(slots) * slots->slot_bytes;
}

int32_t mt_slots_commit(struct mt_slots *slots, uint32_t counter)
{
    const uint8_t target = target_of(slots);
    struct mt_slot_record *const load = &slots->load;
    if (load->kind == 0 || load->there != load->bytes) {
        return MT_BAD_ORDER;
    }
    load->kind = COMMIT;
    load->counter = counter;
    load->sequence = slots->active == MT_SLOTS_NONE ? 1u : slots->records[slots->active].sequence + 1u;
    const int32_t status = append(slots, target, load);
    load->kind = 0;
    if (status == MT_OK) {
        slots->active = target;
        slots->is_confirmed = 1;
    }
    return status;
}

int32_t mt_slots_drop(struct mt_slots *slots)
{
    if (slots->load.kind == 0) {
        return MT_OK;
    }
    slots->load.kind = 0;
    return erase_log(slots, target_of(slots));
}
