/* Internal to mtool: applications include mtool.h. */
/* Layers whose inputs are all x or -x and whose weights are all w or -w: products are counted, not multiplied. A word
 * has the signs of an input's weights in 32 outputs, and so have words of counters a bit of each output's count. Output
 * 4 * i + j has bit i + 8 * j. */
#ifndef MT_INT_SIGNS_H
#define MT_INT_SIGNS_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In each place, the sum of three bits: `low` becomes its low bit, `high` its high one. */
#define MT_INT_ADD_BITS(high, low, a, b)                   \
    do {                                                   \
        const uint32_t first = (a), second = (b);          \
        const uint32_t differs = (low) ^ first;            \
        (high) = ((low) & first) | (differs & second);     \
        (low) = differs ^ second;                          \
    } while (0)

/* Where the product of input `k` is negative. */
#define MT_INT_NEGATIVE(k) ((uint32_t)((int32_t)w[k] ^ (x[k] >> 7)))

/* Add the numbers of negative products of `depth` inputs to counters of `count` bits, whose first values are `w[0]` to
 * `w[count - 1]`; weights follow. */
static MT_ALONE void mt_int_count_signs(uint32_t *bits, const int8_t *x, const uint32_t *w, int32_t depth, int32_t count)
{
    const int8_t *const end = x + depth, *const turns = x + (depth & ~15);
    uint32_t *const last = bits + count;
    for (int32_t i = 0; i < count; ++i)
        bits[i] = w[i];
    w += count;
    if (x < turns) {
        uint32_t ones = bits[0], twos = bits[1], fours = bits[2], eights = bits[3];
        do {
            uint32_t two = 0, four = 0, eight = 0, carry = 0;
            MT_UNROLL(8)
            for (int32_t i = 0; i < 8; ++i) {
                uint32_t other_two, other_four, other_eight;
                MT_INT_ADD_BITS(other_two, ones, MT_INT_NEGATIVE(2 * i), MT_INT_NEGATIVE(2 * i + 1));
                if (i % 2 == 0) {
                    two = other_two;
                    continue;
                }
                MT_INT_ADD_BITS(other_four, twos, two, other_two);
                if (i % 4 == 1) {
                    four = other_four;
                    continue;
                }
                MT_INT_ADD_BITS(other_eight, fours, four, other_four);
                if (i == 3)
                    eight = other_eight;
                else
                    MT_INT_ADD_BITS(carry, eights, eight, other_eight);
            }
            for (uint32_t *bit = bits + 4; bit < last; ++bit) {
                const uint32_t old = *bit;
                *bit = old ^ carry;
                carry &= old;
            }
            x += 16;
            w += 16;
        } while (x < turns);
        bits[0] = ones;
        bits[1] = twos;
        bits[2] = fours;
        bits[3] = eights;
    }
    for (; x < end; ++x, ++w) {
        uint32_t carry = MT_INT_NEGATIVE(0);
        for (uint32_t *bit = bits; bit < last; ++bit) {
            const uint32_t old = *bit;
            *bit = old ^ carry;
            carry &= old;
        }
    }
}

/* Four bytes, the lowest first. */
static inline void mt_int_put_bytes(int8_t *out, uint32_t bytes, int32_t count)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap32(bytes);
#endif
    memcpy(out, &bytes, (size_t)count);
}

/* Write `count` outputs, of each byte `none` where the word has a 0, with the bits of `change` flipped where it has a 1. */
static MT_ALONE void mt_int_put_signs(int8_t *out, uint32_t word, int32_t count, uint32_t none, uint32_t change)
{
    for (; count > 0; count -= 4, out += 4, word >>= 1) {
        const uint32_t bytes = none ^ ((word & 0x01010101) * 255 & change);
        if (count >= 4)
            mt_int_put_bytes(out, bytes, 4);
        else
            mt_int_put_bytes(out, bytes, count);
    }
}

/* The counts of 32 outputs, from counters of at most 16 bits. */
static MT_ALONE void mt_int_counts(uint16_t *counts, const uint32_t *bits, int32_t count)
{
    for (int32_t first = 0; first < count; first += 8) {
        uint32_t rows[8], mask = 0x0F0F0F0F;
        for (int32_t i = 0; i < 8; ++i)
            rows[i] = first + i < count ? bits[first + i] : 0;
        for (int32_t step = 4; step; step >>= 1, mask ^= mask << step)
            for (int32_t i = 0; i < 8; i = (i + step + 1) & ~step) {
                const uint32_t moved = (rows[i] >> step ^ rows[i + step]) & mask;
                rows[i + step] ^= moved;
                rows[i] ^= moved << step;
            }
        for (int32_t i = 0; i < 32; ++i) {
            const uint32_t part = rows[i >> 2] >> 8 * (i & 3) & 255;
            counts[i] = (uint16_t)(first ? counts[i] | part << 8 : part);
        }
    }
}

#ifdef __cplusplus
}
#endif

#endif
