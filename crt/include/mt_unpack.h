/* Internal to mtool: applications include mtool.h. */
/* Constants of few bits: weights that are stored as fields of a word become what a kernel reads. */
#ifndef MT_UNPACK_H
#define MT_UNPACK_H

#include <stdint.h>

#include "mt_math.h"

/* A word of an array of any type. */
#if defined(__GNUC__)
typedef uint32_t __attribute__((may_alias)) mt_word;
#else
typedef uint32_t mt_word;
#endif

/* Copy `count` plain words; those whose bit is set in `same` from the row before, `width` words back. */
MT_ALONE static const mt_word *mt_plain_words(mt_word *out, const mt_word *in, int32_t count, uint32_t same,
                                              int32_t width)
{
    for (; count > 0; --count, ++out, same >>= 1)
        *out = same & 1 ? out[-width] : *in++;
    return in;
}

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

/* Defines a function that unpacks words of fields of `bits`, each of which becomes `together` words; it returns `to`.
 * Five words say how, of `rows` rows:
 *     rows
 *     packed words of a row
 *     plain words before them, in 12 bits; behind them, in 12 bits; bit 24: fields are of bytes, not of halfwords;
 *         in 3 bits: the bytes of an element that the kernel reads
 *     the plain words that are equal in all rows and stored in the first alone, as bits
 *     what is added to a word of fields: it turns the sign of each, so that none carries into the next
 * The lowest field of each byte or halfword is for the first word, the next for the second. */
#define MT_UNPACK(name, bits, together)                                                                  \
    MT_ALONE static const void *name(void *to, const void *from)                                         \
    {                                                                                                    \
        const mt_word *in = (const mt_word *)from;                                                       \
        const int32_t packed = (int32_t)in[1], before = (int32_t)(in[2] & 4095);                         \
        const int32_t after = (int32_t)(in[2] >> 12 & 4095), width = before + packed * (together) + after; \
        const uint32_t mask = ((1u << (bits)) - 1) * ((bits) * (together) > 8 ? 0x10001u : 0x1010101u);  \
        const uint32_t added = in[4], turned = in[2] >> 24 & 1 ? 0x80808080u : 0x80008000u;                  \
        const mt_word *const how = in;                                                                   \
        mt_word *out = (mt_word *)to;                                                                    \
        uint32_t same = 0; /* in the first row */                                                        \
        in += 5;                                                                                         \
        for (uint32_t row = how[0]; row > 0; --row, same = how[3]) {                                     \
            in = mt_plain_words(out, in, before, same, width);                                           \
            out += before;                                                                               \
            for (const mt_word *const end = in + packed; in < end; ++in)                                 \
                for (int32_t part = 0; part < (together); ++part)                                        \
                    *out++ = ((*in >> (bits) * part & mask) + added) ^ turned;                           \
            in = mt_plain_words(out, in, after, before < 32 ? same >> before : 0, width);                \
            out += after;                                                                                \
        }                                                                                                \
        mt_in_order((mt_word *)to, out, how[2] >> 25);                                                   \
        return to;                                                                                       \
    }

#endif
