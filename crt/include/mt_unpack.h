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

/* 32 bits from a bit on; those behind the last code are arbitrary. */
static inline uint32_t mt_bits_at(const mt_word *in, uint32_t place)
{
    in += place >> 5;
    return in[0] >> (place & 31) | in[1] << 1 << (31 - (place & 31));
}

static inline uint32_t mt_byte_at(const mt_word *words, uint32_t place)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    place ^= 3;
#endif
    return ((const uint8_t *)words)[place];
}

/* The place of a canonical Huffman code among all, `counts` of each length; `*bits` becomes the length. */
static inline uint32_t mt_huffman(const mt_word *counts, uint32_t next, uint32_t *bits)
{
    uint32_t code = 0, first = 0, before = 0;
    for (uint32_t length = 1;; ++length, next >>= 1) {
        const uint32_t count = mt_byte_at(counts, length);
        code |= next & 1;
        if (code - first < count || length == 15) {
            *bits = length;
            return before + code - first;
        }
        before += count;
        first = (first + count) << 1;
        code <<= 1;
    }
}

/* Unpack a run of codes; returns its end. The first of its two words is as above, the second:
 *     bits 0 to 3: the bits of a code, which is a place in a table; 8: it is the number; 0: it is a Huffman code
 *     bit 4: before the codes of a word is a bit; 0: the word is 0, and has no codes
 *     bit 5: each row has its tables
 *     bits 8 to 11: the logarithm of the numbers of one channel before those of the next, each of which has its table
 *     bits 12 to 15: the channels of a row, less 1
 *     bits 24 to 31: the values of Huffman codes, less 1
 * Then the tables of bytes, filled up to words; before the values of Huffman codes how many are of each length, 0 to 15.
 * Then the codes of four numbers a word, from the lowest bit on. */
static inline const mt_word *mt_unpack_codes(mt_word *out, const mt_word *in, uint32_t rows, uint32_t width,
                                             uint32_t first)
{
    const uint32_t count = in[0] & 0xfffffu, in_pairs = (in[0] >> 23 & 3) == 2, how = in[1];
    const uint32_t bits = how & 15, mask = (1u << bits) - 1, lanes = how >> 8 & 15, channels = how >> 12 & 15;
    const uint32_t size = bits == 8 ? 0 : bits > 2 ? 1u << (bits - 2) : 1;
    const uint32_t each = how >> 5 & 1 ? size * (channels + 1) : 0, tables = each ? each * rows : size * (channels + 1);
    const mt_word *const counts = in + 2, *table = bits ? counts : counts + 4;
    const mt_word *const codes = bits ? table + tables : table + (how >> 26) + 1;
    uint32_t place = 0;
    for (uint32_t row = rows; row > 0; --row, out += width - count, table += each)
        for (uint32_t number = 4 * first, end = 4 * (first + count); number < end; ++out) {
            uint32_t word = 0, next;
            if ((how & 16) && !(mt_bits_at(codes, place++) & 1)) {
                number += 4;
                *out = 0;
                continue;
            }
            next = mt_bits_at(codes, place);
            place += 4 * bits;
            if (bits == 8)
                word = next;
            else if (bits > 0 && channels == 0)
                word = mt_byte_at(table, next & mask) | mt_byte_at(table, next >> bits & mask) << 8
                     | mt_byte_at(table, next >> 2 * bits & mask) << 16 | mt_byte_at(table, next >> 3 * bits & mask) << 24;
            else
                for (uint32_t lane = 0, length; lane < 4; ++lane) {
                    const mt_word *const mine = table + ((number + lane) >> lanes & channels) * size;
                    if (bits == 0) {
                        word |= mt_byte_at(mine, mt_huffman(counts, mt_bits_at(codes, place), &length)) << 8 * lane;
                        place += length;
                    } else
                        word |= mt_byte_at(mine, next >> lane * bits & mask) << 8 * lane;
                }
            number += 4;
            if (in_pairs) /* a negative one is one less of the other */
                word = ((word | 0x80008000u) - ((word & 0x800080u) << 1)) ^ (~word & 0x80008000u);
            *out = word;
        }
    return codes + ((place + 31) >> 5);
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
 * The lowest field of each byte or halfword is for the first word, the next for the second. Bits 20 to 22 may also be 7:
 * then the run is of codes (mt_unpack_codes). Then the number of words that are stored apart, and for each its place
 * and itself. */
MT_INLINE const uint32_t *mt_unpack_runs(void *to, const uint32_t *from, int32_t has_codes)
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
        if (has_codes && places == 7) {
            in = mt_unpack_codes(out, in, rows, width, first);
            continue;
        }
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

MT_ALONE static const uint32_t *mt_unpack(void *to, const uint32_t *from)
{
    return mt_unpack_runs(to, from, 0);
}

/* The same with runs of codes. */
MT_ALONE static const uint32_t *mt_unpack_coded(void *to, const uint32_t *from)
{
    return mt_unpack_runs(to, from, 1);
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
