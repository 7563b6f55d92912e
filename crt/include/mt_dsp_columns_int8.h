/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int8 with SIMD32 whose taps lie at equal distances: four channels at a time, two taps with
 * an instruction. Plain C where mt_dsp.h is.
 *
 * The weights of four channels are: four biases, for each two taps a word of channels 0 and 1 and a word of channels 2
 * and 3 (of bytes: both channels' first taps, then their second taps), the scale of each channel, or its multiplier and
 * places, or multiplier and offset. */
#ifndef MT_DSP_COLUMNS_INT8_H
#define MT_DSP_COLUMNS_INT8_H

#include "mt_dsp_depthwise_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Add the products of two taps, `next` bytes apart, to the sums of four channels. In the written order: the compiler
 * would load everything first, and spill it. */
MT_DSP_INLINE void mt_dsp_two_taps(int32_t sums[4], const int8_t **input, const uint32_t **weights, int32_t next)
{
#ifdef MT_DSP_ASM
    uint32_t p, q, r, s, t, u;
    __asm__ volatile("ldr %[p], [%[x]]\n\t"
                     "ldr %[q], [%[x], %[next]]\n\t"
                     "ldrd %[r], %[s], [%[w]], #8\n\t"
                     "add %[x], %[x], %[next], lsl #1\n\t"
                     "pkhbt %[t], %[p], %[q], lsl #16\n\t"
                     "pkhtb %[q], %[q], %[p], asr #16\n\t"
                     "sxtb16 %[p], %[t]\n\t"
                     "sxtb16 %[t], %[t], ror #8\n\t"
                     "sxtb16 %[u], %[r]\n\t"
                     "sxtb16 %[r], %[r], ror #8\n\t"
                     "smlad %[a], %[p], %[u], %[a]\n\t"
                     "smlad %[b], %[t], %[r], %[b]\n\t"
                     "sxtb16 %[p], %[q]\n\t"
                     "sxtb16 %[q], %[q], ror #8\n\t"
                     "sxtb16 %[u], %[s]\n\t"
                     "sxtb16 %[s], %[s], ror #8\n\t"
                     "smlad %[c], %[p], %[u], %[c]\n\t"
                     "smlad %[d], %[q], %[s], %[d]"
                     : [a] "+&r"(sums[0]), [b] "+&r"(sums[1]), [c] "+&r"(sums[2]), [d] "+&r"(sums[3]),
                       [x] "+&r"(*input), [w] "+&r"(*weights), [p] "=&r"(p), [q] "=&r"(q), [r] "=&r"(r), [s] "=&r"(s),
                       [t] "=&r"(t), [u] "=&r"(u)
                     : [next] "r"(next)
                     : "memory");
#else
    const int8_t *const x = *input;
    for (int32_t c = 0; c < 4; ++c) {
        const uint32_t taps = (*weights)[c / 2] >> c % 2 * 8;
        sums[c] += x[c] * (int8_t)(taps & 255) + x[next + c] * (int8_t)(taps >> 16 & 255);
    }
    *input += 2 * next;
    *weights += 2;
#endif
}

/* The result of a channel, from its sum. */
MT_DSP_INLINE int32_t mt_dsp_tap_result(int32_t sum, const uint32_t *numbers, enum mt_scaling by, int32_t zero_point,
                                    int32_t low, int32_t high, int mixed)
{
    struct mt_dsp_fixed fixed = {0, (int32_t)numbers[0], 0};
    if (by == MT_BY_FLOAT)
        return mt_dsp_requantize(sum, mt_f32_of_u32(numbers[0]), zero_point, low, high);
    fixed.places = (int32_t)numbers[1];
    if (by < MT_EXACT)
        return mt_dsp_rescale(sum, &fixed, by, zero_point, low, high);
    if (mixed && !fixed.multiplier) /* the offset is the float scale */
        return mt_dsp_requantize(sum, mt_f32_of_u32(numbers[1]), zero_point, low, high);
#ifdef MT_DSP_ASM
    __asm__(MT_DSP_EXACT("%0", "%1", "%2", "%3")
            : "+r"(sum)
            : "r"(fixed.multiplier), "r"(fixed.places), "i"(MT_EXACT_PLACES(by))
            : "cc");
    if (low > -128)
        sum = sum > low ? sum : low;
    if (high < 127)
        sum = sum < high ? sum : high;
    return sum;
#else
    return mt_dsp_exact(sum, &fixed, MT_EXACT_PLACES(by), low, high);
#endif
}

/* Four bytes as a word. */
MT_DSP_INLINE uint32_t mt_dsp_word_of(const int32_t bytes[4])
{
#ifdef MT_DSP_ASM
    uint32_t word = (uint32_t)bytes[0];
    __asm__("bfi %0, %1, #8, #8\n\t"
            "bfi %0, %2, #16, #8\n\t"
            "bfi %0, %3, #24, #8"
            : "+&r"(word)
            : "r"(bytes[1]), "r"(bytes[2]), "r"(bytes[3]));
    return word;
#else
    uint32_t word = 0;
    for (int32_t i = 0; i < 4; ++i)
        word |= ((uint32_t)bytes[i] & 255) << 8 * i;
    return word;
#endif
}

/* A pixel of results; `step`: the bytes from a tap to the next. The number of channels is a multiple of four.
 * Everything from `taps` on is constant. */
MT_DSP_INLINE void mt_dsp_tap_sums(const int8_t *input, int8_t *output, const uint32_t *weights, int32_t taps,
                                  int32_t step, int32_t channels, enum mt_scaling by, int32_t zero_point, int32_t low,
                                  int32_t high, int mixed)
{
    const int32_t numbers = by == MT_BY_FLOAT ? 1 : 2;
    const uint32_t *w = weights;
    for (int32_t c = 0; c < channels; c += 4) {
        const int8_t *x = input + c;
        int32_t sums[4] = {(int32_t)w[0], (int32_t)w[1], (int32_t)w[2], (int32_t)w[3]};
        uint32_t result;
        w += 4;
        MT_UNROLL(8)
        for (int32_t t = 0; t < taps; t += 2)
            mt_dsp_two_taps(sums, &x, &w, t + 1 < taps ? step : 0); /* the weight of one too many is 0 */
        MT_UNROLL(4)
        for (int32_t i = 0; i < 4; ++i, w += numbers)
            sums[i] = mt_dsp_tap_result(sums[i], w, by, zero_point, low, high, mixed);
        result = mt_dsp_word_of(sums);
        memcpy(output + c, &result, 4);
    }
}

#ifdef __cplusplus
}
#endif

#endif
