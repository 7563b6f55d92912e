/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int16 activations with Helium: four pixels by two output channels. See mt_mve_int16.h. */
#ifndef MT_MVE_TILE_4X2_INT16_H
#define MT_MVE_TILE_4X2_INT16_H

#include "mt_mve_int16.h"
#include "mt_mve_tile_4x2_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of four columns interleaved in blocks of eight; the last block is padded with zeros. */
MT_MVE_INLINE void mt_mve16_column(int16_t *column, const int16_t *x, int32_t count)
{
    mt_mve_column_of((int8_t *)column, (const int8_t *)x, 2 * count, 4);
}

MT_MVE_INLINE int16_t *mt_mve16_copy(int16_t *column, const int16_t *x, int32_t blocks)
{
    mt_mve_copy_of((int8_t *)column, (const int8_t *)x, blocks, 4);
    return column + 32 * blocks;
}

MT_MVE_INLINE int16_t *mt_mve16_fill(int16_t *column, int16_t value, int32_t blocks)
{
    for (; blocks; --blocks, column += 32)
        for (int32_t i = 0; i < 8; ++i)
            column[i] = value;
    return column;
}

#ifdef MT_MVE_ASM

/* Load the biases of two channels into r0 to lr, and their scales into q2, each twice. */
#define MT_MVE16_BIASES           \
    "ldrd r0, r2, [%[w]], #8\n\t" \
    "mov r4, r0\n\t"              \
    "mov r6, r2\n\t"              \
    "mov r8, r0\n\t"              \
    "mov r10, r2\n\t"             \
    "mov r12, r0\n\t"             \
    "mov lr, r2\n\t"
#define MT_MVE16_SCALES   \
    "vldr d4, [%[w]]\n\t" \
    "vldr d5, [%[w]]\n\t" \
    "adds %[w], #8\n\t"

/* A block of 8 steps of k: two channels by four columns. */
#define MT_MVE16_BLOCK                   \
    "vldrb.s16 q0, [%[w]], #8\n\t"       \
    "vldrb.s16 q1, [%[w]], #8\n\t"       \
    "vldrh.u16 q2, [%[c]], #16\n\t"      \
    "vmladava.s16 r0, q0, q2\n\t"        \
    "vmladava.s16 r2, q1, q2\n\t"        \
    "vldrh.u16 q3, [%[c]], #16\n\t"      \
    "vmladava.s16 r4, q0, q3\n\t"        \
    "vmladava.s16 r6, q1, q3\n\t"        \
    "vldrh.u16 q2, [%[c]], #16\n\t"      \
    "vmladava.s16 r8, q0, q2\n\t"        \
    "vmladava.s16 r10, q1, q2\n\t"       \
    "vldrh.u16 q3, [%[c]], #16\n\t"      \
    "vmladava.s16 r12, q0, q3\n\t"       \
    "vmladava.s16 lr, q1, q3\n\t"
#define MT_MVE16_TWO MT_MVE16_BLOCK MT_MVE16_BLOCK
#define MT_MVE16_FOUR MT_MVE16_TWO MT_MVE16_TWO
#define MT_MVE16_SUM4(blocks)                                                                                         \
    __asm__ volatile(MT_MVE16_BIASES "1:\n\t" blocks "cmp %[c], %[end]\n\t"                                         \
                     "bne 1b\n\t"                                                                                     \
                     "vmov q0[2], q0[0], r0, r4\n\t"                                                                  \
                     "vmov q0[3], q0[1], r2, r6\n\t"                                                                  \
                     "vmov q1[2], q1[0], r8, r12\n\t"                                                                 \
                     "vmov q1[3], q1[1], r10, lr\n\t"                                                                 \
                     "vstrw.32 q0, [%[o]], #16\n\t"                                                                   \
                     "vstrw.32 q1, [%[o]], #16"                                                                       \
                     : [w] "+&l"(weights), [c] "+&r"(c), [o] "+&l"(output)                                            \
                     : [end] "r"(end)                                                                                 \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")
#define MT_MVE16_DOT4(blocks)                                                                                         \
    __asm__ volatile(MT_MVE16_BIASES "1:\n\t" blocks "cmp %[c], %[end]\n\t"                                         \
                     "bne 1b\n\t"                                                                                     \
                     MT_MVE16_SCALES                                                                                \
                     "vmov q0[2], q0[0], r0, r4\n\t"                                                                  \
                     "vmov q0[3], q0[1], r2, r6\n\t"                                                                  \
                     "vmov q1[2], q1[0], r8, r12\n\t"                                                                 \
                     "vmov q1[3], q1[1], r10, lr\n\t"                                                                 \
                     "vcvt.f32.s32 q0, q0\n\t"                                                                        \
                     "vcvt.f32.s32 q1, q1\n\t"                                                                        \
                     "vmul.f32 q0, q0, q2\n\t"                                                                        \
                     "vmul.f32 q1, q1, q2\n\t"                                                                        \
                     "vcvtn.s32.f32 q0, q0\n\t"                                                                       \
                     "vcvtn.s32.f32 q1, q1\n\t"                                                                       \
                     "ldr r0, %[limits]\n\t"                                                                          \
                     "ldr r2, [r0]\n\t"                                                                               \
                     "vqadd.s32 q0, q0, r2\n\t"                                                                       \
                     "vqadd.s32 q1, q1, r2\n\t"                                                                       \
                     "vqmovnb.s32 q0, q0\n\t"                                                                         \
                     "vqmovnt.s32 q0, q1\n\t"                                                                         \
                     "vldrh.u16 q1, [r0, #4]\n\t"                                                                     \
                     "vmax.s16 q0, q0, q1\n\t"                                                                        \
                     "vldrh.u16 q1, [r0, #20]\n\t"                                                                    \
                     "vmin.s16 q0, q0, q1\n\t"                                                                        \
                     "vstrh.16 q0, [%[o], %q[at], uxtw #1]\n\t"                                                       \
                     "adds %[o], #4"                                                                                  \
                     : [w] "+&l"(weights), [c] "+&r"(c), [o] "+&r"(output)                                            \
                     : [end] "r"(end), [at] "w"(at), [limits] "m"(range)                                              \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")

/* Four columns by all output channels, two at a time; the pixels' outputs are `step` apart. For each two channels
 * the weights are: biases a, b, blocks of [a 8][b 8], scales a, b. */
MT_MVE_INLINE void mt_mve16_columns(const int16_t *columns, const int16_t *end, const int8_t *weights, int16_t *output,
                                    int32_t step, int32_t pairs, int unroll, const struct mt_mve16_range *range)
{
    /* lanes after narrowing: a0 a2 b0 b2 a1 a3 b1 b3, which stand at */
    const uint16_t n = (uint16_t)step;
    const uint16_t offsets[8] = {0, (uint16_t)(2 * n), 1,       (uint16_t)(2 * n + 1),
                                 n, (uint16_t)(3 * n), (uint16_t)(n + 1), (uint16_t)(3 * n + 1)};
    const uint16x8_t at = vldrhq_u16(offsets);
    do {
        const int16_t *c = columns;
        if (unroll == 4)
            MT_MVE16_DOT4(MT_MVE16_FOUR);
        else if (unroll == 2)
            MT_MVE16_DOT4(MT_MVE16_TWO);
        else
            MT_MVE16_DOT4(MT_MVE16_BLOCK);
    } while (--pairs);
}

/* The same without scales: the results are the sums, for each two channels a and b of four pixels. */
MT_MVE_INLINE void mt_mve16_column_sums(const int16_t *columns, const int16_t *end, const int8_t *weights,
                                        int32_t *output, int32_t pairs, int unroll)
{
    do {
        const int16_t *c = columns;
        if (unroll == 4)
            MT_MVE16_SUM4(MT_MVE16_FOUR);
        else if (unroll == 2)
            MT_MVE16_SUM4(MT_MVE16_TWO);
        else
            MT_MVE16_SUM4(MT_MVE16_BLOCK);
    } while (--pairs);
}

#else /* portable version */

/* The dot product of column p and channel q of two. */
MT_MVE_INLINE int32_t mt_mve16_column_dot(const int16_t *columns, int32_t depth, const int8_t *weights, int32_t p,
                                          int32_t q)
{
    int32_t sum;
    memcpy(&sum, weights + 4 * q, 4);
    for (int32_t k = 0; k < depth; ++k)
        sum += columns[k / 8 * 32 + p * 8 + k % 8] * weights[8 + k / 8 * 16 + q * 8 + k % 8];
    return sum;
}

MT_MVE_INLINE void mt_mve16_columns(const int16_t *columns, const int16_t *end, const int8_t *weights, int16_t *output,
                                    int32_t step, int32_t pairs, int unroll, const struct mt_mve16_range *range)
{
    const int32_t length = (int32_t)(end - columns) / 2; /* bytes of weights for two channels */
    (void)unroll;
    for (; pairs; --pairs, weights += 16 + length, output += 2)
        for (int32_t q = 0; q < 2; ++q)
            for (int32_t p = 0; p < 4; ++p) {
                const int32_t sum = mt_mve16_column_dot(columns, length / 2, weights, p, q);
                output[p * step + q] = mt_mve16_narrow(sum, weights + 8 + length + 4 * q, range);
            }
}

MT_MVE_INLINE void mt_mve16_column_sums(const int16_t *columns, const int16_t *end, const int8_t *weights,
                                        int32_t *output, int32_t pairs, int unroll)
{
    const int32_t length = (int32_t)(end - columns) / 2;
    (void)unroll;
    for (; pairs; --pairs, weights += 8 + length, output += 8)
        for (int32_t i = 0; i < 8; ++i)
            output[i] = mt_mve16_column_dot(columns, length / 2, weights, i / 2, i % 2);
}

#endif

/* The instances that operators share. */
#define MT_MVE16_COLUMNS(unroll)                                                                                     \
    MT_OPERATOR void mt_mve16_columns_##unroll(const int16_t *columns, const int16_t *end, const int8_t *weights,    \
                                               int16_t *output, int32_t step, int32_t pairs,                         \
                                               const struct mt_mve16_range *range)                                   \
    {                                                                                                                \
        mt_mve16_columns(columns, end, weights, output, step, pairs, unroll, range);                                 \
    }
#define MT_MVE16_COLUMN_SUMS(unroll)                                                                                 \
    MT_OPERATOR void mt_mve16_sums_##unroll(const int16_t *columns, const int16_t *end, const int8_t *weights,       \
                                            int32_t *output, int32_t pairs)                                          \
    {                                                                                                                \
        mt_mve16_column_sums(columns, end, weights, output, pairs, unroll);                                          \
    }
MT_MVE16_COLUMN_SUMS(1)
MT_MVE16_COLUMN_SUMS(2)
MT_MVE16_COLUMN_SUMS(4)
MT_MVE16_COLUMNS(1)
MT_MVE16_COLUMNS(2)
MT_MVE16_COLUMNS(4)

#ifdef __cplusplus
}
#endif

#endif
