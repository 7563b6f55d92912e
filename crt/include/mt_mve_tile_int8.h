/* Register tiles of int8 with Helium: a few pixels by a few output channels, eight sums. What is the same of each tile; in
 * plain C as mt_mve.h is.
 *
 * The columns of a tile's pixels stand side by side in blocks of 16 bytes. For each tile's channels the weights are:
 * biases, blocks of 16 of each channel, scales. */
#ifndef MT_MVE_TILE_INT8_H
#define MT_MVE_TILE_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* One of `pixels` columns that stand side by side; the last block is filled up with zeros. */
MT_MVE_INLINE void mt_mve_column_of(int8_t *column, const int8_t *x, int32_t count, int32_t pixels)
{
    for (; count >= 16; count -= 16, x += 16, column += 16 * pixels)
        vstrbq_s8(column, vldrbq_s8(x));
    if (count)
        vstrbq_s8(column, vldrbq_z_s8(x, vctp8q((uint32_t)count)));
}

MT_MVE_INLINE int8_t *mt_mve_copy_of(int8_t *column, const int8_t *x, int32_t blocks, int32_t pixels)
{
    for (; blocks; --blocks, x += 16, column += 16 * pixels)
        vstrbq_s8(column, vldrbq_s8(x));
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill_of(int8_t *column, int8_t value, int32_t blocks, int32_t pixels)
{
    for (; blocks; --blocks, column += 16 * pixels)
        vstrbq_s8(column, vdupq_n_s8(value));
    return column;
}

/* Eight sums from their biases on, scaled and stored: `biases` of the channels into r0 to lr, `blocks` of products, what
 * scales q0 and q1 with what it reads from the weights, and how many `channels` the output goes on. */
#define MT_MVE_TILE(biases, blocks, scale, channels)                        \
    __asm__ volatile(biases "1:\n\t" blocks "cmp %[c], %[end]\n\t"          \
                     "bne 1b\n\t"                                           \
                     "vmov q0[2], q0[0], r0, r4\n\t"                        \
                     "vmov q0[3], q0[1], r2, r6\n\t"                        \
                     "vmov q1[2], q1[0], r8, r12\n\t"                       \
                     "vmov q1[3], q1[1], r10, lr\n\t" scale                 \
                     "vqmovnb.s32 q0, q0\n\t"                               \
                     "vqmovnt.s32 q0, q1\n\t"                               \
                     "ldr r0, %[limits]\n\t"                                \
                     "vldrh.u16 q1, [r0]\n\t"                               \
                     "vqadd.s16 q0, q0, q1\n\t"                             \
                     "vldrh.u16 q1, [r0, #16]\n\t"                          \
                     "vmax.s16 q0, q0, q1\n\t"                              \
                     "vldrh.u16 q1, [r0, #32]\n\t"                          \
                     "vmin.s16 q0, q0, q1\n\t"                              \
                     "vstrb.16 q0, [%[o], %q[at]]\n\t"                      \
                     "adds %[o], #" channels                                \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o] "+&r"(output)  \
                     : [end] "r"(end), [at] "w"(at), [limits] "m"(range)    \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")

/* The tile `of` so many blocks an iteration, by a scale. */
#define MT_MVE_TILE_UNROLLED(of, block, scale)          \
    do {                                                \
        if (unroll == 4)                                \
            of(block block block block, scale);         \
        else if (unroll == 3)                           \
            of(block block block, scale);               \
        else if (unroll == 2)                           \
            of(block block, scale);                     \
        else                                            \
            of(block, scale);                           \
    } while (0)

/* How q0 and q1 are scaled by what `loads` put into q2, and of multipliers into q3 as well. Those are followed by their
 * places, negative, since VRSHL shifts to the left. It rounds ties up: of what is negative, one less goes away from
 * zero. */
#define MT_MVE_SCALE_FLOAT(loads) \
    loads                         \
    "vcvt.f32.s32 q0, q0\n\t"     \
    "vcvt.f32.s32 q1, q1\n\t"     \
    "vmul.f32 q0, q0, q2\n\t"     \
    "vmul.f32 q1, q1, q2\n\t"     \
    "vcvtn.s32.f32 q0, q0\n\t"    \
    "vcvtn.s32.f32 q1, q1\n\t"
#define MT_MVE_SCALE_TWICE(loads) \
    loads                         \
    "vqrdmulh.s32 q0, q0, q2\n\t" \
    "vqrdmulh.s32 q1, q1, q2\n\t" \
    "vshr.s32 q2, q0, #31\n\t"    \
    "vadd.i32 q0, q0, q2\n\t"     \
    "vshr.s32 q2, q1, #31\n\t"    \
    "vadd.i32 q1, q1, q2\n\t"     \
    "vrshl.s32 q0, q0, q3\n\t"    \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_SCALE_ONCE(loads) \
    loads                        \
    "vmulh.s32 q0, q0, q2\n\t"   \
    "vmulh.s32 q1, q1, q2\n\t"   \
    "vrshl.s32 q0, q0, q3\n\t"   \
    "vrshl.s32 q1, q1, q3\n\t"

#else /* the same in plain C */

MT_MVE_INLINE void mt_mve_column_of(int8_t *column, const int8_t *x, int32_t count, int32_t pixels)
{
    for (; count >= 16; count -= 16, x += 16, column += 16 * pixels)
        memcpy(column, x, 16);
    if (count) {
        memset(column, 0, 16);
        memcpy(column, x, (size_t)count);
    }
}

MT_MVE_INLINE int8_t *mt_mve_copy_of(int8_t *column, const int8_t *x, int32_t blocks, int32_t pixels)
{
    for (; blocks; --blocks, x += 16, column += 16 * pixels)
        memcpy(column, x, 16);
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill_of(int8_t *column, int8_t value, int32_t blocks, int32_t pixels)
{
    for (; blocks; --blocks, column += 16 * pixels)
        memset(column, value, 16);
    return column;
}

/* `pixels` columns by `tiles` times `channels` output channels. */
MT_MVE_INLINE void mt_mve_tiles(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                int32_t step, int32_t tiles, enum mt_scaling by, const struct mt_mve_range *range,
                                int32_t pixels, int32_t channels)
{
    const int32_t depth = (int32_t)(end - columns) / pixels;
    for (; tiles; --tiles, output += channels) {
        const int8_t *const scales = weights + (4 + depth) * channels;
        for (int32_t q = 0; q < channels; ++q)
            for (int32_t p = 0; p < pixels; ++p) {
                const int8_t *const x = columns + 16 * p, *const w = weights + 4 * channels + 16 * q;
                int32_t sum;
                memcpy(&sum, weights + 4 * q, 4);
                for (int32_t k = 0; k < depth; ++k)
                    sum += x[k / 16 * 16 * pixels + k % 16] * w[k / 16 * 16 * channels + k % 16];
                output[p * step + q] = mt_mve_narrow(sum, scales + 4 * q, channels, by, range);
            }
        weights = scales + (by == MT_BY_FLOAT ? 4 : 8) * channels;
    }
}

#endif

/* The functions that operators share: those of a tile, by the scaling and the blocks an iteration. */
#define MT_MVE_TILE_FUNCTION(name, tile, unroll, by)                                                       \
    MT_OPERATOR void name(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output, \
                          int32_t step, int32_t tiles, const struct mt_mve_range *range)                   \
    {                                                                                                      \
        tile(columns, end, weights, output, step, tiles, unroll, by, range);                               \
    }
#define MT_MVE_TILE_FUNCTIONS(name, tile, by)        \
    MT_MVE_TILE_FUNCTION(name##_1, tile, 1, by)      \
    MT_MVE_TILE_FUNCTION(name##_2, tile, 2, by)      \
    MT_MVE_TILE_FUNCTION(name##_3, tile, 3, by)      \
    MT_MVE_TILE_FUNCTION(name##_4, tile, 4, by)

#ifdef __cplusplus
}
#endif

#endif
