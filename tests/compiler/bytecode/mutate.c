/* Changed modules of bytecode: each is refused, or runs and touches nothing outside its arena. Built with the address and
 * undefined-behaviour sanitizers. Arguments: how many, the seed, files of images. Says how many were refused and ran. */
#include <sanitizer/asan_interface.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_bytecode.h"

#define MOST_WORDS (1u << 16)
#define MOST_ARENA (1u << 16)
#define BAND (1u << 16) /* bytes on both sides of the arena that may not be touched */

static uint64_t state;

static uint32_t chance(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 32) % below);
}

static const uint32_t EDGES[] = {
    0,          1,          2,          3,          4,          5,          7,          8,          12,
    16,         127,        128,        255,        256,        32767,      32768,      65535,      65536,
    0x3fffffff, 0x40000000, 0x7fffffff, 0x80000000, 0x80000001, 0x80000004, 0xffff8000, 0xffffff7f, 0xffffff80,
    0xfffffffe, 0xffffffff, 0x7fc00000, 0x7f800000, 0xff800000,
};

/* Changes a word: most often one of the head or the calls. */
static void change(uint32_t *words, uint32_t count)
{
    const uint32_t calls = words[2] < count - MT_BYTECODE_HEAD ? words[2] : count - MT_BYTECODE_HEAD;
    const uint32_t at = chance(8) ? chance(MT_BYTECODE_HEAD + calls) : chance(count);
    switch (chance(7)) {
    case 0:
        words[at] = EDGES[chance(sizeof(EDGES) / sizeof(*EDGES))];
        break;
    case 1:
        words[at] ^= UINT32_C(1) << chance(32);
        break;
    case 2:
        words[at] += chance(9) - 4;
        break;
    case 3:
        words[at] += 4 * (chance(65) - 32);
        break;
    case 4:
        words[at] = words[chance(count)];
        break;
    case 5:
        words[at] = chance(2) ? words[at] * 2 : words[at] / 2;
        break;
    default:
        words[at] = chance(UINT32_MAX);
        break;
    }
}

/* Opens words, which have just as much memory as they take; returns whether they ran. */
static int try(const uint32_t *words, uint32_t count, uint8_t *memory)
{
    struct mt_bytecode opened;
    uint32_t *const own = malloc(4u * count);
    int ran = 0;
    memcpy(own, words, 4u * count);
    if (!mt_bytecode_open(&opened, own, 4u * count, mt_bytecode_library, mt_bytecode_library_count) &&
        opened.arena_bytes <= MOST_ARENA) {
        uint8_t *const arena = memory + BAND;
        const uint32_t behind = MOST_ARENA - opened.arena_bytes + BAND;
        for (uint32_t i = 0; i < opened.arena_bytes; ++i)
            arena[i] = (uint8_t)(i * 37u >> 2);
        ASAN_POISON_MEMORY_REGION(memory, BAND);
        ASAN_POISON_MEMORY_REGION(arena + opened.arena_bytes, behind);
        mt_bytecode_run(&opened, arena);
        ASAN_UNPOISON_MEMORY_REGION(memory, MOST_ARENA + 2 * BAND);
        for (uint32_t i = 0; i < BAND + behind; ++i)
            if (memory[i < BAND ? i : opened.arena_bytes + i] != 0xa5)
                abort();
        memset(arena, 0xa5, opened.arena_bytes);
        ran = 1;
    }
    free(own);
    return ran;
}

int main(int argc, char **argv)
{
    static uint32_t words[MOST_WORDS], changed[MOST_WORDS];
    uint8_t *const memory = aligned_alloc(16, MOST_ARENA + 2 * BAND);
    unsigned long ran = 0, refused = 0, same = 0;
    memset(memory, 0xa5, MOST_ARENA + 2 * BAND);
    state = strtoull(argv[2], NULL, 10);
    for (int number = 3; number < argc; ++number) {
        FILE *const file = fopen(argv[number], "rb");
        const uint32_t count = (uint32_t)fread(words, 4, MOST_WORDS, file);
        fclose(file);
        if (!try(words, count, memory)) /* as it is */
            return 1;
        for (long i = strtol(argv[1], NULL, 10) / (argc - 3); i > 0; --i) {
            uint32_t changes = 1 + chance(chance(3) ? 2 : 6);
            memcpy(changed, words, 4u * count);
            while (changes--)
                change(changed, count);
            same += !memcmp(changed, words, 4u * count);
            if (try(changed, chance(64) ? count : chance(count) + 1, memory))
                ++ran;
            else
                ++refused;
        }
    }
    free(memory);
    printf("%lu %lu %lu\n", refused, ran, same);
    return 0;
}
