/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int16 activations with SIMD32: three columns at a time, by all output channels. See
 * mt_dsp_int16.h. */
#ifndef MT_DSP_TILE_3X2_INT16_H
#define MT_DSP_TILE_3X2_INT16_H

#include "mt_dsp_int16.h"
#include "mt_dsp_tile_3x2_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of the three columns, [c0 c1 c2] of each pair; an odd element is paired with a zero. Returns where it
 * continues. */
MT_DSP_INLINE int32_t *mt_dsp16_copy1(int32_t *column, const int16_t *x, int32_t count)
{
    MT_UNROLL(4)
    for (int32_t i = 0; i < count / 2; ++i, column += 3, x += 2)
        memcpy(column, x, 4);
    if (count % 2) {
        *column = (uint16_t)*x;
        column += 3;
    }
    return column;
}

/* The same number everywhere: padding. */
MT_DSP_INLINE int32_t *mt_dsp16_fill1(int32_t *column, int16_t value, int32_t count)
{
    for (int32_t i = 0; i < count / 2; ++i, column += 3)
        *column = (int32_t)((uint32_t)(uint16_t)value * 0x10001u);
    if (count % 2) {
        *column = (uint16_t)value;
        column += 3;
    }
    return column;
}

#ifdef MT_DSP_FPU

/* Byte weights of two channels, four steps of k: 19 instructions. */
#define MT_DSP16_APART2(rotation)               \
    "ldmia %[c]!, {r8, r9, r10}\n\t"         \
    "sxtb16 r6, r11" rotation "\n\t"         \
    "smlad %[a0], r8, r6, %[a0]\n\t"         \
    "smlad %[a1], r9, r6, %[a1]\n\t"         \
    "smlad %[a2], r10, r6, %[a2]\n\t"        \
    "sxtb16 r6, r12" rotation "\n\t"         \
    "smlad %[b0], r8, r6, %[b0]\n\t"         \
    "smlad %[b1], r9, r6, %[b1]\n\t"         \
    "smlad %[b2], r10, r6, %[b2]\n\t"
#define MT_DSP16_APART4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP16_APART2("") MT_DSP16_APART2(", ror #8")
#define MT_DSP16_APART8 MT_DSP16_APART4 MT_DSP16_APART4
#define MT_DSP16_APART16 MT_DSP16_APART8 MT_DSP16_APART8
#define MT_DSP16_APART28 MT_DSP16_APART16 MT_DSP16_APART8 MT_DSP16_APART4
#define MT_DSP16_DOT3(macs)                                                                                        \
    __asm__ volatile("ldrd %[a0], %[b0], [%[w]], #8\n\t"                                                         \
                     "mov %[a1], %[a0]\n\t"                                                                      \
                     "mov %[b1], %[b0]\n\t"                                                                      \
                     "mov %[a2], %[a0]\n\t"                                                                      \
                     "mov %[b2], %[b0]\n\t"                                                                      \
                     "1:\n\t" macs "ldr r6, %[end]\n\t"                                                          \
                     "cmp %[c], r6\n\t"                                                                          \
                     "bne 1b"                                                                                    \
                     : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [b0] "=&r"(b0), [b1] "=&r"(b1),           \
                       [b2] "=&r"(b2), [w] "+&r"(weights), [c] "+&r"(c)                                          \
                     : [end] "m"(end)                                                                            \
                     : "r6", "r8", "r9", "r10", "r11", "r12", "cc", "memory")

#endif

/* Three interleaved columns. */
MT_DSP_INLINE void mt_dsp16_copy3(int32_t *columns, const int16_t *x0, const int16_t *x1, const int16_t *x2,
                                  int32_t count)
{
#ifdef MT_DSP_FPU
    for (int32_t words = count / 2; words; --words)
        __asm__ volatile("ldr r4, [%1], #4\n\t"
                         "ldr r5, [%2], #4\n\t"
                         "ldr r6, [%3], #4\n\t"
                         "stmia %0!, {r4, r5, r6}"
                         : "+r"(columns), "+r"(x0), "+r"(x1), "+r"(x2)::"r4", "r5", "r6", "memory");
    if (count % 2) {
        columns[0] = (uint16_t)*x0;
        columns[1] = (uint16_t)*x1;
        columns[2] = (uint16_t)*x2;
    }
#else
    mt_dsp16_copy1(columns, x0, count);
    mt_dsp16_copy1(columns + 1, x1, count);
    mt_dsp16_copy1(columns + 2, x2, count);
#endif
}

#ifdef MT_DSP_FPU

/* Two steps of k with int16 weights: 12 multiply-accumulates in 8 instructions. Byte weights are those of int8
 * activations stored apart, whose columns have the same layout: 24 in 19. */
#define MT_DSP16_MAC2                    \
    "ldrd r11, r12, [%[w]], #8\n\t"      \
    "ldmia %[c]!, {r8, r9, r10}\n\t"     \
    "smlad %[a0], r8, r11, %[a0]\n\t"    \
    "smlad %[a1], r9, r11, %[a1]\n\t"    \
    "smlad %[a2], r10, r11, %[a2]\n\t"   \
    "smlad %[b0], r8, r12, %[b0]\n\t"    \
    "smlad %[b1], r9, r12, %[b1]\n\t"    \
    "smlad %[b2], r10, r12, %[b2]\n\t"
#define MT_DSP16_MAC8 MT_DSP16_MAC2 MT_DSP16_MAC2 MT_DSP16_MAC2 MT_DSP16_MAC2
#define MT_DSP16_MAC16 MT_DSP16_MAC8 MT_DSP16_MAC8
#define MT_DSP16_MAC28 MT_DSP16_MAC16 MT_DSP16_MAC8 MT_DSP16_MAC2 MT_DSP16_MAC2

/* The dot products of three columns and two channels. */
#define MT_DSP16_DOT3_BY(unroll, halves)        \
    do {                                        \
        if ((halves) && (unroll) == 28)         \
            MT_DSP16_DOT3(MT_DSP16_MAC28);        \
        else if ((halves) && (unroll) == 16)    \
            MT_DSP16_DOT3(MT_DSP16_MAC16);        \
        else if (halves)                        \
            MT_DSP16_DOT3(MT_DSP16_MAC8);         \
        else if ((unroll) == 28)                \
            MT_DSP16_DOT3(MT_DSP16_APART28);        \
        else if ((unroll) == 16)                \
            MT_DSP16_DOT3(MT_DSP16_APART16);        \
        else                                    \
            MT_DSP16_DOT3(MT_DSP16_APART8);         \
    } while (0)

/* Three columns by all output channels, two at a time. For each two channels the weights are: biases a and b, for
 * four steps of k a word of a and one of b (`halves`: for two), scales a and b. */
MT_DSP_INLINE void mt_dsp16_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int16_t *o0,
                                    int16_t *o1, int16_t *o2, int32_t pairs, int unroll, int halves,
                                    const struct mt_dsp_range *range)
{
    const struct mt_dsp_range own = *range;
    do {
        int32_t a0, a1, a2, b0, b1, b2;
        const int32_t *c = columns;
        MT_DSP16_DOT3_BY(unroll, halves);
        MT_DSP_FLOAT6();
        MT_DSP16_CLAMP2(a0, b0);
        MT_DSP16_CLAMP2(a1, b1);
        MT_DSP16_CLAMP2(a2, b2);
        memcpy(o0, &a0, 4);
        memcpy(o1, &a1, 4);
        memcpy(o2, &a2, 4);
        o0 += 2;
        o1 += 2;
        o2 += 2;
    } while (--pairs);
}

/* The same without scales: the results are the sums. */
MT_DSP_INLINE void mt_dsp16_column_sums(const int32_t *columns, const int32_t *end, const uint32_t *weights,
                                        int32_t *o0, int32_t *o1, int32_t *o2, int32_t pairs, int unroll, int halves)
{
    do {
        int32_t a0, a1, a2, b0, b1, b2;
        const int32_t *c = columns;
        MT_DSP16_DOT3_BY(unroll, halves);
        *o0++ = a0;
        *o0++ = b0;
        *o1++ = a1;
        *o1++ = b1;
        *o2++ = a2;
        *o2++ = b2;
    } while (--pairs);
}

#else /* portable version */

/* The dot products of three columns and two channels; returns the place of their scales. */
MT_DSP_INLINE const uint32_t *mt_dsp16_dot3(const int32_t *columns, const int32_t *end, const uint32_t *weights,
                                            uint32_t *sums, int halves)
{
    for (int32_t j = 0; j < 6; ++j)
        sums[j] = weights[j % 2];
    weights += 2;
    for (const int32_t *c = columns; c != end; weights += 2)
        for (int32_t half = 0; half < (halves ? 1 : 2); ++half, c += 3)
            for (int32_t j = 0; j < 6; ++j) {
                const uint32_t w = weights[j % 2];
                const int32_t pair = halves ? (int32_t)w : half ? mt_dsp16_second(w) : mt_dsp16_first(w);
                sums[j] = mt_dsp_smlad(c[j / 2], pair, sums[j]);
            }
    return weights;
}

MT_DSP_INLINE void mt_dsp16_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int16_t *o0,
                                    int16_t *o1, int16_t *o2, int32_t pairs, int unroll, int halves,
                                    const struct mt_dsp_range *range)
{
    int16_t *const o[3] = {o0, o1, o2};
    (void)unroll;
    for (int32_t n = 0; n < pairs; ++n) {
        uint32_t sums[6];
        weights = mt_dsp16_dot3(columns, end, weights, sums, halves);
        for (int32_t j = 0; j < 6; ++j)
            o[j / 2][2 * n + j % 2] = mt_dsp16_narrow(sums[j], weights[j % 2], range);
        weights += 2;
    }
}

MT_DSP_INLINE void mt_dsp16_column_sums(const int32_t *columns, const int32_t *end, const uint32_t *weights,
                                        int32_t *o0, int32_t *o1, int32_t *o2, int32_t pairs, int unroll, int halves)
{
    int32_t *const o[3] = {o0, o1, o2};
    (void)unroll;
    for (int32_t n = 0; n < pairs; ++n) {
        uint32_t sums[6];
        weights = mt_dsp16_dot3(columns, end, weights, sums, halves);
        for (int32_t j = 0; j < 6; ++j)
            memcpy(&o[j / 2][2 * n + j % 2], &sums[j], 4);
    }
}

#endif

/* The same with 64-bit sums, a channel at a time: bias (two words), words of weights, scale. */
MT_DSP_INLINE void mt_dsp16_columns_long(const int32_t *columns, const int32_t *end, const uint32_t *weights,
                                         int16_t *o0, int16_t *o1, int16_t *o2, int32_t channels, int halves,
                                         const struct mt_dsp_range *range)
{
    for (; channels; --channels) {
        int64_t bias;
        memcpy(&bias, weights, 8);
        weights += 2;
        int64_t s0 = bias, s1 = bias, s2 = bias;
        for (const int32_t *c = columns; c != end; ++weights) {
            const int32_t first = halves ? (int32_t)*weights : mt_dsp16_first(*weights);
            s0 = mt_dsp16_mac_long(c[0], first, s0);
            s1 = mt_dsp16_mac_long(c[1], first, s1);
            s2 = mt_dsp16_mac_long(c[2], first, s2);
            c += 3;
            if (halves)
                continue;
            const int32_t second = mt_dsp16_second(*weights);
            s0 = mt_dsp16_mac_long(c[0], second, s0);
            s1 = mt_dsp16_mac_long(c[1], second, s1);
            s2 = mt_dsp16_mac_long(c[2], second, s2);
            c += 3;
        }
        *o0++ = mt_dsp16_narrow_long(s0, *weights, range);
        *o1++ = mt_dsp16_narrow_long(s1, *weights, range);
        *o2++ = mt_dsp16_narrow_long(s2, *weights, range);
        ++weights;
    }
}

/* The instances that operators share. `pairs` of channels; all channels with 64-bit sums. */
#define MT_DSP16_COLUMNS(name, unroll, halves)                                                                       \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int16_t *o0,          \
                          int16_t *o1, int16_t *o2, int32_t pairs, const struct mt_dsp_range *range)                 \
    {                                                                                                                \
        mt_dsp16_columns(columns, end, weights, o0, o1, o2, pairs, unroll, halves, range);                           \
    }
MT_DSP16_COLUMNS(mt_dsp16_bytes_8, 8, 0)
MT_DSP16_COLUMNS(mt_dsp16_bytes_16, 16, 0)
MT_DSP16_COLUMNS(mt_dsp16_bytes_28, 28, 0)
MT_DSP16_COLUMNS(mt_dsp16_halves_8, 8, 1)
MT_DSP16_COLUMNS(mt_dsp16_halves_16, 16, 1)
MT_DSP16_COLUMNS(mt_dsp16_halves_28, 28, 1)

#define MT_DSP16_COLUMN_SUMS(name, unroll, halves)                                                                   \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int32_t *o0,          \
                          int32_t *o1, int32_t *o2, int32_t pairs)                                                   \
    {                                                                                                                \
        mt_dsp16_column_sums(columns, end, weights, o0, o1, o2, pairs, unroll, halves);                              \
    }
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_bytes_8, 8, 0)
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_bytes_16, 16, 0)
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_bytes_28, 28, 0)
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_halves_8, 8, 1)
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_halves_16, 16, 1)
MT_DSP16_COLUMN_SUMS(mt_dsp16_sums_halves_28, 28, 1)

#define MT_DSP16_COLUMNS_LONG(name, halves)                                                                          \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int16_t *o0,          \
                          int16_t *o1, int16_t *o2, int32_t channels, const struct mt_dsp_range *range)              \
    {                                                                                                                \
        const struct mt_dsp_range own = *range;                                                                      \
        mt_dsp16_columns_long(columns, end, weights, o0, o1, o2, channels, halves, &own);                            \
    }
MT_DSP16_COLUMNS_LONG(mt_dsp16_bytes_long, 0)
MT_DSP16_COLUMNS_LONG(mt_dsp16_halves_long, 1)

#ifdef __cplusplus
}
#endif

#endif
