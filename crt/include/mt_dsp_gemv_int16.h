/* Internal to mtool: applications include mtool.h. */
/* Dense layers of int16 activations with SIMD32: four outputs at a time. See mt_dsp_int16.h. */
#ifndef MT_DSP_GEMV_INT16_H
#define MT_DSP_GEMV_INT16_H

#include "mt_dsp_int16.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_FPU

/* Four inputs with byte weights: 16 multiply-accumulates in 19 instructions. */
#define MT_DSP16_OUTPUT(word, sum)          \
    "sxtb16 r6, " word "\n\t"               \
    "sxtb16 " word ", " word ", ror #8\n\t" \
    "smlad " sum ", r4, r6, " sum "\n\t"    \
    "smlad " sum ", r5, " word ", " sum "\n\t"
#define MT_DSP16_ROW4                      \
    "ldr r4, [%[x]], #4\n\t"               \
    "ldr r5, [%[x]], #4\n\t"               \
    "ldmia %[w]!, {r8, r9, r10, r11}\n\t"  \
    MT_DSP16_OUTPUT("r8", "%[a]")          \
    MT_DSP16_OUTPUT("r9", "%[b]")          \
    MT_DSP16_OUTPUT("r10", "%[c]")         \
    MT_DSP16_OUTPUT("r11", "%[d]")
/* Two inputs with int16 weights: 8 in 6. */
#define MT_DSP16_HALF_ROW2                 \
    "ldr r4, [%[x]], #4\n\t"               \
    "ldmia %[w]!, {r8, r9, r10, r11}\n\t"  \
    "smlad %[a], r4, r8, %[a]\n\t"         \
    "smlad %[b], r4, r9, %[b]\n\t"         \
    "smlad %[c], r4, r10, %[c]\n\t"        \
    "smlad %[d], r4, r11, %[d]\n\t"
#define MT_DSP16_HALF_ROW4 MT_DSP16_HALF_ROW2 MT_DSP16_HALF_ROW2
#define MT_DSP16_DENSE(macs, results)                                                                               \
    __asm__ volatile("ldrd %[a], %[b], [%[w]], #8\n\t"                                                              \
                     "ldrd %[c], %[d], [%[w]], #8\n\t"                                                              \
                     "1:\n\t" macs "ldr r4, %[e]\n\t"                                                               \
                     "cmp %[x], r4\n\t"                                                                             \
                     "bne 1b\n\t" results                                                                            \
                     : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [w] "+&r"(weights), [x] "+&r"(x)     \
                     : [e] "m"(end)                                                                                 \
                     : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", \
                       "cc", "memory")

/* The dot products of four outputs, and the conversion of their sums. */
#define MT_DSP16_DENSE_BY(unroll, halves, results)                                                                   \
    do {                                                                                                             \
        if ((halves) && (unroll) == 16)                                                                              \
            MT_DSP16_DENSE(MT_DSP16_HALF_ROW4 MT_DSP16_HALF_ROW4 MT_DSP16_HALF_ROW4 MT_DSP16_HALF_ROW4, results);    \
        else if ((halves) && (unroll) == 8)                                                                          \
            MT_DSP16_DENSE(MT_DSP16_HALF_ROW4 MT_DSP16_HALF_ROW4, results);                                          \
        else if (halves)                                                                                             \
            MT_DSP16_DENSE(MT_DSP16_HALF_ROW4, results);                                                             \
        else if ((unroll) == 16)                                                                                     \
            MT_DSP16_DENSE(MT_DSP16_ROW4 MT_DSP16_ROW4 MT_DSP16_ROW4 MT_DSP16_ROW4, results);                        \
        else if ((unroll) == 8)                                                                                      \
            MT_DSP16_DENSE(MT_DSP16_ROW4 MT_DSP16_ROW4, results);                                                    \
        else                                                                                                         \
            MT_DSP16_DENSE(MT_DSP16_ROW4, results);                                                                  \
    } while (0)

/* For each four outputs: biases, for four inputs a word of each (`halves`: for two), scales. */
MT_DSP_INLINE const uint32_t *mt_dsp16_rows(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                            int16_t *output, int32_t groups, int unroll, int halves,
                                            const struct mt_dsp_range *range)
{
    const struct mt_dsp_range own = *range;
    do {
        const int16_t *x = input;
        int32_t a, b, c, d;
        MT_DSP16_DENSE_BY(unroll, halves, MT_DSP_FLOAT4);
        MT_DSP16_CLAMP2(a, b);
        MT_DSP16_CLAMP2(c, d);
        memcpy(output, &a, 4);
        memcpy(output + 2, &c, 4);
        output += 4;
    } while (--groups);
    return weights;
}

/* The same without scales: the results are the sums. */
MT_DSP_INLINE const uint32_t *mt_dsp16_sums(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                            int32_t *output, int32_t groups, int unroll, int halves)
{
    do {
        const int16_t *x = input;
        int32_t a, b, c, d;
        MT_DSP16_DENSE_BY(unroll, halves, "");
        output[0] = a;
        output[1] = b;
        output[2] = c;
        output[3] = d;
        output += 4;
    } while (--groups);
    return weights;
}

#else /* portable version */

/* The dot products of four outputs; returns the place of their scales. */
MT_DSP_INLINE const uint32_t *mt_dsp16_dots(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                            uint32_t *sums, int halves)
{
    for (int32_t j = 0; j < 4; ++j)
        sums[j] = *weights++;
    for (const int16_t *x = input; x != end; weights += 4)
        for (int32_t half = 0; half < (halves ? 1 : 2); ++half, x += 2) {
            int32_t pair;
            memcpy(&pair, x, 4);
            for (int32_t j = 0; j < 4; ++j) {
                const uint32_t w = weights[j];
                const int32_t both = halves ? (int32_t)w : half ? mt_dsp16_second(w) : mt_dsp16_first(w);
                sums[j] = mt_dsp_smlad(pair, both, sums[j]);
            }
        }
    return weights;
}

MT_DSP_INLINE const uint32_t *mt_dsp16_rows(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                            int16_t *output, int32_t groups, int unroll, int halves,
                                            const struct mt_dsp_range *range)
{
    (void)unroll;
    for (; groups; --groups, output += 4) {
        uint32_t sums[4];
        weights = mt_dsp16_dots(input, end, weights, sums, halves);
        for (int32_t j = 0; j < 4; ++j)
            output[j] = mt_dsp16_narrow(sums[j], weights[j], range);
        weights += 4;
    }
    return weights;
}

MT_DSP_INLINE const uint32_t *mt_dsp16_sums(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                            int32_t *output, int32_t groups, int unroll, int halves)
{
    (void)unroll;
    for (; groups; --groups, output += 4) {
        uint32_t sums[4];
        weights = mt_dsp16_dots(input, end, weights, sums, halves);
        memcpy(output, sums, 16);
    }
    return weights;
}

#endif

/* The same with 64-bit sums, two outputs at a time: biases (four words), words of weights, scales. */
MT_DSP_INLINE const uint32_t *mt_dsp16_rows_long(const int16_t *input, const int16_t *end, const uint32_t *weights,
                                                 int16_t *output, int32_t groups, int halves,
                                                 const struct mt_dsp_range *range)
{
    for (; groups; --groups, output += 2) {
        int64_t sums[2];
        memcpy(sums, weights, 16);
        weights += 4;
        int64_t a = sums[0], b = sums[1];
        for (const int16_t *x = input; x != end; weights += 2) {
            int32_t pair;
            memcpy(&pair, x, 4);
            x += 2;
            a = mt_dsp16_mac_long(pair, halves ? (int32_t)weights[0] : mt_dsp16_first(weights[0]), a);
            b = mt_dsp16_mac_long(pair, halves ? (int32_t)weights[1] : mt_dsp16_first(weights[1]), b);
            if (halves)
                continue;
            memcpy(&pair, x, 4);
            x += 2;
            a = mt_dsp16_mac_long(pair, mt_dsp16_second(weights[0]), a);
            b = mt_dsp16_mac_long(pair, mt_dsp16_second(weights[1]), b);
        }
        output[0] = mt_dsp16_narrow_long(a, weights[0], range);
        output[1] = mt_dsp16_narrow_long(b, weights[1], range);
        weights += 2;
    }
    return weights;
}

/* The instances that operators share: `groups` of four outputs, or of two with 64-bit sums. */
#define MT_DSP16_ROWS(name, unroll, halves)                                                                          \
    MT_OPERATOR const uint32_t *name(const int16_t *input, const int16_t *end, const uint32_t *weights,              \
                                     int16_t *output, int32_t groups, const struct mt_dsp_range *range)              \
    {                                                                                                                \
        return mt_dsp16_rows(input, end, weights, output, groups, unroll, halves, range);                            \
    }
MT_DSP16_ROWS(mt_dsp16_row_bytes_4, 4, 0)
MT_DSP16_ROWS(mt_dsp16_row_bytes_8, 8, 0)
MT_DSP16_ROWS(mt_dsp16_row_bytes_16, 16, 0)
MT_DSP16_ROWS(mt_dsp16_row_halves_4, 4, 1)
MT_DSP16_ROWS(mt_dsp16_row_halves_8, 8, 1)
MT_DSP16_ROWS(mt_dsp16_row_halves_16, 16, 1)

#define MT_DSP16_SUMS(name, unroll, halves)                                                                          \
    MT_OPERATOR const uint32_t *name(const int16_t *input, const int16_t *end, const uint32_t *weights,              \
                                     int32_t *output, int32_t groups)                                                \
    {                                                                                                                \
        return mt_dsp16_sums(input, end, weights, output, groups, unroll, halves);                                   \
    }
MT_DSP16_SUMS(mt_dsp16_row_sums_bytes_4, 4, 0)
MT_DSP16_SUMS(mt_dsp16_row_sums_bytes_8, 8, 0)
MT_DSP16_SUMS(mt_dsp16_row_sums_bytes_16, 16, 0)
MT_DSP16_SUMS(mt_dsp16_row_sums_halves_4, 4, 1)
MT_DSP16_SUMS(mt_dsp16_row_sums_halves_8, 8, 1)
MT_DSP16_SUMS(mt_dsp16_row_sums_halves_16, 16, 1)

#define MT_DSP16_ROWS_LONG(name, halves)                                                                             \
    MT_OPERATOR const uint32_t *name(const int16_t *input, const int16_t *end, const uint32_t *weights,              \
                                     int16_t *output, int32_t groups, const struct mt_dsp_range *range)              \
    {                                                                                                                \
        const struct mt_dsp_range own = *range;                                                                      \
        return mt_dsp16_rows_long(input, end, weights, output, groups, halves, &own);                                \
    }
MT_DSP16_ROWS_LONG(mt_dsp16_row_bytes_long, 0)
MT_DSP16_ROWS_LONG(mt_dsp16_row_halves_long, 1)

#ifdef __cplusplus
}
#endif

#endif
