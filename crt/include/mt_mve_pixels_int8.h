/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with Helium for patches of at most 64 bytes: two pixels, whose vectors stay in registers, by
 * four output channels. Plain C where mt_mve.h is.
 *
 * For each four channels the weights are: for each vector of a patch one of each channel, biases, scales. */
#ifndef MT_MVE_PIXELS_INT8_H
#define MT_MVE_PIXELS_INT8_H

#include "mt_mve.h"
#include "mt_mve_move.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of all pixels: bytes of a patch, the distance from a patch and its outputs to those of the other pixel,
 * and to those of the next two; groups of four channels, and the zero point. */
struct mt_mve_pixels {
    int32_t bytes, other, other_outputs, next, next_outputs, fours, zero_point;
};

#ifdef MT_MVE_ASM

/* A vector of both pixels by those of four channels; the first ones start the sums. */
#define MT_MVE_PIXELS_BLOCK(sum, a, b)            \
    "vldrb.u8 q0, [%[w]], #16\n\t"                \
    sum " r0, q0, " a "\n\t"                      \
    "vldrb.u8 q1, [%[w]], #16\n\t"                \
    sum " r8, q0, " b "\n\t"                      \
    sum " r2, q1, " a "\n\t"                      \
    "vldrb.u8 q0, [%[w]], #16\n\t"                \
    sum " r10, q1, " b "\n\t"                     \
    sum " r4, q0, " a "\n\t"                      \
    "vldrb.u8 q1, [%[w]], #16\n\t"                \
    sum " r12, q0, " b "\n\t"                     \
    sum " r6, q1, " a "\n\t"                      \
    sum " lr, q1, " b "\n\t"
#define MT_MVE_PIXELS_STAGED(sum, at, b) "vldrb.u8 q2, [%[s], #" at "]\n\t" MT_MVE_PIXELS_BLOCK(sum, "q2", b)
#define MT_MVE_PIXELS_1 MT_MVE_PIXELS_BLOCK("vmladav.s8", "%q[v0]", "%q[v1]")
#define MT_MVE_PIXELS_2 MT_MVE_PIXELS_1 MT_MVE_PIXELS_BLOCK("vmladava.s8", "%q[v2]", "%q[v3]")
#define MT_MVE_PIXELS_3                                     \
    MT_MVE_PIXELS_1                                         \
    MT_MVE_PIXELS_STAGED("vmladava.s8", "16", "%q[v2]")     \
    MT_MVE_PIXELS_STAGED("vmladava.s8", "32", "%q[v3]")
#define MT_MVE_PIXELS_4                                     \
    MT_MVE_PIXELS_STAGED("vmladav.s8", "0", "%q[v0]")       \
    MT_MVE_PIXELS_STAGED("vmladava.s8", "16", "%q[v1]")     \
    MT_MVE_PIXELS_STAGED("vmladava.s8", "32", "%q[v2]")     \
    MT_MVE_PIXELS_STAGED("vmladava.s8", "48", "%q[v3]")
#define MT_MVE_PIXELS(blocks, rest)                                                                                     \
    __asm__ volatile(blocks                                                                                        \
                     "vldrw.32 q2, [%[w]], #16\n\t"                                                                \
                     "vmov q0[2], q0[0], r0, r4\n\t"                                                               \
                     "vmov q0[3], q0[1], r2, r6\n\t"                                                               \
                     "vmov q1[2], q1[0], r8, r12\n\t"                                                              \
                     "vmov q1[3], q1[1], r10, lr\n\t"                                                              \
                     "vadd.i32 q0, q0, q2\n\t"                                                                     \
                     "vadd.i32 q1, q1, q2\n\t"                                                                     \
                     "vldrw.32 q2, [%[w]], #16\n\t" rest                                                                 \
                     "vstrb.16 q0, [%[o], %q[at]]\n\t"                                                             \
                     "adds %[o], #4"                                                                               \
                     : [w] "+&r"(w), [o] "+&r"(o)                                                                  \
                     : [s] "r"(staging), [at] "w"(at), [near] "r"(near), [v0] "w"(v0), [v1] "w"(v1), [v2] "w"(v2), \
                       [v3] "w"(v3)                                                                                \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "cc", "memory")

#define MT_MVE_PIXELS_BY(blocks)                                          \
    do {                                                                  \
        if (odd)                                                          \
            MT_MVE_PIXELS(blocks, MT_MVE_ODD_FLOATS("q2", "%[near]"));    \
        else                                                              \
            MT_MVE_PIXELS(blocks, MT_MVE_NEAR_FLOATS("q2", "%[near]"));   \
    } while (0)

/* Two pixels at a time; all `blocks` vectors of each are read before any output is written. */
MT_MVE_INLINE void mt_mve_by_pixels(const int8_t *x, int8_t *output, const int8_t *weights, int8_t *staging,
                                    int32_t pairs, int blocks, int odd, const struct mt_mve_pixels *how)
{
    const uint32_t near = (odd ? 0 : MT_MVE_WHOLE_STEPS) + (uint32_t)how->zero_point;
    const mve_pred16_t end = vctp8q((uint32_t)how->bytes - 16U * (uint32_t)(blocks - 1));
    const uint16x8_t half = vshrq_n_u16(vidupq_n_u16(0, 1), 1);
    const uint16x8_t second = vandq_u16(vidupq_n_u16(0, 1), vdupq_n_u16(1));
    const uint16x8_t at = vmlaq_n_u16(half, second, (uint16_t)how->other_outputs); /* a0 b0 a1 b1 a2 b2 a3 b3 */
    for (; pairs; --pairs, x += how->next, output += how->next_outputs) {
        const int8_t *const a = x, *const b = x + how->other, *w = weights;
        int8_t *o = output;
        int8x16_t v0, v1, v2, v3;
        if (blocks == 1) {
            v0 = v2 = vldrbq_z_s8(a, end);
            v1 = v3 = vldrbq_z_s8(b, end);
        } else if (blocks == 2) {
            v0 = vldrbq_s8(a);
            v1 = vldrbq_s8(b);
            v2 = vldrbq_z_s8(a + 16, end);
            v3 = vldrbq_z_s8(b + 16, end);
        } else if (blocks == 3) {
            v0 = vldrbq_s8(a);
            v1 = vldrbq_s8(b);
            v2 = vldrbq_s8(b + 16);
            v3 = vldrbq_z_s8(b + 32, end);
            vstrbq_s8(staging + 16, vldrbq_s8(a + 16));
            vstrbq_s8(staging + 32, vldrbq_z_s8(a + 32, end));
        } else {
            v0 = vldrbq_s8(b);
            v1 = vldrbq_s8(b + 16);
            v2 = vldrbq_s8(b + 32);
            v3 = vldrbq_z_s8(b + 48, end);
            vstrbq_s8(staging, vldrbq_s8(a));
            vstrbq_s8(staging + 16, vldrbq_s8(a + 16));
            vstrbq_s8(staging + 32, vldrbq_s8(a + 32));
            vstrbq_s8(staging + 48, vldrbq_z_s8(a + 48, end));
        }
        for (int32_t fours = how->fours; fours; --fours)
            if (blocks == 1)
                MT_MVE_PIXELS_BY(MT_MVE_PIXELS_1);
            else if (blocks == 2)
                MT_MVE_PIXELS_BY(MT_MVE_PIXELS_2);
            else if (blocks == 3)
                MT_MVE_PIXELS_BY(MT_MVE_PIXELS_3);
            else
                MT_MVE_PIXELS_BY(MT_MVE_PIXELS_4);
    }
}

/* The bytes of a patch whose rows, `row` bytes long (at most 16), are `step` apart in the input: those of `count`
 * rows from `first` on, and of these the bytes selected by `lanes`; `pad` for all others. Up to 16 bytes after them
 * are overwritten. */
MT_MVE_INLINE void mt_mve_patch(int8_t *column, const int8_t *input, int32_t at, int32_t step, int32_t row, int32_t rows,
                                int32_t first, int32_t count, uint32_t lanes, int8_t pad)
{
    const mve_pred16_t all = (mve_pred16_t)((1U << row) - 1U), some = (mve_pred16_t)lanes;
    const int8x16_t outside = vdupq_n_s8(pad);
    const int8_t *x = input + at;
    if (count == rows && lanes == all) {
#pragma GCC unroll 16
        for (int32_t i = 0; i < rows; ++i)
            vstrbq_s8(column + i * row, vldrbq_z_s8(x + i * step, all));
        return;
    }
    for (int32_t i = 0; i < first; ++i, column += row, x += step)
        vstrbq_s8(column, outside);
    for (int32_t i = 0; i < count; ++i, column += row, x += step)
        vstrbq_s8(column, vpselq_s8(vldrbq_z_s8(x, some), outside, some));
    for (int32_t i = first + count; i < rows; ++i, column += row)
        vstrbq_s8(column, outside);
}

#else /* portable version */

MT_MVE_INLINE void mt_mve_patch(int8_t *column, const int8_t *input, int32_t at, int32_t step, int32_t row, int32_t rows,
                                int32_t first, int32_t count, uint32_t lanes, int8_t pad)
{
    for (int32_t i = 0; i < rows; ++i, at += step)
        for (int32_t k = 0; k < row; ++k)
            *column++ = i >= first && i < first + count && (lanes >> k & 1U) ? input[at + k] : pad;
}

MT_MVE_INLINE void mt_mve_by_pixels(const int8_t *x, int8_t *output, const int8_t *weights, int8_t *staging,
                                    int32_t pairs, int blocks, int odd, const struct mt_mve_pixels *how)
{
    const struct mt_mve_range range = MT_MVE_RANGE((int16_t)how->zero_point, -128, 127);
    int8_t patches[2][64];
    (void)staging;
    (void)odd;
    for (; pairs; --pairs, x += how->next, output += how->next_outputs) {
        const int8_t *w = weights;
        memcpy(patches[0], x, (size_t)how->bytes);
        memcpy(patches[1], x + how->other, (size_t)how->bytes);
        for (int32_t four = 0; four < how->fours; ++four, w += 64 * blocks + 32)
            for (int32_t i = 0; i < 8; ++i) {
                const int32_t pixel = i / 4, q = i % 4;
                const int8_t *const scale = w + 64 * blocks + 16 + 4 * q;
                int32_t sum;
                memcpy(&sum, w + 64 * blocks + 4 * q, 4);
                for (int32_t k = 0; k < how->bytes; ++k)
                    sum += patches[pixel][k] * w[k / 16 * 64 + 16 * q + k % 16];
                output[pixel * how->other_outputs + 4 * four + q] = mt_mve_narrow(sum, scale, 4, MT_BY_FLOAT, &range);
            }
    }
}

#endif

/* The instances that operators share, by the number of vectors in a patch, with an even or an odd zero point;
 * `staging` has that number of vectors. */
#define MT_MVE_BY_PIXELS(name, blocks, odd)                                                              \
    MT_OPERATOR void name(const int8_t *x, int8_t *output, const int8_t *weights, int8_t *staging,       \
                          int32_t pairs, const struct mt_mve_pixels *how)                                \
    {                                                                                                    \
        mt_mve_by_pixels(x, output, weights, staging, pairs, blocks, odd, how);                          \
    }
MT_MVE_BY_PIXELS(mt_mve_pixels_1, 1, 0)
MT_MVE_BY_PIXELS(mt_mve_pixels_2, 2, 0)
MT_MVE_BY_PIXELS(mt_mve_pixels_3, 3, 0)
MT_MVE_BY_PIXELS(mt_mve_pixels_4, 4, 0)
MT_MVE_BY_PIXELS(mt_mve_pixels_1_odd, 1, 1)
MT_MVE_BY_PIXELS(mt_mve_pixels_2_odd, 2, 1)
MT_MVE_BY_PIXELS(mt_mve_pixels_3_odd, 3, 1)
MT_MVE_BY_PIXELS(mt_mve_pixels_4_odd, 4, 1)

#ifdef __cplusplus
}
#endif

#endif
