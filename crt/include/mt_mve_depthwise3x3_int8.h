/* Internal to mtool: applications include mtool.h. */
/* Depthwise 3x3 convolutions of int8 with Helium: 16 lanes of channels. Plain C where mt_mve.h is. */
#ifndef MT_MVE_DEPTHWISE3X3_INT8_H
#define MT_MVE_DEPTHWISE3X3_INT8_H

#include "mt_mve_taps_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

#define MT_MVE_SLIDE(scale)                                                                                    \
    MT_KEPT(__asm__ volatile("1:\n\t"                                                                          \
                     "vldrw.32 q0, [%[w], #80]\n\t"                                                            \
                     "vldrw.32 q1, [%[w], #96]\n\t"                                                            \
                     "vldrw.32 q2, [%[w], #112]\n\t"                                                           \
                     "vldrw.32 q3, [%[w], #128]\n\t"                                                           \
                     MT_MVE_TAPS2("[%[r0]]", "[%[r0], %[x1]]", "-64", "-48")                                   \
                     MT_MVE_TAPS2("[%[r0], %[x2]]", "[%[r1]]", "-32", "-16")                                   \
                     MT_MVE_TAPS2("[%[r1], %[x1]]", "[%[r1], %[x2]]", "0", "16")                               \
                     MT_MVE_TAPS2("[%[r2]]", "[%[r2], %[x1]]", "32", "48")                                     \
                     MT_MVE_TAPS1("[%[r2], %[x2]]", "64")                                                      \
                     scale("q0", "q4", "144", "208")                                                           \
                     scale("q1", "q5", "160", "224")                                                           \
                     scale("q2", "q6", "176", "240")                                                           \
                     scale("q3", "q7", "192", "256")                                                           \
                     "vqmovnb.s32 q0, q0\n\t"                                                                  \
                     "vqmovnb.s32 q2, q2\n\t"                                                                  \
                     "vqmovnt.s32 q0, q1\n\t"                                                                  \
                     "vqmovnt.s32 q2, q3\n\t"                                                                  \
                     "vqadd.s16 q0, q0, %[zero]\n\t"                                                           \
                     "vqadd.s16 q2, q2, %[zero]\n\t"                                                           \
                     "vqmovnb.s16 q0, q0\n\t"                                                                  \
                     "vqmovnt.s16 q0, q2\n\t"                                                                  \
                     "vmov.i8 q4, %[low]\n\t"                                                                  \
                     "vmov.i8 q5, %[high]\n\t"                                                                 \
                     "vmax.s8 q0, q0, q4\n\t"                                                                  \
                     "vmin.s8 q0, q0, q5\n\t"                                                                  \
                     "add %[r0], %[next]\n\t"                                                                  \
                     "add %[r1], %[next]\n\t"                                                                  \
                     "add %[r2], %[next]\n\t"                                                                  \
                     "vstrb.8 q0, [%[o]]\n\t"                                                                  \
                     "add %[o], %[step]\n\t"                                                                   \
                     "subs %[n], #1\n\t"                                                                       \
                     "bne 1b"                                                                                  \
                     : [r0] "+&r"(r0), [r1] "+&r"(r1), [r2] "+&r"(r2), [o] "+&r"(output), [n] "+&r"(count)     \
                     : [w] "r"(w), [zero] "r"(zero_point), [x1] "i"(lanes), [x2] "i"(2 * lanes),               \
                       [next] "i"(stride * 16), [step] "i"(step), [low] "i"(low & 255), [high] "i"(high & 255) \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory"))

/* A row of outputs of a 3x3 depthwise, 16 lanes at a time: 16 channels of a pixel, or 8 of two pixels. `r0` to `r2` are
 * the padded rows of input, with `lanes` channels a pixel; the weights are nine vectors, then bias and scale in the
 * lanes' order after widening. All from `lanes` on are constants. */
MT_MVE_INLINE void mt_mve_slide_by(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,
                                   const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes,
                                   int32_t stride, int32_t step, int32_t low, int32_t high, enum mt_scaling by)
{
    const int8_t *const w = weights + 64;
    if (by == MT_TWICE && zero_point == -128)
        MT_MVE_SLIDE(MT_MVE_TWICE_RELU); /* negative results are clamped */
    else if (by == MT_TWICE)
        MT_MVE_SLIDE(MT_MVE_TWICE);
    else if (by == MT_ONCE)
        MT_MVE_SLIDE(MT_MVE_ONCE);
    else
        MT_MVE_SLIDE(MT_MVE_FLOAT);
}

#else /* portable version */

MT_MVE_INLINE void mt_mve_slide_by(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,
                                   const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes,
                                   int32_t stride, int32_t step, int32_t low, int32_t high, enum mt_scaling by)
{
    const struct mt_mve_range range =
        MT_MVE_RANGE((int16_t)zero_point, (int16_t)low, (int16_t)high);
    const int8_t *const rows[3] = {r0, r1, r2};
    for (int32_t x = 0; x < count; ++x, output += step)
        for (int32_t i = 0; i < 16; ++i) {
            const int32_t lane = i % 2 * 8 + i / 2 % 2 * 4 + i / 4; /* the place of channel i's bias and scale */
            int32_t sum;
            memcpy(&sum, weights + 144 + 4 * lane, 4);
            for (int32_t tap = 0; tap < 9; ++tap)
                sum += rows[tap / 3][x * stride * 16 + tap % 3 * lanes + i] * weights[16 * tap + i];
            output[i] = mt_mve_narrow(sum, weights + 208 + 4 * lane, 16, by, &range);
        }
}

#endif

#define MT_MVE_SLIDE_BY(name, by)                                                                                    \
    MT_MVE_INLINE void name(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,                    \
                            const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes, int32_t stride, \
                            int32_t step, int32_t low, int32_t high)                                                 \
    {                                                                                                                \
        mt_mve_slide_by(r0, r1, r2, output, weights, zero_point, count, lanes, stride, step, low, high, by);         \
    }
MT_MVE_SLIDE_BY(mt_mve_slide, MT_BY_FLOAT)
MT_MVE_SLIDE_BY(mt_mve_slide_twice, MT_TWICE)
MT_MVE_SLIDE_BY(mt_mve_slide_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
