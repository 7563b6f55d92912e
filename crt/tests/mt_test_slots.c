/* Modules are loaded into two slots of a simulated NOR flash whose power is cut at every unit that is programmed and every
 * sector that is erased, over and over, and after each cut one good module is there: the old one, or the new one once its
 * COMMIT was begun.
 *
 *     mt_test_slots SEED ROUNDS      prints how many cuts there were, and exits with 0 if all is well
 *
 * What a cut leaves of a unit or a sector are undefined bits, some of which read another way after each power-up. To
 * program a unit that was not erased since is an error: of the flash where a cut has left something there, else ours. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_slots.h"
#include "mt_status.h"

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (seed %u, %u cuts)\n", __FILE__, __LINE__, #condition, (unsigned)seed,     \
                    (unsigned)cuts);                                                                              \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

#define MOST_BYTES 65536u
#define MOST_FILE 3000u
#define FOREVER 0xFFFFFFFFu

enum { ERASED, PROGRAMMED, TORN };

static uint8_t flash[MOST_BYTES];
static uint8_t weak[MOST_BYTES];    /* bits of it that are not the same after each power-up */
static uint8_t states[MOST_BYTES];  /* of each byte's unit */
static struct mt_storage storage;
static uint32_t unit_bytes; /* what this flash programs at once */
static struct mt_slots slots;
static uint32_t seed, cuts, resumed;
static uint32_t writes_left;        /* until the power is cut */
static jmp_buf power;

static uint32_t random_below(uint32_t end)
{
    static uint64_t state = 0;
    if (state == 0) {
        state = 0x9E3779B97F4A7C15u ^ seed;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % end;
}

static void cut_power(void)
{
    ++cuts;
    longjmp(power, 1);
}

/* Leave what a cut leaves where bytes were to become `target`: as they were, as they will be, nearly so, or in
 * between. */
static void tear(uint32_t offset, const uint8_t *target, uint32_t count)
{
    const uint32_t how = random_below(5);
    const uint32_t unsure = random_below(count);
    for (uint32_t i = 0; i < count; ++i) {
        const uint8_t wanted = target != NULL ? target[i] : 0xFFu;
        const uint8_t before = flash[offset + i];
        const uint8_t changing = (uint8_t)(before ^ wanted);
        const uint8_t taken = how == 0 ? 0 : how < 3 ? 0xFFu : (uint8_t)random_below(256);
        flash[offset + i] = (uint8_t)(before ^ (changing & taken));
        weak[offset + i] = how == 4 || (how == 2 && i == unsure) ? (uint8_t)(changing & random_below(256)) : 0;
        states[offset + i] = TORN;
    }
}

static int32_t erase(uint32_t offset)
{
    CHECK(offset % storage.sector_bytes == 0 && offset < storage.bytes);
    if (writes_left-- == 0) {
        tear(offset, NULL, storage.sector_bytes);
        cut_power();
    }
    memset(flash + offset, 0xFF, storage.sector_bytes);
    memset(weak + offset, 0, storage.sector_bytes);
    memset(states + offset, ERASED, storage.sector_bytes);
    return MT_OK;
}

static int32_t program(uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    const uint32_t unit = unit_bytes;
    CHECK(offset % MT_STORAGE_CHUNK == 0 && count % MT_STORAGE_CHUNK == 0 && offset <= storage.bytes && count <= storage.bytes - offset);
    for (uint32_t at = 0; at < count; at += unit) {
        CHECK(states[offset + at] != PROGRAMMED);
        if (states[offset + at] == TORN) {
            return MT_IO; /* flash with error correction notices that a cut has left something */
        }
        if (writes_left-- == 0) {
            tear(offset + at, bytes + at, unit);
            cut_power();
        }
        memcpy(flash + offset + at, bytes + at, unit);
        memset(states + offset + at, PROGRAMMED, unit);
    }
    return MT_OK;
}

/* A file: its counter, and bytes that follow from it. Two in a row may have the same one. */
struct file {
    uint32_t counter;
    uint32_t number;
    uint32_t bytes;
};

static uint8_t byte_of(const struct file *file, uint32_t at)
{
    return at % 97u < 9u ? 0xFFu : (uint8_t)(file->number * 31u + at * 7u + (at >> 8));
}

static void identity_of(const struct file *file, uint8_t *identity)
{
    memset(identity, 0, MT_SLOTS_IDENTITY_BYTES);
    memcpy(identity, &file->number, sizeof file->number);
}

static int is_in(const uint8_t *module, uint32_t bytes, const struct file *file)
{
    int same = module != NULL && bytes == file->bytes;
    for (uint32_t i = 0; same && i < bytes; ++i) {
        same = module[i] == byte_of(file, i);
    }
    return same;
}

static void power_up(void)
{
    for (uint32_t i = 0; i < storage.bytes; ++i) {
        if (weak[i] != 0) {
            flash[i] = (uint8_t)(flash[i] ^ (weak[i] & random_below(256)));
        }
    }
    CHECK(mt_slots_open(&slots, &storage) == MT_OK);
    CHECK(((uintptr_t)slots.storage->memory & 15u) == 0);
}

static void load(const struct file *file)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES], piece[200];
    uint32_t there = 0, bytes = 0;
    identity_of(file, identity);
    CHECK(mt_slots_begin(&slots, identity, file->bytes, &there) == MT_OK);
    resumed += there > 0;
    const uint8_t *const active = mt_slots_active(&slots, &bytes);
    if (there == file->bytes && is_in(active, bytes, file)) {
        return;
    }
    while (there < file->bytes) {
        uint32_t count = 1u + random_below(sizeof piece);
        count = count < file->bytes - there ? count : file->bytes - there;
        for (uint32_t i = 0; i < count; ++i) {
            piece[i] = byte_of(file, there + i);
        }
        CHECK(mt_slots_loaded(&slots, &bytes) == NULL);
        CHECK(mt_slots_write(&slots, there + 1u, piece, 1) == MT_BAD_ORDER);
        CHECK(mt_slots_write(&slots, there, piece, count) == MT_OK);
        there += count;
    }
    CHECK(mt_slots_write(&slots, there, piece, 1) == MT_BAD_RANGE);
    const uint8_t *const loaded = mt_slots_loaded(&slots, &bytes);
    CHECK(is_in(loaded, bytes, file)); /* what was resumed is right, too */
    CHECK(file->counter >= mt_slots_counter(&slots));
    CHECK(mt_slots_commit(&slots, file->counter) == MT_OK);
}

static int is_active(const struct file *file)
{
    uint32_t bytes = 0;
    const uint8_t *const module = mt_slots_active(&slots, &bytes);
    return file->bytes == 0 ? module == NULL : is_in(module, bytes, file);
}

/* Load `next` where `old` is, with the power cut at the `cut`-th write, and perhaps again and again. A COMMIT that was
 * cut may read well now and not after the next power-up: then the module before is there, as if it had not. */
static void load_with_cuts(struct file *old, struct file *next, uint32_t cut)
{
    static struct file between; /* what was loaded with a COMMIT that was cut */
    volatile uint32_t left = cut;
    between = *old;
    power_up();
    CHECK(is_active(old));
    for (;;) {
        writes_left = left;
        if (setjmp(power) == 0) {
            load(next);
            CHECK(is_active(next));
            writes_left = FOREVER;
            return;
        }
        writes_left = FOREVER;
        power_up();
        CHECK(is_active(old) || is_active(&between) || is_active(next));
        if (is_active(next)) {
            between = *next;
        }
        left = random_below(4) == 0 ? random_below(cut + 1u) : FOREVER;
        if (is_active(next) || random_below(8) == 0) { /* another file instead, of which nothing is there */
            next->number += 1000000u;
            next->bytes = 1u + random_below(MOST_FILE);
        }
    }
}

static void refuse(void)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0};
    uint32_t there, bytes;
    power_up();
    CHECK(mt_slots_begin(&slots, identity, slots.capacity + 1u, &there) == MT_NO_MEMORY);
    CHECK(mt_slots_begin(&slots, identity, 0, &there) == MT_NO_MEMORY);
    CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_BAD_ORDER && mt_slots_commit(&slots, 1) == MT_BAD_ORDER);
    CHECK(mt_slots_begin(&slots, identity, 1, &there) == MT_OK && there == 0);
    CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_OK && mt_slots_drop(&slots) == MT_OK);
    CHECK(mt_slots_loaded(&slots, &bytes) == NULL);
    CHECK(mt_slots_begin(&slots, identity, 1, &there) == MT_OK && there == 0);
}

int main(int count, char **values)
{
    static const uint32_t sectors[] = {256, 512, 1024, 4096, 8192};
    static const uint32_t units[] = {1, 4, 8, 16, 32, 64};
    seed = count > 1 ? (uint32_t)strtoul(values[1], NULL, 10) : 1u;
    const uint32_t rounds = count > 2 ? (uint32_t)strtoul(values[2], NULL, 10) : 1u;
    for (uint32_t round = 0; round < rounds; ++round) {
        struct file old = {0, 0, 0};
        storage.memory = flash;
        storage.sector_bytes = sectors[random_below(5)];
        unit_bytes = units[random_below(6)];
        const uint32_t slot = storage.sector_bytes * (1u + (MOST_FILE + 1023u) / storage.sector_bytes) + 1024u;
        storage.bytes = 2u * ((slot + storage.sector_bytes - 1u) / storage.sector_bytes * storage.sector_bytes);
        storage.erase = erase;
        storage.program = program;
        CHECK(storage.bytes <= MOST_BYTES);
        for (uint32_t i = 0; i < storage.bytes; ++i) {
            flash[i] = (uint8_t)random_below(256); /* whatever was there before */
            weak[i] = 0;
            states[i] = TORN;
        }
        /* The first load is cut at its 1st write, the next at its 2nd, and so on, up to more than one has. */
        for (uint32_t cut = 0; cut < MOST_FILE / unit_bytes + 200u; cut += 1u + cut / 64u) {
            struct file next = {old.counter + random_below(2), old.number + 1u, 1u + random_below(MOST_FILE)};
            load_with_cuts(&old, &next, cut);
            CHECK(is_active(&next));
            old = next;
        }
        refuse();
        CHECK(is_active(&old));
        mt_slots_reject(&slots);
        CHECK(!is_active(&old) && mt_slots_counter(&slots) == old.counter);
    }
    printf("%u cuts, %u loads went on\n", (unsigned)cuts, (unsigned)resumed);
    return 0;
}
