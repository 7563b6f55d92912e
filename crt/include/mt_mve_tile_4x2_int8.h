/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with Helium: four pixels by two output channels. See mt_mve_tile_int8.h. */
#ifndef MT_MVE_TILE_4X2_INT8_H
#define MT_MVE_TILE_4X2_INT8_H

#include "mt_mve_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of four columns. */
MT_MVE_INLINE void mt_mve_column(int8_t *column, const int8_t *x, int32_t count)
{
    mt_mve_column_of(column, x, count, 4);
}

MT_MVE_INLINE int8_t *mt_mve_copy(int8_t *column, const int8_t *x, int32_t blocks)
{
    return mt_mve_copy_of(column, x, blocks, 4);
}

MT_MVE_INLINE int8_t *mt_mve_fill(int8_t *column, int8_t value, int32_t blocks)
{
    return mt_mve_fill_of(column, value, blocks, 4);
}

#ifdef MT_MVE_ASM

/* A block of 16 steps of k: two channels by four columns. */
#define MT_MVE_4X2_BLOCK(sum)             \
    "vldrb.u8 q0, [%[w]], #16\n\t"        \
    "vldrb.u8 q2, [%[c]], #16\n\t"        \
    sum " r0, q0, q2\n\t"                 \
    "vldrb.u8 q1, [%[w]], #16\n\t"        \
    sum " r2, q1, q2\n\t"                 \
    "vldrb.u8 q3, [%[c]], #16\n\t"        \
    sum " r4, q0, q3\n\t"                 \
    "vldrb.u8 q2, [%[c]], #16\n\t"        \
    sum " r6, q1, q3\n\t"                 \
    sum " r8, q0, q2\n\t"                 \
    "vldrb.u8 q3, [%[c]], #16\n\t"        \
    sum " r10, q1, q2\n\t"                \
    sum " r12, q0, q3\n\t"                \
    sum " lr, q1, q3\n\t"
/* The first block; two vectors of its columns stay in registers. */
#define MT_MVE_4X2_HELD                    \
    "vldrb.u8 q0, [%[w]], #16\n\t"         \
    "vmladav.s8 r0, q0, %q[c0]\n\t"        \
    "vldrb.u8 q1, [%[w]], #16\n\t"         \
    "vmladav.s8 r2, q1, %q[c0]\n\t"        \
    "vldrb.u8 q2, [%[c]], #16\n\t"         \
    "vmladav.s8 r4, q0, %q[c1]\n\t"        \
    "vmladav.s8 r6, q1, %q[c1]\n\t"        \
    "vldrb.u8 q3, [%[c]], #16\n\t"         \
    "vmladav.s8 r8, q0, q2\n\t"            \
    "vmladav.s8 r10, q1, q2\n\t"           \
    "vmladav.s8 r12, q0, q3\n\t"           \
    "vmladav.s8 lr, q1, q3\n\t"
#define MT_MVE_4X2(first, more, scale, ...) MT_MVE_TILE(first, more, scale, "2", __VA_ARGS__)

#endif

/* Four columns by all output channels, two at a time; the pixels' outputs are `step` bytes apart. */
MT_MVE_INLINE void mt_mve_columns(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                  int32_t step, int32_t tiles, int unroll, int whole, enum mt_scaling by,
                                  const struct mt_mve_range *range)
{
#ifdef MT_MVE_ASM
    /* lanes after narrowing: a0 a2 b0 b2 a1 a3 b1 b3 */
    static const uint16_t pixels[8] = {0, 2, 0, 2, 1, 3, 1, 3}, channels[8] = {0, 0, 1, 1, 0, 0, 1, 1};
    const uint16x8_t at = vmlaq_n_u16(vldrhq_u16(channels), vldrhq_u16(pixels), (uint16_t)step);
    MT_MVE_TILE_BY(MT_MVE_4X2, MT_MVE_4X2_HELD, MT_MVE_4X2_BLOCK);
#else
    (void)unroll;
    (void)whole;
    mt_mve_tiles(columns, end, weights, output, step, tiles, by, range, 4, 2);
#endif
}

MT_MVE_TILE_FUNCTIONS(mt_mve_columns, mt_mve_columns, MT_BY_FLOAT)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_near, mt_mve_columns, MT_BY_NEAR_FLOAT)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_odd, mt_mve_columns, MT_BY_ODD_FLOAT)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_twice, mt_mve_columns, MT_TWICE)
MT_MVE_TILE_FUNCTIONS(mt_mve_columns_once, mt_mve_columns, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
