/* Internal to mtool: applications include mtool.h. */
/* Constants that are stored in fewer bits than a kernel reads. */
#ifndef MT_UNPACK_H
#define MT_UNPACK_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

/* A word of an array of any type. */
#if defined(__GNUC__)
typedef uint32_t __attribute__((may_alias)) mt_word;
#else
typedef uint32_t mt_word;
#endif

/* Words are unpacked as a little-endian machine has them. */
static inline void mt_in_order(mt_word *word, const mt_word *end, uint32_t element)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (; word < end && element < 4; ++word)
        *word = element == 2 ? *word << 16 | *word >> 16 : __builtin_bswap32(*word);
#else
    (void)word, (void)end, (void)element;
#endif
}

/* Unpack rows of words; returns the end of `from`. Two words are first:
 *     rows
 *     words of a row, in 20 bits; bytes of an element that the kernel reads
 * Then runs of columns, from the left, each of two words and its packed words:
 *     columns, in 20 bits
 *         bits 20 to 22: the logarithm of the bits of a number; 6: no packed words, all words of the run are `added`
 *         bits 23 and 24: numbers are words (0), halfwords (1), halfwords a + 256 * b (2) or bytes (3)
 *         bit 25: the numbers, times 256, are added to the column before
 *     added: to the fields of a word; it turns the sign of each but of words, so that none carries into the next
 * The lowest field of each byte or halfword is for the first word, the next for the second. Then the number of words
 * that are stored apart, and for each its place and itself. */
MT_ALONE static const uint32_t *mt_unpack(void *to, const uint32_t *from)
{
    const mt_word *in = (const mt_word *)from;
    const uint32_t rows = in[0], width = in[1] & 0xfffffu, element = in[1] >> 20;
    mt_word *const all = (mt_word *)to;
    uint32_t count;
    in += 2;
    for (uint32_t first = 0; first < width; first += count) {
        const uint32_t how = in[0], added = in[1], form = how >> 23 & 3, places = how >> 20 & 7;
        const uint32_t lanes = form > 1 ? 0x1010101u : form ? 0x10001u : 1u;
        const uint32_t turned = form > 2 ? 0x80808080u : form ? 0x80008000u : 0;
        const uint32_t bits = places < 6 ? 1u << places : 0, together = (form > 1 ? 8u : form ? 16u : 32u) >> places;
        const uint32_t mask = bits < 32 ? ((1u << bits) - 1) * lanes : ~(uint32_t)0;
        mt_word *out = all + first, *const last = all + rows * width;
        uint32_t word = 0, left = bits ? 0 : UINT32_MAX;
        count = how & 0xfffffu;
        in += 2;
        if (together == 2 && !(count & 1)) { /* the most usual, in half of the instructions */
            for (; out < last; out += width - count)
                for (const mt_word *const end = out + count; out < end; out += 2) {
                    word = *in++;
                    out[0] = ((word & mask) + added) ^ turned;
                    out[1] = ((word >> bits & mask) + added) ^ turned;
                }
        } else {
            for (const mt_word *end = out + count; out < last; --left, word >>= bits & 31) {
                if (left == 0) {
                    word = *in++;
                    left = together;
                }
                *out++ = ((word & mask) + added) ^ turned;
                if (out == end) {
                    out += width - count;
                    end += width;
                }
            }
        }
        if (how >> 25) {
            for (out = all + first; out < last; out += width)
                *out = (*out << 8) + out[-1];
        }
    }
    for (count = *in++; count > 0; --count, in += 2)
        all[in[0]] = in[1];
    mt_in_order(all, all + rows * width, element);
    return (const uint32_t *)in;
}

/* Unpack 256 floats, the products of 16 numbers by 16 others, of which each word's lowest bits are corrected. */
MT_ALONE static void mt_unpack_powers(void *to, const uint32_t *from)
{
    float factors[32];
    uint8_t *out = (uint8_t *)to;
    memcpy(factors, from, sizeof(factors));
    for (int32_t i = 0; i < 16; ++i) {
        uint32_t rest = from[32 + i];
        for (int32_t j = 16; j < 32; ++j, rest >>= 2, out += 4) {
            const float product = factors[i] * factors[j];
            uint32_t word;
            memcpy(&word, &product, 4);
            word = word + (rest & 3) - 2;
            memcpy(out, &word, 4);
        }
    }
}

#endif
