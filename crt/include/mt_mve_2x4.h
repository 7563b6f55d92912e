/* Convolutions of int8 with Helium, two pixels by four output channels: where four pixels would leave columns empty, or
 * where memory is short. In plain C as mt_mve.h is. */
#ifndef MT_MVE_2X4_H
#define MT_MVE_2X4_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* One of two columns that stand side by side in blocks of 16 bytes; the last block is filled up with zeros. */
MT_MVE_INLINE void mt_mve_column_2x4(int8_t *column, const int8_t *x, int32_t count)
{
    for (; count >= 16; count -= 16, x += 16, column += 32)
        vstrbq_s8(column, vldrbq_s8(x));
    if (count)
        vstrbq_s8(column, vldrbq_z_s8(x, vctp8q((uint32_t)count)));
}

MT_MVE_INLINE int8_t *mt_mve_copy_2x4(int8_t *column, const int8_t *x, int32_t blocks)
{
    for (; blocks; --blocks, x += 16, column += 32)
        vstrbq_s8(column, vldrbq_s8(x));
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill_2x4(int8_t *column, int8_t value, int32_t blocks)
{
    for (; blocks; --blocks, column += 32)
        vstrbq_s8(column, vdupq_n_s8(value));
    return column;
}

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
#define MT_MVE_2X4_TWO MT_MVE_2X4_BLOCK MT_MVE_2X4_BLOCK
#define MT_MVE_2X4_THREE MT_MVE_2X4_TWO MT_MVE_2X4_BLOCK
#define MT_MVE_2X4_FOUR MT_MVE_2X4_TWO MT_MVE_2X4_TWO
#define MT_MVE_2X4_FLOAT           \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vcvt.f32.s32 q0, q0\n\t"      \
    "vcvt.f32.s32 q1, q1\n\t"      \
    "vmul.f32 q0, q0, q2\n\t"      \
    "vmul.f32 q1, q1, q2\n\t"      \
    "vcvtn.s32.f32 q0, q0\n\t"     \
    "vcvtn.s32.f32 q1, q1\n\t"
#define MT_MVE_2X4_TWICE           \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vqrdmulh.s32 q0, q0, q2\n\t"  \
    "vqrdmulh.s32 q1, q1, q2\n\t"  \
    "vshr.s32 q2, q0, #31\n\t"     \
    "vadd.i32 q0, q0, q2\n\t"      \
    "vshr.s32 q2, q1, #31\n\t"     \
    "vadd.i32 q1, q1, q2\n\t"      \
    "vrshl.s32 q0, q0, q3\n\t"     \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_2X4_ONCE            \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vmulh.s32 q0, q0, q2\n\t"     \
    "vmulh.s32 q1, q1, q2\n\t"     \
    "vrshl.s32 q0, q0, q3\n\t"     \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_2X4_DOT(blocks, scale)                                                                            \
    __asm__ volatile("ldmia %[w]!, {r0, r2, r4, r6}\n\t"                                                         \
                     "mov r8, r0\n\t"                                                                            \
                     "mov r10, r2\n\t"                                                                           \
                     "mov r12, r4\n\t"                                                                           \
                     "mov lr, r6\n\t"                                                                            \
                     "1:\n\t" blocks "cmp %[c], %[end]\n\t"                                                      \
                     "bne 1b\n\t"                                                                                \
                     "vmov q0[2], q0[0], r0, r4\n\t"                                                             \
                     "vmov q0[3], q0[1], r2, r6\n\t"                                                             \
                     "vmov q1[2], q1[0], r8, r12\n\t"                                                            \
                     "vmov q1[3], q1[1], r10, lr\n\t" scale                                                      \
                     "vqmovnb.s32 q0, q0\n\t"                                                                    \
                     "vqmovnt.s32 q0, q1\n\t"                                                                    \
                     "ldr r0, %[limits]\n\t"                                                                     \
                     "vldrh.u16 q1, [r0]\n\t"                                                                    \
                     "vqadd.s16 q0, q0, q1\n\t"                                                                  \
                     "vldrh.u16 q1, [r0, #16]\n\t"                                                               \
                     "vmax.s16 q0, q0, q1\n\t"                                                                   \
                     "vldrh.u16 q1, [r0, #32]\n\t"                                                               \
                     "vmin.s16 q0, q0, q1\n\t"                                                                   \
                     "vstrb.16 q0, [%[o], %q[at]]\n\t"                                                           \
                     "adds %[o], #4"                                                                             \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o] "+&r"(output)                                       \
                     : [end] "r"(end), [at] "w"(at), [limits] "m"(range)                                         \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")
#define MT_MVE_2X4_DOT_BY(scale)                     \
    do {                                             \
        if (unroll == 4)                             \
            MT_MVE_2X4_DOT(MT_MVE_2X4_FOUR, scale);  \
        else if (unroll == 3)                        \
            MT_MVE_2X4_DOT(MT_MVE_2X4_THREE, scale); \
        else if (unroll == 2)                        \
            MT_MVE_2X4_DOT(MT_MVE_2X4_TWO, scale);   \
        else                                         \
            MT_MVE_2X4_DOT(MT_MVE_2X4_BLOCK, scale); \
    } while (0)

/* Two columns by all output channels, four at a time; the pixels' outputs stand `step` bytes apart. For each four channels
 * the weights are: biases, blocks of 16 of each channel, scales. */
MT_MVE_INLINE void mt_mve_columns_2x4(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                      int32_t step, int32_t fours, int unroll, enum mt_scaling by,
                                      const struct mt_mve_range *range)
{
    /* lanes after narrowing: a0 a1 b0 b1 c0 c1 d0 d1, which stand at */
    const uint16_t n = (uint16_t)step;
    const uint16_t offsets[8] = {0, n, 1, (uint16_t)(n + 1), 2, (uint16_t)(n + 2), 3, (uint16_t)(n + 3)};
    const uint16x8_t at = vldrhq_u16(offsets);
    do {
        const int8_t *c = columns;
        if (by == MT_TWICE)
            MT_MVE_2X4_DOT_BY(MT_MVE_2X4_TWICE);
        else if (by == MT_ONCE)
            MT_MVE_2X4_DOT_BY(MT_MVE_2X4_ONCE);
        else
            MT_MVE_2X4_DOT_BY(MT_MVE_2X4_FLOAT);
    } while (--fours);
}

#else /* the same in plain C */

MT_MVE_INLINE void mt_mve_column_2x4(int8_t *column, const int8_t *x, int32_t count)
{
    for (; count >= 16; count -= 16, x += 16, column += 32)
        memcpy(column, x, 16);
    if (count) {
        memset(column, 0, 16);
        memcpy(column, x, (size_t)count);
    }
}

MT_MVE_INLINE int8_t *mt_mve_copy_2x4(int8_t *column, const int8_t *x, int32_t blocks)
{
    for (; blocks; --blocks, x += 16, column += 32)
        memcpy(column, x, 16);
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill_2x4(int8_t *column, int8_t value, int32_t blocks)
{
    for (; blocks; --blocks, column += 32)
        memset(column, value, 16);
    return column;
}

MT_MVE_INLINE void mt_mve_columns_2x4(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                      int32_t step, int32_t fours, int unroll, enum mt_scaling by,
                                      const struct mt_mve_range *range)
{
    const int32_t depth = (int32_t)(end - columns) / 2;
    (void)unroll;
    for (; fours; --fours, weights += (by == MT_BY_FLOAT ? 32 : 48) + 4 * depth, output += 4)
        for (int32_t q = 0; q < 4; ++q)
            for (int32_t p = 0; p < 2; ++p) {
                int32_t sum;
                memcpy(&sum, weights + 4 * q, 4);
                for (int32_t k = 0; k < depth; ++k)
                    sum += columns[k / 16 * 32 + p * 16 + k % 16] * weights[16 + k / 16 * 64 + q * 16 + k % 16];
                output[p * step + q] = mt_mve_narrow(sum, weights + 16 + 4 * depth + 4 * q, 4, by, range);
            }
}

#endif

/* The functions that operators share. */
#define MT_MVE_COLUMNS_2X4(name, unroll, by)                                                                         \
    MT_OPERATOR void name(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,           \
                          int32_t step, int32_t fours, const struct mt_mve_range *range)                             \
    {                                                                                                                \
        mt_mve_columns_2x4(columns, end, weights, output, step, fours, unroll, by, range);                           \
    }
#define MT_MVE_EACH_2X4(kind, by)                               \
    MT_MVE_COLUMNS_2X4(mt_mve_columns_2x4##kind##_1, 1, by)     \
    MT_MVE_COLUMNS_2X4(mt_mve_columns_2x4##kind##_2, 2, by)     \
    MT_MVE_COLUMNS_2X4(mt_mve_columns_2x4##kind##_3, 3, by)     \
    MT_MVE_COLUMNS_2X4(mt_mve_columns_2x4##kind##_4, 4, by)
MT_MVE_EACH_2X4(, MT_BY_FLOAT)
MT_MVE_EACH_2X4(_twice, MT_TWICE)
MT_MVE_EACH_2X4(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
