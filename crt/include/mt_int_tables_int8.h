/* Internal to mtool: applications include mtool.h. */
/* Products of int8 and weights of one or two bits for cores without SIMD: looked up in tables that all output channels
 * share. A word holds the values of two pixels, x0 + 65536 * x1, and so does a sum of them; four bits of weights choose
 * one of 16 sums, of four inputs (a bit is 1 or -1) or of two (two bits are a weight plus 2). Dense layers have words of
 * two sums too. */
#ifndef MT_INT_TABLES_INT8_H
#define MT_INT_TABLES_INT8_H

#include <stdint.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t mt_int_two(const int8_t *x, const int8_t *y)
{
    return (uint32_t)*x + ((uint32_t)*y << 16);
}

/* The tables of whole groups of `depth` inputs of two pixels. */
static inline void mt_int_tables(uint32_t *t, const int8_t *x, const int8_t *y, int32_t depth, int bits)
{
    for (const int8_t *const end = x + depth; x < end; t += 16) {
        uint32_t add[4]; /* of each bit */
        if (bits == 1) {
            t[0] = 0;
            for (int32_t i = 0; i < 4; ++i) {
                const uint32_t both = mt_int_two(x + i, y + i);
                t[0] -= both;
                add[i] = 2 * both;
            }
        } else {
            add[0] = mt_int_two(x, y);
            add[1] = 2 * add[0];
            add[2] = mt_int_two(x + 1, y + 1);
            add[3] = 2 * add[2];
            t[0] = 0 - (add[1] + add[3]);
        }
        MT_UNROLL(4)
        for (int32_t i = 0; i < 4; ++i) {
            MT_UNROLL(8)
            for (int32_t j = 0; j < 1 << i; ++j)
                t[j + (1 << i)] = t[j] + add[i];
        }
        x += 4 / bits;
        y += 4 / bits;
    }
}

/* The sum that number `j` of the eight places of a word of weights chooses from its table. */
#ifdef __thumb2__ /* a field and a shifted index are an instruction each */
#define MT_INT_LOOKUP(table, word, j) (table)[(word) >> 4 * (j) & 15]
#else
#define MT_INT_LOOKUP(table, word, j) \
    *(const uint32_t *)(const void *)((const char *)(table) + (((j) ? (word) >> (4 * (j) - 2) : (word) << 2) & 60))
#endif
/* Computed before what follows: compilers would interleave lookups until no registers are left. */
#if defined(__GNUC__)
#define MT_INT_HOLD(value) __asm__ volatile("" : "+r"(value))
#else
#define MT_INT_HOLD(value) (void)0
#endif

/* The sum of one pixel in a word of both. */
static inline int32_t mt_int_first(uint32_t both)
{
    return (int16_t)(both & 0xffff);
}

static inline int32_t mt_int_second(uint32_t both)
{
    const int32_t first = mt_int_first(both);
    const uint32_t rest = both - (uint32_t)first;
    return (int32_t)rest >> 16;
}

#ifdef __cplusplus
}
#endif

#endif
