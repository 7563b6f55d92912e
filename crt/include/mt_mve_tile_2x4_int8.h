/* Convolutions of int8 with Helium, two pixels by four output channels: where four pixels would leave columns empty, or
 * where memory is short. See mt_mve_tile_int8.h. */
#ifndef MT_MVE_TILE_2X4_INT8_H
#define MT_MVE_TILE_2X4_INT8_H

#include "mt_mve_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of two columns. */
MT_MVE_INLINE void mt_mve_column_2x4(int8_t *column, const int8_t *x, int32_t count)
{
    mt_mve_column_of(column, x, count, 2);
}

MT_MVE_INLINE int8_t *mt_mve_copy_2x4(int8_t *column, const int8_t *x, int32_t blocks)
{
    return mt_mve_copy_of(column, x, blocks, 2);
}

MT_MVE_INLINE int8_t *mt_mve_fill_2x4(int8_t *column, int8_t value, int32_t blocks)
{
    return mt_mve_fill_of(column, value, blocks, 2);
}

#ifdef MT_MVE_ASM

/* A block of 16 steps of k: two columns by four channels. */
#define MT_MVE_2X4_BLOCK                 \
    "vldrb.u8 q0, [%[c]], #16\n\t"       \
    "vldrb.u8 q1, [%[c]], #16\n\t"       \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 r0, q0, q2\n\t"         \
    "vmladava.s8 r8, q1, q2\n\t"         \
    "vldrb.u8 q3, [%[w]], #16\n\t"       \
    "vmladava.s8 r2, q0, q3\n\t"         \
    "vmladava.s8 r10, q1, q3\n\t"        \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 r4, q0, q2\n\t"         \
    "vmladava.s8 r12, q1, q2\n\t"        \
    "vldrb.u8 q3, [%[w]], #16\n\t"       \
    "vmladava.s8 r6, q0, q3\n\t"         \
    "vmladava.s8 lr, q1, q3\n\t"
#define MT_MVE_2X4_BIASES               \
    "ldmia %[w]!, {r0, r2, r4, r6}\n\t" \
    "mov r8, r0\n\t"                    \
    "mov r10, r2\n\t"                   \
    "mov r12, r4\n\t"                   \
    "mov lr, r6\n\t"
#define MT_MVE_2X4_SCALES "vldrw.32 q2, [%[w]], #16\n\t"
#define MT_MVE_2X4_MULTIPLIERS MT_MVE_2X4_SCALES "vldrw.32 q3, [%[w]], #16\n\t"
#define MT_MVE_2X4(blocks, scale) MT_MVE_TILE(MT_MVE_2X4_BIASES, blocks, scale, "4")

#endif

/* Two columns by all output channels, four at a time; the pixels' outputs stand `step` bytes apart. */
MT_MVE_INLINE void mt_mve_columns_2x4(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                      int32_t step, int32_t fours, int unroll, enum mt_scaling by,
                                      const struct mt_mve_range *range)
{
#ifdef MT_MVE_ASM
    /* lanes after narrowing: a0 a1 b0 b1 c0 c1 d0 d1, which stand at */
    const uint16_t n = (uint16_t)step;
    const uint16_t offsets[8] = {0, n, 1, (uint16_t)(n + 1), 2, (uint16_t)(n + 2), 3, (uint16_t)(n + 3)};
    const uint16x8_t at = vldrhq_u16(offsets);
    do {
        const int8_t *c = columns;
        if (by == MT_TWICE)
            MT_MVE_TILE_UNROLLED(MT_MVE_2X4, MT_MVE_2X4_BLOCK, MT_MVE_SCALE_TWICE(MT_MVE_2X4_MULTIPLIERS));
        else if (by == MT_ONCE)
            MT_MVE_TILE_UNROLLED(MT_MVE_2X4, MT_MVE_2X4_BLOCK, MT_MVE_SCALE_ONCE(MT_MVE_2X4_MULTIPLIERS));
        else
            MT_MVE_TILE_UNROLLED(MT_MVE_2X4, MT_MVE_2X4_BLOCK, MT_MVE_SCALE_FLOAT(MT_MVE_2X4_SCALES));
    } while (--fours);
#else
    (void)unroll;
    mt_mve_tiles(columns, end, weights, output, step, fours, by, range, 2, 4);
#endif
}

MT_MVE_TILE_FUNCTIONS(mt_mve_columns_2x4, mt_mve_columns_2x4, MT_BY_FLOAT)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_2x4_twice, mt_mve_columns_2x4, MT_TWICE)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_2x4_once, mt_mve_columns_2x4, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
