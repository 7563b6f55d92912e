/* In place of a project's src/main.c: modules of three names go into the slots of its storage, Zephyr's flash simulator,
 * which drops every write after the one of a cut, and a part of that one, or every erase after one. After each cut the
 * earlier modules are present, or the new one if its COMMIT had begun, no name's counter is lower, and a second load
 * succeeds. Prints "done: " and the number of interrupted loads, or the line of a failed check. */
#include <stdlib.h>
#include <string.h>
#include <zephyr/kernel.h>
#include <zephyr/stats/stats.h>

#include "mt_slots.h"
#include "mtool.h"

#define ROUNDS 600u
#define NAMES 3u
#define MOST_BYTES 3000u
#define SLOT_BYTES 16384u

#define CHECK(condition)                                                                                          \
    do {                                                                                                          \
        if (!(condition)) {                                                                                       \
            printk("failed: line %d, round %u: %s\n", __LINE__, round, #condition);                               \
            for (;;) {                                                                                            \
            }                                                                                                     \
        }                                                                                                         \
    } while (0)

STATS_SECT_START(flash_sim_thresholds) /* drivers/flash/flash_simulator.c */
STATS_SECT_ENTRY32(max_write_calls)
STATS_SECT_ENTRY32(max_erase_calls)
STATS_SECT_ENTRY32(max_len)
STATS_SECT_END;
extern STATS_SECT_DECL(flash_sim_thresholds) flash_sim_thresholds;

static struct mt_slots slots;
static unsigned int round;
static uint32_t commits; /* begun by load() */

static uint32_t random_below(uint32_t end)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % end;
}

static uint32_t size_of(uint32_t number)
{
    return 1u + number * 7919u % MOST_BYTES;
}

static uint8_t byte_of(uint32_t number, uint32_t at)
{
    return at % 97u < 9u ? 0xFFu : (uint8_t)(number * 31u + at * 7u + (at >> 8));
}

/* The number of a name's module: 0 if it has none. */
static uint32_t present(uint32_t name)
{
    for (uint8_t slot = 0; slot < slots.count; ++slot) {
        uint32_t bytes = 0, number = 0;
        const uint8_t *const module = mt_slots_active(&slots, slot, &bytes);
        if (module != NULL && slots.records[slot]->name == name) {
            memcpy(&number, slots.records[slot]->identity, sizeof number);
            CHECK(bytes == size_of(number));
            for (uint32_t at = 0; at < bytes; ++at) {
                CHECK(module[at] == byte_of(number, at));
            }
            return number;
        }
    }
    return 0;
}

static int32_t load(uint32_t number)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0}, piece[200];
    uint32_t there = 0, bytes = 0;
    memcpy(identity, &number, sizeof number);
    int32_t status = mt_slots_begin(&slots, identity, number % NAMES, size_of(number), &there);
    while (status == MT_OK && there < size_of(number)) {
        uint32_t count = 1u + random_below(sizeof piece);
        count = count < size_of(number) - there ? count : size_of(number) - there;
        for (uint32_t i = 0; i < count; ++i) {
            piece[i] = byte_of(number, there + i);
        }
        status = mt_slots_write(&slots, there, piece, count);
        there += count;
    }
    if (status == MT_OK && mt_slots_loaded(&slots, &bytes) != NULL) {
        ++commits;
        status = mt_slots_commit(&slots, number);
    }
    return status;
}

static void open_again(void)
{
    flash_sim_thresholds.max_write_calls = 0;
    flash_sim_thresholds.max_erase_calls = 0;
    CHECK(mt_slots_open(&slots, mt_port_storage(), SLOT_BYTES) == MT_OK);
}

int main(void)
{
    uint32_t numbers[NAMES] = {0};
    uint32_t cuts = 0;
    CHECK(mt_port_storage() != NULL);
    for (round = 1; round <= ROUNDS; ++round) {
        const uint32_t name = round % NAMES;
        open_again();
        stats_reset(stats_group_find("flash_sim_stats"));
        flash_sim_thresholds.max_len = random_below(3) == 0 ? 0 : 1u + random_below(64);
        if (random_below(4) == 0) {
            flash_sim_thresholds.max_erase_calls = 1u + random_below(5);
        } else {
            flash_sim_thresholds.max_write_calls = 1u + random_below(40);
        }
        commits = 0;
        const int32_t status = load(round);
        open_again();
        const uint32_t found = present(name);
        CHECK(found == (status == MT_OK ? round : numbers[name]) || (commits > 0 && found == round));
        cuts += status != MT_OK;
        for (uint32_t other = 0; other < NAMES; ++other) {
            CHECK(other == name || present(other) == numbers[other]);
            CHECK(mt_slots_counter(&slots, other) >= numbers[other]);
        }
        CHECK(load(round) == MT_OK);
        open_again();
        CHECK(present(name) == round);
        numbers[name] = round;
    }
    printk("done: %u cuts\n", (unsigned int)cuts);
    return 0;
}
