/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int8 with any kernel and Helium: 16 lanes of channels. Plain C where mt_mve.h is. */
#ifndef MT_MVE_DEPTHWISE_INT8_H
#define MT_MVE_DEPTHWISE_INT8_H

#include "mt_mve_taps_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Rows of up to 16 channels: a vector per pixel; excess lanes are not used. */
MT_MVE_INLINE void mt_mve_lanes(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, int32_t lanes)
{
    const mve_pred16_t wanted = vctp8q((uint32_t)lanes);
    for (; pixels; --pixels, row += 16, x += step)
        vstrbq_s8(row, vldrbq_z_s8(x, wanted));
}

/* The same, with a channel for each lane. */
MT_MVE_INLINE void mt_mve_gather(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, const int8_t *places)
{
    const uint8x16_t at = vreinterpretq_u8_s8(vldrbq_s8(places));
    for (; pixels; --pixels, row += 16, x += step)
        vstrbq_s8(row, vldrbq_gather_offset_s8(x, at));
}

#define MT_MVE_SWEEP(scale)                                                                                    \
    MT_KEPT(__asm__ volatile("vldrw.32 q0, [%[w]], #16\n\t"                                                    \
                     "vldrw.32 q1, [%[w]], #16\n\t"                                                            \
                     "vldrw.32 q2, [%[w]], #16\n\t"                                                            \
                     "vldrw.32 q3, [%[w]], #16\n\t"                                                            \
                     "1:\n\t"                                                                                  \
                     "ldrd %[x0], %[x1], [%[t]], #8\n\t"                                                       \
                     "add %[x0], %[at]\n\t"                                                                    \
                     "add %[x1], %[at]\n\t"                                                                    \
                     MT_MVE_TAPS2("[%[x0]]", "[%[x1]]", "0", "16")                                             \
                     "adds %[w], #32\n\t"                                                                      \
                     "cmp %[t], %[end]\n\t"                                                                    \
                     "bne 1b\n\t"                                                                              \
                     scale("q0", "q4", "0", "64")                                                              \
                     scale("q1", "q5", "16", "80")                                                             \
                     scale("q2", "q6", "32", "96")                                                             \
                     scale("q3", "q7", "48", "112")                                                            \
                     "vqmovnb.s32 q0, q0\n\t"                                                                  \
                     "vqmovnb.s32 q2, q2\n\t"                                                                  \
                     "vqmovnt.s32 q0, q1\n\t"                                                                  \
                     "vqmovnt.s32 q2, q3\n\t"                                                                  \
                     "vldrh.u16 q4, [%[range]]\n\t"                                                            \
                     "vldrh.u16 q5, [%[range], #16]\n\t"                                                       \
                     "vldrh.u16 q6, [%[range], #32]\n\t"                                                       \
                     "vqadd.s16 q0, q0, q4\n\t"                                                                \
                     "vqadd.s16 q2, q2, q4\n\t"                                                                \
                     "vmax.s16 q0, q0, q5\n\t"                                                                 \
                     "vmax.s16 q2, q2, q5\n\t"                                                                 \
                     "vmin.s16 q0, q0, q6\n\t"                                                                 \
                     "vmin.s16 q2, q2, q6\n\t"                                                                 \
                     "vmovnb.i16 q0, q0\n\t"                                                                   \
                     "vmovnt.i16 q0, q2\n\t"                                                                   \
                     "vctp.8 %[lanes]\n\t"                                                                     \
                     "vpst\n\t"                                                                                \
                     "vstrbt.8 q0, [%[o]]"                                                                     \
                     : [w] "+&l"(w), [t] "+&r"(tap), [x0] "=&r"(x0), [x1] "=&r"(x1)                            \
                     : [at] "r"(rows), [end] "r"(end), [range] "l"(range), [lanes] "r"(lanes), [o] "r"(output) \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory"))

/* A row of outputs of a depthwise convolution, up to 16 channels: `taps` has the first output's input for each tap,
 * in bytes from `rows`; their number is even. stride and step: the bytes between the inputs and the results of
 * adjacent outputs. The weights are biases, a vector per tap, scales. */
MT_MVE_INLINE void mt_mve_sweep(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights,
                                int32_t pairs, int32_t count, int32_t stride, int32_t step, int32_t lanes,
                                enum mt_scaling by, const struct mt_mve_range *range)
{
    const int8_t *const last = rows + count * stride;
    for (; rows != last; rows += stride, output += step) {
        const int32_t *tap = taps, *const end = taps + 2 * pairs;
        const int8_t *w = weights, *x0, *x1;
        if (by == MT_TWICE)
            MT_MVE_SWEEP(MT_MVE_TWICE);
        else if (by == MT_ONCE)
            MT_MVE_SWEEP(MT_MVE_ONCE);
        else
            MT_MVE_SWEEP(MT_MVE_FLOAT);
    }
}

#else /* portable version */

MT_MVE_INLINE void mt_mve_lanes(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, int32_t lanes)
{
    for (; pixels; --pixels, row += 16, x += step)
        memcpy(row, x, (size_t)lanes);
}

MT_MVE_INLINE void mt_mve_gather(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, const int8_t *places)
{
    for (; pixels; --pixels, row += 16, x += step)
        for (int32_t i = 0; i < 16; ++i)
            row[i] = x[places[i]];
}

MT_MVE_INLINE void mt_mve_sweep(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights,
                                int32_t pairs, int32_t count, int32_t stride, int32_t step, int32_t lanes,
                                enum mt_scaling by, const struct mt_mve_range *range)
{
    for (int32_t x = 0; x < count; ++x, output += step)
        for (int32_t i = 0; i < lanes; ++i) {
            const int32_t lane = i % 2 * 8 + i / 2 % 2 * 4 + i / 4; /* the place of channel i's bias and scale */
            int32_t sum;
            memcpy(&sum, weights + 4 * lane, 4);
            for (int32_t t = 0; t < 2 * pairs; ++t)
                sum += rows[taps[t] + x * stride + i] * weights[64 + 16 * t + i];
            output[i] = mt_mve_narrow(sum, weights + 64 + 32 * pairs + 4 * lane, 16, by, range);
        }
}

#endif

/* The instances that operators share. */
#define MT_MVE_TAPS(name, by)                                                                             \
    MT_OPERATOR void name(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights, \
                          int32_t pairs, int32_t count, int32_t stride, int32_t step, int32_t lanes,      \
                          const struct mt_mve_range *range)                                               \
    {                                                                                                     \
        mt_mve_sweep(rows, taps, output, weights, pairs, count, stride, step, lanes, by, range);          \
    }
MT_MVE_TAPS(mt_mve_taps, MT_BY_FLOAT)
MT_MVE_TAPS(mt_mve_taps_twice, MT_TWICE)
MT_MVE_TAPS(mt_mve_taps_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
