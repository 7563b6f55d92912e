/* Internal to mtool: applications include mtool.h. */
/* Register tiles of int8 with Helium: a few pixels by a few output channels, eight sums. Common parts of all tiles;
 * plain C where mt_mve.h is.
 *
 * The columns of a tile's pixels are interleaved in blocks of 16 bytes. For each tile's channels the weights are:
 * blocks of 16 of each channel, biases and scales, as vectors in which two channels are repeated. */
#ifndef MT_MVE_TILE_INT8_H
#define MT_MVE_TILE_INT8_H

#include "mt_mve.h"
#include "mt_mve_move.h"
#include "mt_mve_pair_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* One of `pixels` interleaved columns; the last block is padded with zeros. */
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

/* Rows of whole vectors, `step` bytes apart; everything but their place is constant. */
MT_MVE_INLINE void mt_mve_copy_rows(int8_t *column, const int8_t *x, int32_t rows, int32_t blocks, int32_t step,
                                    int32_t pixels)
{
#pragma GCC unroll 4
    for (int32_t i = 0; i < rows; ++i, x += step - 16 * blocks)
#pragma GCC unroll 12
        for (int32_t j = 0; j < blocks; ++j)
            __asm__ volatile("vldrb.u8 q0, [%[x]], #16\n\t"
                             "vstrb.8 q0, [%[column]], #%c[next]"
                             : [x] "+r"(x), [column] "+r"(column)
                             : [next] "i"(16 * pixels)
                             : "q0", "memory");
}

MT_MVE_INLINE int8_t *mt_mve_fill_of(int8_t *column, int8_t value, int32_t blocks, int32_t pixels)
{
    for (; blocks; --blocks, column += 16 * pixels)
        vstrbq_s8(column, vdupq_n_s8(value));
    return column;
}

/* Eight sums, scaled and stored: the `first` blocks of products, `more` of them, the conversion of q0 and q1 to
 * bytes with what it reads from the weights, by how many `channels` the output advances, and the scaling's further
 * operands. */
#define MT_MVE_TILE(first, more, scale, channels, ...)                      \
    __asm__ volatile(first more                                             \
                     "vldrw.32 q2, [%[w]], #16\n\t"                         \
                     "vmov q0[2], q0[0], r0, r4\n\t"                        \
                     "vmov q0[3], q0[1], r2, r6\n\t"                        \
                     "vmov q1[2], q1[0], r8, r12\n\t"                       \
                     "vmov q1[3], q1[1], r10, lr\n\t"                       \
                     "vadd.i32 q0, q0, q2\n\t"                              \
                     "vadd.i32 q1, q1, q2\n\t" scale                        \
                     "vstrb.16 q0, [%[o], %q[at]]\n\t"                      \
                     "adds %[o], #" channels                                \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o] "+&r"(output)  \
                     : [end] "r"(end), [at] "w"(at), __VA_ARGS__            \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")

/* The tile `of` a number of blocks per iteration, with a scale; `begin`: the very first block, which starts the
 * sums. */
#define MT_MVE_BEGIN "vmladav.s8"
#define MT_MVE_GO_ON "vmladava.s8"
#define MT_MVE_TILE_1(begin, block) begin
#define MT_MVE_TILE_2(begin, block) begin block(MT_MVE_GO_ON)
#define MT_MVE_TILE_3(begin, block) MT_MVE_TILE_2(begin, block) block(MT_MVE_GO_ON)
#define MT_MVE_TILE_4(begin, block) MT_MVE_TILE_3(begin, block) block(MT_MVE_GO_ON)
#define MT_MVE_TILE_9(begin, block) \
    MT_MVE_TILE_4(begin, block) MT_MVE_TILE_4(block(MT_MVE_GO_ON), block) block(MT_MVE_GO_ON)
#define MT_MVE_TILE_MORE(blocks) \
    "cmp %[c], %[end]\n\t"       \
    "beq 2f\n\t"                 \
    "1:\n\t" blocks              \
    "cmp %[c], %[end]\n\t"       \
    "bne 1b\n\t"                 \
    "2:\n\t"
#define MT_MVE_TILE_TIMES(of, times, begin, block, scale, ...)                                                      \
    do {                                                                                                            \
        if (whole)                                                                                                  \
            of(times(begin, block), "", scale, __VA_ARGS__);                                                        \
        else                                                                                                        \
            of(times(begin, block), MT_MVE_TILE_MORE(times(block(MT_MVE_GO_ON), block)), scale, __VA_ARGS__);       \
    } while (0)
#define MT_MVE_TILE_UNROLLED(of, begin, block, scale, ...)                           \
    do {                                                                             \
        if (unroll == 9)                                                             \
            MT_MVE_TILE_TIMES(of, MT_MVE_TILE_9, begin, block, scale, __VA_ARGS__);  \
        else if (unroll == 4)                                                        \
            MT_MVE_TILE_TIMES(of, MT_MVE_TILE_4, begin, block, scale, __VA_ARGS__);  \
        else if (unroll == 3)                                                        \
            MT_MVE_TILE_TIMES(of, MT_MVE_TILE_3, begin, block, scale, __VA_ARGS__);  \
        else if (unroll == 2)                                                        \
            MT_MVE_TILE_TIMES(of, MT_MVE_TILE_2, begin, block, scale, __VA_ARGS__);  \
        else                                                                         \
            MT_MVE_TILE_TIMES(of, MT_MVE_TILE_1, begin, block, scale, __VA_ARGS__);  \
    } while (0)
/* All channels of a tile's pixels. If registers are left, the first two vectors of the columns stay there: `held`. */
#define MT_MVE_TILE_WIDE(tile, block, scale) \
    MT_MVE_TILE_UNROLLED(tile, block(MT_MVE_BEGIN), block, scale, [zero] "w"(zero), [low] "w"(low), [high] "w"(high))
#define MT_MVE_TILE_NEAR(tile, held, block, scale, added) \
    MT_MVE_TILE_UNROLLED(tile, held, block, scale, [zero] "w"(added), [c0] "w"(c0), [c1] "w"(c1))
#define MT_MVE_TILE_BY(tile, held, block)                                                                        \
    do {                                                                                                         \
        const uint32x4_t near = vdupq_n_u32(MT_MVE_WHOLE_STEPS + (uint32_t)(int32_t)range->zero_point[0]);       \
        const int16x8_t zero = vldrhq_s16(range->zero_point);                                                    \
        const int16x8_t low = vldrhq_s16(range->low), high = vldrhq_s16(range->high);                            \
        const int8x16_t c0 = vldrbq_s8(columns), c1 = vldrbq_s8(columns + 16);                                   \
        const int8_t *const first = by == MT_BY_NEAR_FLOAT || by == MT_BY_ODD_FLOAT ? columns + 32 : columns;    \
        do {                                                                                                     \
            const int8_t *c = first;                                                                             \
            if (by == MT_TWICE)                                                                                  \
                MT_MVE_TILE_WIDE(tile, block, MT_MVE_SCALE_TWICE(MT_MVE_MULTIPLIERS));                           \
            else if (by == MT_ONCE)                                                                              \
                MT_MVE_TILE_WIDE(tile, block, MT_MVE_SCALE_ONCE(MT_MVE_MULTIPLIERS));                            \
            else if (by == MT_BY_FLOAT)                                                                          \
                MT_MVE_TILE_WIDE(tile, block, MT_MVE_SCALE_FLOAT(MT_MVE_SCALES));                                \
            else if (by == MT_BY_ODD_FLOAT)                                                                      \
                MT_MVE_TILE_NEAR(tile, held, block, MT_MVE_SCALES MT_MVE_ODD_FLOATS("q2", "%q[zero]"), zero);    \
            else                                                                                                 \
                MT_MVE_TILE_NEAR(tile, held, block, MT_MVE_SCALES MT_MVE_NEAR_FLOATS("q2", "%q[zero]"), near);   \
        } while (--tiles);                                                                                       \
    } while (0)

#define MT_MVE_SCALES "vldrw.32 q2, [%[w]], #16\n\t"
#define MT_MVE_MULTIPLIERS MT_MVE_SCALES "vldrw.32 q3, [%[w]], #16\n\t"
/* Scale q0 and q1 with what `loads` put into q2, and for multipliers into q3 too. Those are followed by their
 * places, negative, as VRSHL shifts to the left. It rounds ties up: negative numbers are decremented first, to round
 * away from zero. */
#define MT_MVE_SCALED                \
    "vqmovnb.s32 q0, q0\n\t"      \
    "vqmovnt.s32 q0, q1\n\t"      \
    "vqadd.s16 q0, q0, %q[zero]\n\t" \
    "vmax.s16 q0, q0, %q[low]\n\t"   \
    "vmin.s16 q0, q0, %q[high]\n\t"
#define MT_MVE_SCALE_FLOAT(loads) \
    loads                         \
    "vcvt.f32.s32 q0, q0\n\t"     \
    "vcvt.f32.s32 q1, q1\n\t"     \
    "vmul.f32 q0, q0, q2\n\t"     \
    "vmul.f32 q1, q1, q2\n\t"     \
    "vcvtn.s32.f32 q0, q0\n\t"    \
    "vcvtn.s32.f32 q1, q1\n\t" MT_MVE_SCALED
#define MT_MVE_SCALE_TWICE(loads) \
    loads                         \
    "vqrdmulh.s32 q0, q0, q2\n\t" \
    "vqrdmulh.s32 q1, q1, q2\n\t" \
    "vshr.s32 q2, q0, #31\n\t"    \
    "vadd.i32 q0, q0, q2\n\t"     \
    "vshr.s32 q2, q1, #31\n\t"    \
    "vadd.i32 q1, q1, q2\n\t"     \
    "vrshl.s32 q0, q0, q3\n\t"    \
    "vrshl.s32 q1, q1, q3\n\t" MT_MVE_SCALED
#define MT_MVE_SCALE_ONCE(loads) \
    loads                        \
    "vmulh.s32 q0, q0, q2\n\t"   \
    "vmulh.s32 q1, q1, q2\n\t"   \
    "vrshl.s32 q0, q0, q3\n\t"   \
    "vrshl.s32 q1, q1, q3\n\t" MT_MVE_SCALED

#else /* portable version */

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

MT_MVE_INLINE void mt_mve_copy_rows(int8_t *column, const int8_t *x, int32_t rows, int32_t blocks, int32_t step,
                                    int32_t pixels)
{
    for (int32_t i = 0; i < rows; ++i, x += step)
        column = mt_mve_copy_of(column, x, blocks, pixels);
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
        const int8_t *const biases = weights + depth * channels, *const scales = biases + 16;
        for (int32_t q = 0; q < channels; ++q)
            for (int32_t p = 0; p < pixels; ++p) {
                const int8_t *const x = columns + 16 * p, *const w = weights + 16 * q;
                int32_t sum;
                memcpy(&sum, biases + 4 * q, 4);
                for (int32_t k = 0; k < depth; ++k)
                    sum += x[k / 16 * 16 * pixels + k % 16] * w[k / 16 * 16 * channels + k % 16];
                output[p * step + q] = mt_mve_narrow(sum, scales + 4 * q, 4, by, range);
            }
        weights = scales + (by <= MT_BY_ODD_FLOAT ? 16 : 32);
    }
}

#endif

/* The instances that operators share: of each tile, by scaling and blocks per iteration; for the whole depth there
 * is one. */
#define MT_MVE_TILE_FUNCTION(name, tile, unroll, whole, by)                                                 \
    MT_OPERATOR void name(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output, \
                          int32_t step, int32_t tiles, const struct mt_mve_range *range)                   \
    {                                                                                                      \
        tile(columns, end, weights, output, step, tiles, unroll, whole, by, range);                         \
    }
#define MT_MVE_TILE_FUNCTIONS(name, tile, by)                \
    MT_MVE_TILE_FUNCTION(name##_1, tile, 1, 0, by)           \
    MT_MVE_TILE_FUNCTION(name##_2, tile, 2, 0, by)           \
    MT_MVE_TILE_FUNCTION(name##_3, tile, 3, 0, by)           \
    MT_MVE_TILE_FUNCTION(name##_4, tile, 4, 0, by)           \
    MT_MVE_TILE_FUNCTION(name##_9, tile, 9, 0, by)           \
    MT_MVE_TILE_FUNCTION(name##_1_whole, tile, 1, 1, by)      \
    MT_MVE_TILE_FUNCTION(name##_2_whole, tile, 2, 1, by)      \
    MT_MVE_TILE_FUNCTION(name##_3_whole, tile, 3, 1, by)      \
    MT_MVE_TILE_FUNCTION(name##_4_whole, tile, 4, 1, by)      \
    MT_MVE_TILE_FUNCTION(name##_9_whole, tile, 9, 1, by)

#ifdef __cplusplus
}
#endif

#endif
