/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int8 with Helium whose taps lie at equal distances: eight channels at a time. Plain C where
 * mt_mve.h is.
 *
 * The weights of eight channels are: biases (even channels first), a vector of bytes a tap, scales or multipliers and
 * places. */
#ifndef MT_MVE_TAPS_INT8_H
#define MT_MVE_TAPS_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Four sums, scaled; `places` follow eight multipliers. */
MT_MVE_INLINE int32x4_t mt_mve_four(int32x4_t sums, const int8_t *packed, enum mt_scaling by)
{
    const int32x4_t words = vldrwq_s32((const int32_t *)(const void *)packed);
    const int32x4_t places = vldrwq_s32((const int32_t *)(const void *)(packed + 32));
    if (by == MT_BY_FLOAT)
        return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sums), vreinterpretq_f32_s32(words)));
    if (by == MT_ONCE)
        return vrshlq_s32(vmulhq_s32(sums, words), places);
    sums = vqrdmulhq_s32(sums, words);
    return vrshlq_s32(vaddq_s32(sums, vshrq_n_s32(sums, 31)), places);
}

#endif

/* A pixel of results; `step`: the bytes from a tap to the next. The number of channels is a multiple of eight. */
MT_MVE_INLINE void mt_mve_tap_sums(const int8_t *input, int8_t *output, const int8_t *weights, int32_t taps,
                                   int32_t step, int32_t channels, const struct mt_mve_range *range, enum mt_scaling by)
{
    const int8_t *w = weights;
    for (int32_t c = 0; c < channels; c += 8, w += by == MT_BY_FLOAT ? 32 : 64) {
        const int8_t *x = input + c;
#ifdef MT_MVE_ASM
        int32x4_t even = vldrwq_s32((const int32_t *)(const void *)w);
        int32x4_t odd = vldrwq_s32((const int32_t *)(const void *)(w + 16));
        int16x8_t a, b, product;
        w += 32;
        __asm__ volatile("dls lr, %[taps]\n\t"
                         "1:\n\t"
                         "vldrb.s16 %q[a], [%[x]]\n\t"
                         "add %[x], %[step]\n\t"
                         "vldrb.s16 %q[b], [%[w]], #8\n\t"
                         "vmullb.s16 %q[product], %q[a], %q[b]\n\t"
                         "vadd.i32 %q[even], %q[even], %q[product]\n\t"
                         "vmullt.s16 %q[product], %q[a], %q[b]\n\t"
                         "vadd.i32 %q[odd], %q[odd], %q[product]\n\t"
                         "le lr, 1b"
                         : [x] "+&l"(x), [w] "+&l"(w), [even] "+&w"(even), [odd] "+&w"(odd), [a] "=&w"(a),
                           [b] "=&w"(b), [product] "=&w"(product)
                         : [taps] "r"(taps), [step] "r"(step)
                         : "lr", "cc", "memory");
        int16x8_t result = vqmovnbq_s32(vdupq_n_s16(0), mt_mve_four(even, w, by));
        result = vqaddq_s16(vqmovntq_s32(result, mt_mve_four(odd, w + 16, by)), vldrhq_s16(range->zero_point));
        result = vminq_s16(vmaxq_s16(result, vldrhq_s16(range->low)), vldrhq_s16(range->high));
        vstrbq_s16(output + c, result);
#else
        const int8_t *const numbers = w + 32 + 8 * taps;
        for (int32_t i = 0; i < 8; ++i) {
            const int32_t place = i % 2 * 16 + i / 2 * 4;
            int32_t sum;
            memcpy(&sum, w + place, 4);
            for (int32_t t = 0; t < taps; ++t)
                sum += x[t * step + i] * w[32 + 8 * t + i];
            output[c + i] = mt_mve_narrow(sum, numbers + place, 8, by, range);
        }
        w = numbers;
#endif
    }
}

#define MT_MVE_TAPS(name, by)                                                                                     \
    MT_OPERATOR void name(const int8_t *input, int8_t *output, const int8_t *weights, int32_t taps, int32_t step, \
                          int32_t channels, const struct mt_mve_range *range)                                     \
    {                                                                                                             \
        mt_mve_tap_sums(input, output, weights, taps, step, channels, range, by);                                 \
    }
MT_MVE_TAPS(mt_mve_taps, MT_BY_FLOAT)
MT_MVE_TAPS(mt_mve_taps_twice, MT_TWICE)
MT_MVE_TAPS(mt_mve_taps_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
