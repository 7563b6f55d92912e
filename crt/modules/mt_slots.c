#include "mt_slots.h"

#include <stddef.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mtool.h"

#ifdef MT_LINK_KEY
#define KIND(letter) ('B' | (letter) << 8)
#define BLANK 0xFFFFu
#else
#define KIND(letter) ('M' | 'T' << 8 | 'B' << 16 | (uint32_t)(letter) << 24)
#define BLANK 0xFFFFFFFFu
#endif
#define HEAD KIND('H')
#define LOAD KIND('L')
#define COMMIT KIND('C')
#define TRIAL KIND('T')
#define KEY KIND('K')
#define RECORD ((uint32_t)sizeof(struct mt_slot_record))
#define CHUNK MT_STORAGE_CHUNK
#define LOADS 8u /* of a file */
#define FREE 16u /* records that a load may write, including those after a power loss */

typedef char record_is_a_chunk[sizeof(struct mt_slot_record) == MT_STORAGE_CHUNK ? 1 : -1];

static mt_slot_check check_of(const struct mt_slot_record *record)
{
#ifdef MT_LINK_KEY
    return mt_siphash(mt_link_key, (const uint8_t *)record, offsetof(struct mt_slot_record, check));
#else
    return mt_crc32((const uint8_t *)record, offsetof(struct mt_slot_record, check));
#endif
}

/* The record at a place of an area; NULL: no valid one. */
static const struct mt_slot_record *record_at(const struct mt_slots *slots, uint32_t area, uint32_t at)
{
    const struct mt_slot_record *const record = (const void *)(slots->storage->memory + area + at);
    return record->kind != BLANK && check_of(record) == record->check ? record : NULL;
}

/* Whether a record is of a module that may be active. */
static int is_module(const struct mt_slot_record *record)
{
    return record->kind == COMMIT || (record->kind == TRIAL && record->step > 0);
}

/* Find the active slots and the free one: a slot without a module, else an earlier module of a name, else the one
 * that was loaded first. */
static void judge(struct mt_slots *slots)
{
    uintptr_t least = UINTPTR_MAX;
    slots->active = 0;
    for (uint8_t slot = 0; slot < slots->count; ++slot) {
        const struct mt_slot_record *const record = slots->records[slot];
        uintptr_t age = 0;
        if (record != NULL && is_module(record)) {
            uint32_t is_last = 1;
            for (uint8_t other = 0; other < slots->count; ++other) {
                const struct mt_slot_record *const later = slots->records[other];
                is_last &= later == NULL || later <= record || !is_module(later) || later->name != record->name;
            }
            age = (uintptr_t)record + is_last * MT_SLOTS_JOURNAL_BYTES; /* newer than all others */
            slots->active |= is_last << slot;
        }
        if (age < least) {
            least = age;
            slots->free = slot;
        }
    }
    slots->active &= ~(1u << slots->free);
}

/* Read an area of the journal, and use it. The place right after the last written one stays free: an interrupted
 * write may have begun there. Returns whether a trial ended or a key was replaced since the area was begun, or a
 * record is damaged: these may be half-written. */
static int read_journal(struct mt_slots *slots, uint32_t area)
{
    int has_ended = 0;
    memset(slots->records, 0, sizeof slots->records);
    slots->area = area;
    slots->at = 0;
    slots->head = 0;
    for (uint32_t at = 0; at < MT_SLOTS_JOURNAL_BYTES; at += RECORD) {
        const struct mt_slot_record *const record = record_at(slots, area, at);
        uint8_t blank = 0xFFu;
        for (uint32_t i = 0; i < RECORD; ++i) {
            blank &= slots->storage->memory[area + at + i];
        }
        if (blank != 0xFFu) {
            slots->at = at + 2u * RECORD;
            has_ended |= record == NULL; /* it may read correctly after the next start */
        }
        if (record == NULL) {
            continue;
        }
        const mt_slot_word slot = record->slot;
        if (record->kind == HEAD) {
            has_ended &= record->counter == slots->head; /* a second HEAD precedes a copy that was not completed */
            slots->head = record->counter;
        } else if (record->kind == KEY) {
            has_ended = 1;
        } else if (slot < slots->count && record->bytes <= slots->slot_bytes && record->there <= record->bytes) {
            const struct mt_slot_record *const before = slots->records[slot];
            const int is_end = record->kind == COMMIT || (record->kind == TRIAL && record->step == 0);
            has_ended |= is_end && before != NULL && before->kind == TRIAL;
            slots->records[slot] = record;
        }
    }
    judge(slots);
    return has_ended;
}

/* The record of an active slot; NULL: it is not active. */
static const struct mt_slot_record *active(const struct mt_slots *slots, uint8_t slot)
{
    return (slots->active >> slot & 1u) != 0 ? slots->records[slot] : NULL;
}

const uint8_t *mt_slots_active(const struct mt_slots *slots, uint8_t slot, uint32_t *bytes)
{
    const struct mt_slot_record *const record = active(slots, slot);
    if (record == NULL) {
        return NULL;
    }
    *bytes = record->bytes;
    return slots->storage->memory + slot * slots->slot_bytes;
}

void mt_slots_reject(struct mt_slots *slots, uint8_t slot)
{
    slots->records[slot] = NULL; /* its counter stays in the journal */
    judge(slots);
}

uint32_t mt_slots_counter(const struct mt_slots *slots, uint32_t name)
{
    uint32_t highest = 0;
    for (uint32_t at = 0; at < MT_SLOTS_JOURNAL_BYTES; at += RECORD) {
        const struct mt_slot_record *const record = record_at(slots, slots->area, at);
        if (record != NULL && record->kind == COMMIT && record->name == name && record->counter > highest) {
            highest = record->counter;
        }
    }
    return highest;
}

const uint8_t *mt_slots_next_key(const struct mt_slots *slots, const uint8_t *key)
{
    for (uint32_t at = 0; at < MT_SLOTS_JOURNAL_BYTES; at += RECORD) {
        const struct mt_slot_record *const record = record_at(slots, slots->area, at);
        if (record != NULL && record->kind == KEY && record->name == mt_get_u32(key) &&
            record->counter == mt_get_u32(key + 4)) {
            return record->identity;
        }
    }
    return NULL;
}

uint8_t mt_slots_replaced(const struct mt_slots *slots, uint32_t name)
{
    const struct mt_slot_record *oldest = NULL;
    uint8_t first = MT_SLOTS_NONE, left = slots->count;
    for (uint8_t slot = 0; slot < slots->count; ++slot) {
        const struct mt_slot_record *const record = active(slots, slot);
        if (record != NULL) {
            --left;
            if (record->name == name) {
                return slot;
            }
            if (oldest == NULL || record < oldest) {
                oldest = record;
                first = slot;
            }
        }
    }
    return left == 1 ? first : MT_SLOTS_NONE;
}

/* Append a record. If a unit turns out to be used, the following places are tried. */
static int32_t append(struct mt_slots *slots, struct mt_slot_record *record)
{
    int32_t status = MT_IO;
    record->check = check_of(record);
    while (status != MT_OK && slots->at < MT_SLOTS_JOURNAL_BYTES) {
        status = slots->storage->program(slots->area + slots->at, (const uint8_t *)record, RECORD);
        slots->at += RECORD;
    }
    return status;
}

/* Whether a record has information that the slots' records lack: a replaced key, or the counter of its name. */
static int is_alone(const struct mt_slots *slots, const struct mt_slot_record *record)
{
    if (record->kind == KEY) {
        return 1;
    }
    for (uint8_t slot = 0; slot < slots->count; ++slot) {
        const struct mt_slot_record *const other = slots->records[slot];
        if (other != NULL && other->kind == COMMIT && other->name == record->name && other->counter >= record->counter) {
            return 0;
        }
    }
    return record->kind == COMMIT;
}

/* Copy the records that still matter to the other area, and use that. */
static int32_t copy_journal(struct mt_slots *slots)
{
    const uint32_t from = slots->area, to = slots->areas - from;
    struct mt_slot_record copy = {.kind = HEAD, .counter = slots->head};
    int32_t status = MT_OK;
    (void)append(slots, &copy); /* the existing copy may be half-written */
    slots->area = to;
    slots->at = 0;
    for (uint32_t at = MT_SLOTS_JOURNAL_BYTES; at > 0 && status == MT_OK;) { /* a half-written HEAD before its records */
        at = (at - 1u) & ~(slots->storage->sector_bytes - 1u);
        status = slots->storage->erase(to + at);
    }
    for (uint32_t at = 0; at < MT_SLOTS_JOURNAL_BYTES && status == MT_OK; at += RECORD) {
        const struct mt_slot_record *const record = record_at(slots, from, at);
        if (record != NULL && record->kind != HEAD) {
            copy = *record;
            if (copy.slot >= slots->count || record != slots->records[copy.slot]) {
                copy.slot = MT_SLOTS_NONE; /* for the counter of its name */
            }
            if (copy.slot != MT_SLOTS_NONE || is_alone(slots, record)) {
                status = append(slots, &copy);
            }
        }
    }
    copy.kind = HEAD;
    copy.counter = slots->head + 1u;
    if (status == MT_OK) {
        status = append(slots, &copy);
    }
    (void)read_journal(slots, status == MT_OK ? to : from);
    return status;
}

uint8_t mt_slots_trial(const struct mt_slots *slots)
{
    for (uint8_t slot = 0; slot < slots->count; ++slot) {
        const struct mt_slot_record *const record = active(slots, slot);
        if (record != NULL && record->kind == TRIAL) {
            return slot;
        }
    }
    return MT_SLOTS_NONE;
}

/* Append another record for the module on trial, if one is: a start was used, or the trial ends. */
static int32_t change(struct mt_slots *slots, mt_slot_word kind, int is_start)
{
    const uint8_t slot = mt_slots_trial(slots);
    const struct mt_slot_record *const trial = slot < slots->count ? slots->records[slot] : NULL;
    if (trial == NULL) {
        return MT_OK;
    }
    struct mt_slot_record record = *trial; /* its copy may be unreadable */
    record.kind = kind;
    record.step = is_start ? record.step - 1u : 0;
    const int32_t status = copy_journal(slots);
    return status == MT_OK ? append(slots, &record) : status;
}

int32_t mt_slots_replace_key(struct mt_slots *slots, const uint8_t *key, const uint8_t *next)
{
    struct mt_slot_record record = {.kind = KEY, .slot = MT_SLOTS_NONE};
    if (memcmp(key, next, MT_SLOTS_IDENTITY_BYTES) == 0 || mt_slots_next_key(slots, key) != NULL ||
        mt_slots_next_key(slots, next) != NULL) {
        return MT_OK;
    }
    record.name = mt_get_u32(key);
    record.counter = mt_get_u32(key + 4);
    memcpy(record.identity, next, sizeof record.identity);
    int32_t status = copy_journal(slots);
    if (status == MT_OK) {
        status = append(slots, &record);
        (void)read_journal(slots, slots->area);
    }
    return status;
}

int32_t mt_slots_open(struct mt_slots *slots, const struct mt_storage *storage, uint32_t slot_bytes)
{
    const uint32_t sector = storage->sector_bytes;
    const uint32_t journal = sector > MT_SLOTS_JOURNAL_BYTES ? sector : MT_SLOTS_JOURNAL_BYTES;
    const uint32_t room = storage->bytes - 2u * journal;
    memset(slots, 0, sizeof *slots);
    if (sector < CHUNK || ((sector | storage->bytes) & (sector - 1u)) != 0 || storage->bytes < 2u * (journal + sector)) {
        return MT_NO_MEMORY;
    }
    const uint32_t count = room / sector / ((slot_bytes - 1u) / sector + 1u); /* whole sectors */
    slots->storage = storage;
    slots->count = (uint8_t)(count < 2u ? 2u : count > MT_SLOTS_MOST ? MT_SLOTS_MOST : count);
    slots->slot_bytes = room / slots->count & ~(sector - 1u);
    slots->areas = 2u * room + journal;
    int has_ended = read_journal(slots, room);
    const uint32_t head = slots->head;
    has_ended |= read_journal(slots, room + journal); /* of either: the HEAD of a copy may be half-written, too */
    if (head > slots->head) {
        (void)read_journal(slots, room);
    }
    const uint8_t trial = mt_slots_trial(slots);
    if (trial != MT_SLOTS_NONE) {
        if (change(slots, TRIAL, 1) != MT_OK) {
            mt_slots_reject(slots, trial); /* starts that can't be counted are over */
        } else {
            (void)read_journal(slots, slots->area);
        }
    } else if (has_ended) {
        (void)copy_journal(slots);
    }
    return MT_OK;
}

int32_t mt_slots_confirm(struct mt_slots *slots)
{
    if (mt_slots_trial(slots) == MT_SLOTS_NONE) {
        return MT_OK;
    }
    const int32_t status = change(slots, COMMIT, 0);
    (void)read_journal(slots, slots->area);
    return status;
}

int32_t mt_slots_fail(struct mt_slots *slots)
{
    return change(slots, TRIAL, 0);
}

static int is_of(const struct mt_slot_record *record, const uint8_t *identity, uint32_t bytes)
{
    return record != NULL && record->kind != 0 && record->bytes == bytes && memcmp(record->identity, identity, sizeof record->identity) == 0;
}

int32_t mt_slots_begin(struct mt_slots *slots, const uint8_t identity[MT_SLOTS_IDENTITY_BYTES], uint32_t name,
                       uint32_t bytes, uint32_t *there)
{
    const uint32_t sector = slots->storage->sector_bytes;
    struct mt_slot_record *const load = &slots->load;
    *there = 0;
    if (bytes == 0 || bytes > slots->slot_bytes) {
        return MT_NO_MEMORY;
    }
    if (!is_of(load, identity, bytes)) { /* otherwise it continues after the same power-up */
        load->kind = 0;
        int32_t status = copy_journal(slots);
        if (status != MT_OK) {
            return status;
        }
        for (uint8_t slot = 0; slot < slots->count; ++slot) {
            if (is_of(active(slots, slot), identity, bytes)) {
                *there = bytes;
                return MT_OK;
            }
        }
        if (mt_slots_trial(slots) != MT_SLOTS_NONE) {
            return MT_BAD_ORDER;
        }
        if (slots->at > MT_SLOTS_JOURNAL_BYTES - FREE * RECORD) {
            return MT_NO_MEMORY;
        }
        const struct mt_slot_record *const record = slots->records[slots->free];
        load->there = 0;
        if (record != NULL && record->kind == LOAD && is_of(record, identity, bytes)) {
            load->there = record->there;
            //@ admit load->there <= bytes; // read_journal has checked it
        }
        load->slot = slots->free;
        load->bytes = bytes;
        load->name = name;
        load->step = (bytes / LOADS | (sector - 1u)) + 1u;
        memcpy(load->identity, identity, sizeof load->identity);
        load->kind = LOAD;
        status = append(slots, load);
        (void)read_journal(slots, slots->area);
        if (status != MT_OK) {
            load->kind = 0;
            return status;
        }
    }
    *there = load->there;
    return MT_OK;
}

/* Program the last received chunk; the rest of the file's last one stays blank. */
static int32_t put(struct mt_slots *slots)
{
    const uint32_t at = (slots->load.there - 1u) / CHUNK * CHUNK;
    const uint32_t offset = slots->load.slot * slots->slot_bytes + at;
    int32_t status = MT_OK;
    memset(slots->chunk + (slots->load.there - at), 0xFF, (size_t)(CHUNK - (slots->load.there - at)));
    if ((at & (slots->storage->sector_bytes - 1u)) == 0) {
        status = slots->storage->erase(offset);
    }
    if (status == MT_OK) {
        status = slots->storage->program(offset, slots->chunk, CHUNK);
    }
    if (status == MT_OK && slots->load.there % slots->load.step == 0) {
        (void)append(slots, &slots->load); /* without it, less is found after a power loss */
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
                load->kind = 0; /* mt_slots_begin continues with the sectors of this record */
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
    return slots->storage->memory + load->slot * slots->slot_bytes;
}

int32_t mt_slots_commit(struct mt_slots *slots, uint32_t counter, uint32_t starts)
{
    struct mt_slot_record *const load = &slots->load;
    if (load->kind == 0 || load->there != load->bytes) {
        return MT_BAD_ORDER;
    }
    load->kind = starts > 0 ? TRIAL : COMMIT;
    load->counter = counter;
    load->step = starts + 1u; /* each start takes one off before it uses the module */
    const int32_t status = append(slots, load);
    load->kind = 0;
    (void)read_journal(slots, slots->area);
    return status;
}

int32_t mt_slots_drop(struct mt_slots *slots)
{
    if (slots->load.kind == 0) {
        return MT_OK;
    }
    slots->load.there = 0;
    const int32_t status = append(slots, &slots->load);
    slots->load.kind = 0;
    return status;
}

#ifdef MT_LINK_KEY
int32_t mt_slots_draw(struct mt_slots *slots, uint8_t *bytes)
{
    const int32_t status = slots->drawn == 0 ? copy_journal(slots) : MT_OK;
    if (status == MT_OK) {
        mt_put_u32(bytes, slots->head);
        mt_put_u32(bytes + 4, ++slots->drawn);
    }
    return status;
}
#endif
