/* libFuzzer: whatever the journal holds, the slots stay within their flash, and a load succeeds or is refused.
 *
 * An input: a number of records (1) with their place in the journal (1), all fields but the checksum, which is added; then
 * calls: what (1), a number (2). */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mt_slots.h"

#define CHECK(condition) ((condition) ? (void)0 : abort())
#define SECTOR_BYTES 1024u
#define SLOT_BYTES 2048u
#define JOURNALS (3u * SLOT_BYTES)
#define FLASH_BYTES (JOURNALS + 2u * MT_SLOTS_JOURNAL_BYTES)
#define FIELDS offsetof(struct mt_slot_record, check)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint8_t flash[FLASH_BYTES] __attribute__((aligned(64)));
static struct mt_slots slots;

static int32_t erase(uint32_t offset)
{
    CHECK(offset % SECTOR_BYTES == 0 && offset < FLASH_BYTES);
    memset(flash + offset, 0xFF, SECTOR_BYTES);
    return MT_OK;
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    CHECK(offset % MT_STORAGE_CHUNK == 0 && offset <= FLASH_BYTES && count <= FLASH_BYTES - offset);
    for (uint32_t i = 0; i < count; ++i) {
        if (flash[offset + i] != 0xFFu) {
            return MT_IO;
        }
    }
    memcpy(flash + offset, bytes, count);
    return MT_OK;
}

static const struct mt_storage storage = {flash, FLASH_BYTES, SECTOR_BYTES, erase, program};

static void look(void)
{
    for (uint8_t slot = 0; slot < slots.count; ++slot) {
        uint32_t bytes = 0;
        const uint8_t *const module = mt_slots_active(&slots, slot, &bytes);
        CHECK(module == NULL || (slot != slots.free && module >= flash && bytes <= JOURNALS - (uint32_t)(module - flash)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const uint8_t key[32] = {1}, next[32] = {2};
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0};
    uint32_t there = 0, file_bytes = 0;
    size_t at = 1;
    memset(flash, 0xFF, sizeof flash);
    for (size_t i = 0; count > 0 && i < bytes[0] && at + 1u + FIELDS <= count; ++i, at += 1u + FIELDS) {
        struct mt_slot_record record;
        memcpy(&record, bytes + at + 1, FIELDS);
        record.check = mt_crc32((const uint8_t *)&record, FIELDS);
        memcpy(flash + JOURNALS + (bytes[at] & 127u) * sizeof record, &record, sizeof record);
    }
    CHECK(mt_slots_open(&slots, &storage, SLOT_BYTES) == MT_OK);
    for (; at + 3u <= count; at += 3u) {
        const uint16_t number = mt_get_u16(bytes + at + 1);
        look();
        switch (bytes[at] % 9u) {
        case 0:
            CHECK(mt_slots_open(&slots, &storage, SLOT_BYTES) == MT_OK);
            there = file_bytes = 0;
            break;
        case 1:
            identity[0] = (uint8_t)number;
            file_bytes = mt_slots_begin(&slots, identity, number & 7u, number, &there) == MT_OK ? number : 0;
            CHECK(there <= number);
            break;
        case 2:
            for (; there < file_bytes && mt_slots_write(&slots, there, bytes, 1) == MT_OK; ++there) {
            }
            break;
        case 3:
            (void)mt_slots_commit(&slots, number, number & 3u);
            break;
        case 4:
            (void)mt_slots_drop(&slots);
            break;
        case 5:
            (void)mt_slots_confirm(&slots);
            break;
        case 6:
            (void)mt_slots_fail(&slots);
            break;
        case 7:
            mt_slots_reject(&slots, (uint8_t)(number % slots.count));
            break;
        default:
            (void)mt_slots_replace_key(&slots, number & 1u ? key : next, number & 1u ? next : key);
            CHECK(mt_slots_next_key(&slots, key) == NULL || mt_slots_next_key(&slots, key) < flash + FLASH_BYTES);
        }
    }
    look();
    return 0;
}
