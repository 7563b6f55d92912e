/* Modules with several names are loaded into the slots of a simulated NOR flash, whose power is cut at every unit that
 * is programmed and every sector that is erased, again and again. After each cut the previous modules are present, or
 * also the new one if its COMMIT had begun, and no name's counter is lower than before. From time to time a module is
 * damaged: then the others are present, or an earlier module of its name, with the same counters. Every third module is
 * on trial: it stays while starts are left, unless it fails, and for good once it is confirmed; otherwise the modules
 * before it come back, and its counter does not count. The signer's key is replaced a few times: after each cut it is the
 * key before or the new one, and stays what was found.
 *
 *     mt_test_slots SEED ROUNDS      prints the number of cuts, and exits with 0 on success
 *
 * A cut leaves undefined bits in a unit or sector, some of which read differently after each power-up. Programming a
 * unit that was not erased is an error: reported by the flash after a cut, otherwise a failed test. */
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_crc32.h"
#include "mt_slots.h"
#include "mtool.h"

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s (seed %u, %u cuts)\n", __FILE__, __LINE__, #condition, (unsigned)seed,     \
                    (unsigned)cuts);                                                                              \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

#define MOST_BYTES 131072u
#define MOST_FILE 3000u
#define MOST_FILES 8192u
#define NAMES 5u
#define MOST_KEYS 4u
#define FOREVER 0xFFFFFFFFu

enum { ERASED, PROGRAMMED, TORN };

static uint8_t flash[MOST_BYTES];
static uint8_t weak[MOST_BYTES];    /* bits that read differently after each power-up */
static uint8_t states[MOST_BYTES];  /* the state of each byte's unit */
static struct mt_storage storage;
static uint32_t unit_bytes; /* the unit that this flash programs */
static struct mt_slots slots;
static uint32_t seed, cuts, resumed;
static uint32_t writes_left = FOREVER; /* until the power is cut */
static int is_worn;                 /* what is programmed reads back as zeros */
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

/* Leave the result of a power loss where bytes were to become `target`: old, new, nearly new, or in between. */
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
            return MT_IO; /* flash with error correction notices the traces of a power loss */
        }
        if (writes_left-- == 0) {
            tear(offset + at, bytes + at, unit);
            cut_power();
        }
        memcpy(flash + offset + at, bytes + at, unit);
        memset(flash + offset + at, 0, is_worn ? unit : 0);
        memset(states + offset + at, PROGRAMMED, unit);
    }
    return MT_OK;
}

/* A file: its bytes follow from its number, which is higher than that of all earlier ones. */
struct file {
    uint32_t name, counter, bytes, starts;
    int is_damaged;
};

/* The device's contents: file numbers, in ascending order. */
struct state {
    uint32_t count, numbers[MT_SLOTS_MOST];
};

static struct file files[MOST_FILES];
static uint32_t file_count, ends[2]; /* of trials: those that went, and those that stayed */
static uint32_t counters[NAMES];     /* of files that were certainly loaded */
static uint32_t least_key, most_key, key_cuts; /* the current key may be any of these */
static struct state states_now[2];   /* possible after a power-up: as before, or with an interrupted COMMIT */
static uint32_t state_count;

static uint8_t byte_of(uint32_t number, uint32_t at)
{
    return at % 97u < 9u ? 0xFFu : (uint8_t)(number * 31u + at * 7u + (at >> 8));
}

static int is_in(const uint8_t *module, uint32_t bytes, uint32_t number)
{
    int same = module != NULL && bytes == files[number].bytes;
    for (uint32_t i = 0; same && i < bytes; ++i) {
        same = module[i] == byte_of(number, i);
    }
    return same;
}

static int is_equal(const struct state *one, const struct state *other)
{
    return one->count == other->count && memcmp(one->numbers, other->numbers, one->count * sizeof one->numbers[0]) == 0;
}

/* A state with one more file: it replaces that of its name, or the first one if only one slot is left. */
static struct state with(const struct state *before, uint32_t number)
{
    struct state after = {0, {0}};
    uint32_t out = FOREVER;
    for (uint32_t i = 0; i < before->count; ++i) {
        out = files[before->numbers[i]].name == files[number].name ? i : out;
    }
    if (out == FOREVER && before->count + 1u == slots.count) {
        out = 0;
    }
    for (uint32_t i = 0; i < before->count; ++i) {
        if (i != out) {
            after.numbers[after.count++] = before->numbers[i];
        }
    }
    after.numbers[after.count++] = number;
    return after;
}

static void write_key(uint32_t number, uint8_t key[32])
{
    memset(key, (int)number, 32);
}

/* Follow the replaced keys from the first one to the current one. */
static void look_at_keys(void)
{
    uint32_t number = 0;
    uint8_t key[32] = {0};
    for (const uint8_t *next; (next = mt_slots_next_key(&slots, key)) != NULL;) {
        write_key(++number, key);
        CHECK(memcmp(next, key, sizeof key) == 0);
    }
    CHECK(number >= least_key && number <= most_key);
    least_key = most_key = number;
}

/* Replace the signer's key, with the power cut at any write. */
static void replace_key(void)
{
    uint8_t key[32], next[32];
    if (least_key == MOST_KEYS || random_below(8) != 0) {
        return;
    }
    write_key(least_key, key);
    most_key = least_key + 1u;
    write_key(most_key, next);
    writes_left = random_below(4) == 0 ? FOREVER : random_below(8u * MT_STORAGE_CHUNK / unit_bytes + 16u);
    CHECK(mt_slots_replace_key(&slots, key, next) == MT_OK);
    least_key = most_key;
    CHECK(mt_slots_replace_key(&slots, next, key) == MT_OK); /* never back */
    look_at_keys();
}

/* Read the device's contents. Damaged ones are rejected, as a loader that checks hashes does. */
static struct state found(void)
{
    struct state all = {0, {0}};
    for (uint8_t slot = 0; slot < slots.count; ++slot) {
        uint32_t bytes = 0, number, at;
        const uint8_t *const module = mt_slots_active(&slots, slot, &bytes);
        if (module == NULL) {
            continue;
        }
        memcpy(&number, slots.records[slot]->identity, sizeof number);
        CHECK(number < file_count && slots.records[slot]->name == files[number].name);
        if (!is_in(module, bytes, number)) {
            CHECK(files[number].is_damaged);
            mt_slots_reject(&slots, slot);
            return found();
        }
        for (at = all.count++; at > 0 && all.numbers[at - 1u] > number; --at) {
            all.numbers[at] = all.numbers[at - 1u];
        }
        all.numbers[at] = number;
    }
    for (uint32_t name = 0; name < NAMES; ++name) {
        CHECK(mt_slots_counter(&slots, name) >= counters[name]);
    }
    key_cuts += most_key > least_key;
    look_at_keys();
    return all;
}

static struct state power_up(uint32_t slot_bytes)
{
    for (uint32_t i = 0; i < storage.bytes; ++i) {
        if (weak[i] != 0) {
            flash[i] = (uint8_t)(flash[i] ^ (weak[i] & random_below(256)));
        }
    }
    CHECK(mt_slots_open(&slots, &storage, slot_bytes) == MT_OK);
    return found();
}

static void load(const struct state *before, uint32_t number)
{
    const struct file *const file = files + number;
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0}, piece[200];
    uint32_t there = 0, bytes = 0;
    const uint8_t replaced = mt_slots_replaced(&slots, file->name);
    const uint32_t replaced_name = replaced == MT_SLOTS_NONE ? FOREVER : slots.records[replaced]->name;
    const struct state after = with(before, number);
    const int is_new = before->count == 0 || before->numbers[before->count - 1u] != number;
    CHECK((replaced == MT_SLOTS_NONE) == (after.count > before->count));
    for (uint32_t i = 0; i < after.count; ++i) {
        CHECK(files[after.numbers[i]].name != replaced_name || after.numbers[i] == number);
    }
    memcpy(identity, &number, sizeof number);
    CHECK(mt_slots_begin(&slots, identity, file->name, file->bytes, &there) == MT_OK);
    CHECK(mt_slots_replaced(&slots, file->name) == replaced);
    resumed += there > 0;
    states_now[0] = *before; /* the journal was copied: an interrupted COMMIT is now in it, or nowhere */
    if (is_new) {
        states_now[1] = after;
        state_count = 1;
        while (there < file->bytes) {
            uint32_t count = 1u + random_below(sizeof piece);
            count = count < file->bytes - there ? count : file->bytes - there;
            for (uint32_t i = 0; i < count; ++i) {
                piece[i] = byte_of(number, there + i);
            }
            CHECK(mt_slots_loaded(&slots, &bytes) == NULL);
            CHECK(mt_slots_write(&slots, there + 1u, piece, 1) == MT_BAD_ORDER);
            CHECK(mt_slots_write(&slots, there, piece, count) == MT_OK);
            there += count;
        }
        CHECK(mt_slots_write(&slots, there, piece, 1) == MT_BAD_RANGE);
        const uint8_t *const loaded = mt_slots_loaded(&slots, &bytes);
        CHECK(is_in(loaded, bytes, number)); /* resumed loads are right, too */
        CHECK(file->counter >= mt_slots_counter(&slots, file->name));
        state_count = 2;
        CHECK(mt_slots_commit(&slots, file->counter, file->starts) == MT_OK);
        CHECK((mt_slots_trial(&slots) != MT_SLOTS_NONE) == (file->starts > 0));
        if (file->starts > 0) {
            return;
        }
        states_now[0] = after;
    }
    state_count = 1;
    counters[file->name] = file->counter;
}

static uint32_t new_file(void)
{
    struct file *const file = files + file_count;
    CHECK(file_count < MOST_FILES);
    file->name = random_below(NAMES);
    file->bytes = 1u + random_below(MOST_FILE);
    file->is_damaged = 0;
    file->starts = random_below(3) == 0 ? 1u + random_below(3) : 0;
    file->counter = mt_slots_counter(&slots, file->name);
    file->counter = random_below(3) == 0 ? file->counter + 1u + random_below(3) : file->counter;
    return file_count++;
}

/* Damage one of the device's modules, or the contents of the other slots. */
static void damage(void)
{
    const uint8_t slot = (uint8_t)random_below(slots.count);
    uint32_t number = FOREVER, bytes;
    if (mt_slots_active(&slots, slot, &bytes) != NULL) {
        memcpy(&number, slots.records[slot]->identity, sizeof number);
        files[number].is_damaged = 1;
        flash[slot * slots.slot_bytes + random_below(bytes)] ^= 0x10u;
    }
}

/* Use up, confirm or end the trial of a file, with the power cut at any write of a start too. `left` starts are left. */
static void try_out(struct state before, struct state after, uint32_t number, uint32_t left, uint32_t slot_bytes)
{
    static struct state ways[2], end;
    static uint32_t starts, lost, may_stay, may_go;
    ways[0] = before;
    ways[1] = after;
    starts = left;
    lost = may_stay = may_go = 0;
    for (;;) {
        writes_left = random_below(2) ? FOREVER : random_below(8u * MT_STORAGE_CHUNK / unit_bytes + 16u);
        if (setjmp(power) != 0) {
            ++lost; /* perhaps one start */
            continue;
        }
        end = power_up(slot_bytes);
        if (is_equal(&end, ways)) {
            CHECK(starts <= lost || may_go);
            break;
        }
        CHECK(is_equal(&end, ways + 1));
        if (mt_slots_trial(&slots) == MT_SLOTS_NONE) {
            CHECK(may_stay);
            break;
        }
        CHECK(starts > 0);
        --starts;
        uint32_t there = 0;
        const uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0xEE};
        CHECK(mt_slots_begin(&slots, identity, 0, 1, &there) == MT_BAD_ORDER);
        const uint32_t what = random_below(6);
        if (what == 0) {
            may_stay = 1;
            writes_left = random_below(2) ? FOREVER : random_below(8u * MT_STORAGE_CHUNK / unit_bytes + 16u);
            CHECK(mt_slots_confirm(&slots) == MT_OK && mt_slots_trial(&slots) == MT_SLOTS_NONE);
            break;
        }
        if (what == 1) {
            may_go = 1;
            writes_left = random_below(2) ? FOREVER : random_below(8u * MT_STORAGE_CHUNK / unit_bytes + 16u);
            CHECK(mt_slots_fail(&slots) == MT_OK);
            if (random_below(2) == 0) {
                mt_slots_reject(&slots, mt_slots_trial(&slots));
                end = found();
                CHECK(is_equal(&end, ways));
            } else {
                end = power_up(slot_bytes);
                CHECK(is_equal(&end, ways));
            }
            break;
        }
    }
    writes_left = FOREVER;
    ++ends[is_equal(&end, ways + 1)];
    counters[files[number].name] = is_equal(&end, ways + 1) ? files[number].counter : counters[files[number].name];
    states_now[0] = end;
    state_count = 1;
    for (uint32_t time = 0; time < 3u; ++time) {
        const struct state again = power_up(slot_bytes);
        CHECK(is_equal(&again, &end) && mt_slots_trial(&slots) == MT_SLOTS_NONE);
    }
}

/* Load a new file, with the power cut at the `cut`-th write, and perhaps again. An interrupted COMMIT may read
 * correctly now, but not after the next power-up. */
static void load_with_cuts(uint32_t cut, uint32_t slot_bytes)
{
    static struct state before;
    static uint32_t number;
    volatile uint32_t left = cut;
    writes_left = FOREVER;
    before = power_up(slot_bytes);
    CHECK(is_equal(&before, states_now));
    if (random_below(4) == 0) {
        damage();
        const struct state after = power_up(slot_bytes);
        for (uint32_t i = 0; i < before.count; ++i) {
            int is_there = files[before.numbers[i]].is_damaged;
            for (uint32_t j = 0; j < after.count; ++j) {
                is_there |= after.numbers[j] == before.numbers[i];
            }
            CHECK(is_there);
        }
        before = states_now[0] = after;
    }
    number = new_file();
    for (;;) {
        writes_left = left;
        if (setjmp(power) == 0) {
            load(&before, number);
            if (mt_slots_trial(&slots) != MT_SLOTS_NONE) {
                try_out(before, found(), number, files[number].starts, slot_bytes);
                return;
            }
            const struct state after = found();
            CHECK(is_equal(&after, states_now));
            replace_key();
            writes_left = FOREVER;
            return;
        }
        writes_left = FOREVER;
        before = power_up(slot_bytes);
        CHECK(is_equal(&before, states_now) || (state_count > 1 && is_equal(&before, states_now + 1)));
        if (mt_slots_trial(&slots) != MT_SLOTS_NONE) {
            try_out(states_now[0], before, number, files[number].starts - 1u, slot_bytes);
            return;
        }
        left = random_below(4) == 0 ? random_below(cut + 1u) : FOREVER;
        if (random_below(8) == 0) { /* a different file, none of which was loaded */
            number = new_file();
        }
    }
}

static void refuse(uint32_t slot_bytes)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0xFF, 0xFF, 0xFF, 0xFF};
    uint32_t there, bytes;
    (void)power_up(slot_bytes);
    CHECK(mt_slots_begin(&slots, identity, 0, slots.slot_bytes + 1u, &there) == MT_NO_MEMORY);
    CHECK(mt_slots_begin(&slots, identity, 0, 0, &there) == MT_NO_MEMORY);
    CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_BAD_ORDER && mt_slots_commit(&slots, 1, 0) == MT_BAD_ORDER);
    CHECK(mt_slots_begin(&slots, identity, 0, 1, &there) == MT_OK && there == 0);
    CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_OK && mt_slots_drop(&slots) == MT_OK);
    CHECK(mt_slots_loaded(&slots, &bytes) == NULL);
    CHECK(mt_slots_begin(&slots, identity, 0, 1, &there) == MT_OK && there == 0);
    struct state all = found();
    CHECK(is_equal(&all, states_now));
    while (all.count > 0) { /* counters outlive all modules, and the loads in their place */
        uint32_t number = all.numbers[0];
        for (uint8_t slot = 0; slot < slots.count; ++slot) {
            if (mt_slots_active(&slots, slot, &bytes) != NULL) {
                memcpy(&number, slots.records[slot]->identity, sizeof number);
                files[number].is_damaged = 1;
                flash[slot * slots.slot_bytes] ^= 1u;
            }
        }
        all = power_up(slot_bytes);
    }
    for (uint32_t name = 100; name < 130; ++name) {
        identity[0] = (uint8_t)name;
        CHECK(mt_slots_begin(&slots, identity, name, 1, &there) == MT_OK);
        CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_OK && mt_slots_commit(&slots, name, 0) == MT_OK);
    }
    (void)mt_slots_open(&slots, &storage, slot_bytes);
    for (uint32_t name = 0; name < 130; name += name == NAMES - 1u ? 96u : 1u) {
        CHECK(mt_slots_counter(&slots, name) >= (name < NAMES ? counters[name] : name));
    }
    int32_t status = MT_OK; /* endless names: refused before one is forgotten */
    for (uint32_t name = 200; name < 300 && status == MT_OK; ++name) {
        identity[0] = (uint8_t)name;
        status = mt_slots_begin(&slots, identity, name, 1, &there);
        if (status == MT_OK) {
            CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_OK && mt_slots_commit(&slots, name, 0) == MT_OK);
        }
    }
    CHECK(status == MT_NO_MEMORY && mt_slots_counter(&slots, 129) == 129);
}

/* A flash that programs wrongly without noticing it: the end of a trial is an error at worst. */
static void wear(uint32_t slot_bytes)
{
    for (int is_confirmed = 0; is_confirmed < 2; ++is_confirmed) {
        const uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {(uint8_t)(2 + is_confirmed)};
        uint32_t there;
        CHECK(mt_slots_begin(&slots, identity, 1, 1, &there) == MT_OK);
        CHECK(mt_slots_write(&slots, 0, identity, 1) == MT_OK && mt_slots_commit(&slots, 1000, 5) == MT_OK);
        is_worn = 1;
        (void)(is_confirmed ? mt_slots_confirm(&slots) : mt_slots_fail(&slots));
        is_worn = 0;
        CHECK(mt_slots_open(&slots, &storage, slot_bytes) == MT_OK);
        (void)mt_slots_fail(&slots);
        CHECK(mt_slots_open(&slots, &storage, slot_bytes) == MT_OK);
    }
}

#ifdef MT_LINK_KEY
static const uint8_t *forger = mt_link_key;
#endif

/* A record whose checksum is right, but which has more bytes than its file or its slot, is ignored. */
static void forge(uint32_t slot_bytes, uint32_t bytes, uint32_t there)
{
    const uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {1};
    const uint32_t journal = storage.sector_bytes > 4096u ? storage.sector_bytes : 4096u;
    const mt_slot_word load = (mt_slot_word)(0x4C42544Du >> (32u - 8u * (uint32_t)sizeof(mt_slot_word)));
    struct mt_slot_record record = {.kind = load, .bytes = bytes, .there = there, .identity = {1}};
    uint32_t found_there;
#ifdef MT_LINK_KEY
    record.check = mt_siphash(forger, (const uint8_t *)&record, offsetof(struct mt_slot_record, check));
#else
    record.check = mt_crc32((const uint8_t *)&record, offsetof(struct mt_slot_record, check));
#endif
    memset(flash, 0xFF, sizeof flash);
    memset(weak, 0, sizeof weak);
    memset(states, ERASED, sizeof states);
    memcpy(flash + storage.bytes - journal, &record, sizeof record);
    memset(states + storage.bytes - journal, PROGRAMMED, sizeof record);
    writes_left = FOREVER;
    CHECK(mt_slots_open(&slots, &storage, slot_bytes) == MT_OK);
    CHECK(slots.records[0] == NULL);
    CHECK(mt_slots_begin(&slots, identity, 1, 100, &found_there) == MT_OK && found_there == 0);
}

int main(int count, char **values)
{
    static const uint32_t sectors[] = {256, 512, 1024, 4096, 8192};
    static const uint32_t units[] = {1, 4, 8, 16, 32, 64};
    seed = count > 1 ? (uint32_t)strtoul(values[1], NULL, 10) : 1u;
    const uint32_t rounds = count > 2 ? (uint32_t)strtoul(values[2], NULL, 10) : 1u;
    for (uint32_t round = 0; round < rounds; ++round) {
        storage.memory = flash;
        storage.sector_bytes = sectors[random_below(5)];
        unit_bytes = units[random_below(6)];
        const uint32_t sector = storage.sector_bytes, journal = sector > 4096u ? sector : 4096u;
        const uint32_t slot_bytes = (MOST_FILE + sector - 1u) / sector * sector;
        const uint32_t slot_count = 2u + random_below(4);
        storage.bytes = slot_count * slot_bytes + 2u * journal;
        storage.erase = erase;
        storage.program = program;
        CHECK(storage.bytes <= MOST_BYTES);
        for (uint32_t i = 0; i < storage.bytes; ++i) {
            flash[i] = (uint8_t)random_below(256); /* previous contents */
            weak[i] = 0;
            states[i] = TORN;
        }
        memset(counters, 0, sizeof counters);
        memset(states_now, 0, sizeof states_now);
        least_key = most_key = 0;
        file_count = 0;
        (void)power_up(slot_bytes);
        CHECK(slots.count == slot_count && slots.slot_bytes == slot_bytes);
        /* The first load is cut at its first write, the next at its second, and so on, until a load has no more
         * writes. */
        for (uint32_t cut = 0; cut < (MOST_FILE + 2000u) / unit_bytes + 200u; cut += 1u + cut / 64u) {
            load_with_cuts(cut, slot_bytes);
        }
        refuse(slot_bytes);
        forge(slot_bytes, 100, 200);
        wear(slot_bytes);
        forge(slot_bytes, slots.slot_bytes + 1u, 64);
#ifdef MT_LINK_KEY
        static const uint8_t another[MT_SIPHASH_KEY_BYTES] = {0};
        forger = another;
        forge(slot_bytes, 100, 64); /* else that load would go on */
        forger = mt_link_key;
#endif
    }
    printf("%u cuts, %u loads went on, %u trials ended and %u stayed, %u at a key\n", (unsigned)cuts, (unsigned)resumed,
           (unsigned)ends[0], (unsigned)ends[1], (unsigned)key_cuts);
    return 0;
}
