/* Whatever the flash contains, and whatever its driver returns, all functions access only the storage and their own
 * memory, and erase and program only inside it. The storage has four sectors for slots: two slots, three or four. */
#include "../modules/mt_slots.c"

#include "mt_prove.h"

#define SECTOR MT_STORAGE_CHUNK
#define SLOT (2u * SECTOR)
#define BYTES (2u * SLOT + 2u * MT_SLOTS_JOURNAL_BYTES)

static uint8_t memory[BYTES];
static struct mt_slots slots;

static int32_t erase(uint32_t offset)
{
    //@ assert offset <= BYTES - SECTOR;
    memory[offset] = 0xFFu;
    any_bytes(memory, sizeof memory);
    return (int32_t)any(0, 31);
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    //@ assert count == MT_STORAGE_CHUNK && offset <= BYTES - MT_STORAGE_CHUNK;
    use_bytes(bytes, count);
    any_bytes(memory, sizeof memory);
    return (int32_t)any(0, 31);
}

static const struct mt_storage storage = {memory, BYTES, SECTOR, erase, program};

static void look(const uint8_t *found, uint32_t bytes)
{
    if (found != NULL) {
        //@ assert bytes <= SLOT;
        use_bytes(found, bytes);
    }
}

/* The next byte of a load of which `there` bytes are there, or one out of order. */
static void load(uint32_t there, uint32_t offset)
{
    uint8_t file[1];
    any_bytes(file, sizeof file);
    any_bytes(&slots.load, sizeof slots.load);
    any_bytes(slots.chunk, sizeof slots.chunk);
    slots.load.there = there;
    slots.load.bytes = any(there, SLOT);
    slots.load.slot = any(0, 1);
    slots.load.step = any(1, SLOT);
    slots.at = any(0, 2u * MT_SLOTS_JOURNAL_BYTES) & ~(SECTOR - 1u);
    if (any(0, 1)) {
        (void)mt_slots_write(&slots, offset, file, 1);
    } else {
        (void)mt_slots_write(&slots, offset, file, 0);
    }
}

/* Each function, from what a journal of any contents leads to. */
static void start(uint32_t slot_bytes)
{
    uint8_t key[MT_SLOTS_IDENTITY_BYTES], next[MT_SLOTS_IDENTITY_BYTES];
    uint32_t bytes = 0;
    any_bytes(memory, sizeof memory);
    any_bytes(key, sizeof key);
    any_bytes(next, sizeof next);
    if (mt_slots_open(&slots, &storage, slot_bytes) != MT_OK) {
        return;
    }
    for (uint8_t slot = 0; slot < slots.count; ++slot) {
        const uint8_t *const found = mt_slots_active(&slots, slot, &bytes);
        if (found != NULL) {
            use_bytes(found, slots.slot_bytes);
        }
    }
    (void)mt_slots_trial(&slots);
    (void)mt_slots_replaced(&slots, any(0, UINT32_MAX));
    (void)mt_slots_counter(&slots, any(0, UINT32_MAX));
    (void)mt_slots_next_key(&slots, key);
    switch (any(0, 4)) {
    case 0:
        mt_slots_reject(&slots, (uint8_t)any(0, slots.count - 1u));
        break;
    case 1:
        (void)mt_slots_confirm(&slots);
        break;
    case 2:
        (void)mt_slots_fail(&slots);
        break;
    case 3:
        (void)mt_slots_replace_key(&slots, key, next);
        break;
    default:
        slots.load.kind = 0;
        if (mt_slots_begin(&slots, key, any(0, UINT32_MAX), any(0, UINT32_MAX), &bytes) == MT_OK && slots.load.kind == LOAD) {
            //@ assert slots.load.slot < slots.count;
            //@ assert slots.load.there <= slots.slot_bytes;
        }
    }
}

int main(void)
{
    uint32_t bytes = 0;
#ifndef MT_LINK_KEY
    start(2u * SECTOR);
    start(SECTOR + 1u);
    start(SECTOR);
#endif
    for (uint32_t area = 0; area < 2; ++area) {
        slots.storage = &storage;
        slots.count = 2;
        slots.slot_bytes = SLOT;
        slots.areas = 4u * SLOT + MT_SLOTS_JOURNAL_BYTES;
        any_bytes(memory, sizeof memory);
        (void)read_journal(&slots, 2u * SLOT + area * MT_SLOTS_JOURNAL_BYTES);
        (void)mt_slots_counter(&slots, any(0, UINT32_MAX));
        for (uint32_t there = 0; there <= SLOT; ++there) {
            load(there, there);
            load(there, any(0, UINT32_MAX));
        }
        look(mt_slots_loaded(&slots, &bytes), bytes);
        if (any(0, 1)) {
            (void)mt_slots_commit(&slots, any(0, UINT32_MAX), any(0, 255));
        } else {
            (void)mt_slots_drop(&slots);
        }
    }
    return 0;
}
