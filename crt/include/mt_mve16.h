/* The inner loops of operators of int16 activations with Helium: weights of int8 are widened as they are loaded, sums
 * are int32, which the compiler has proved to be enough. In plain C as mt_mve.h is. */
#ifndef MT_MVE16_H
#define MT_MVE16_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits. */
struct mt_mve16_range {
    int32_t zero_point;
    int16_t low[8], high[8];
};

#define MT_MVE16_RANGE(zero_point, low, high) {(zero_point), MT_MVE_EIGHT(low), MT_MVE_EIGHT(high)}

/* One of four columns that stand side by side in blocks of eight; the last block is filled up with zeros. */
MT_MVE_INLINE void mt_mve16_column(int16_t *column, const int16_t *x, int32_t count)
{
    mt_mve_column((int8_t *)column, (const int8_t *)x, 2 * count);
}

MT_MVE_INLINE int16_t *mt_mve16_copy(int16_t *column, const int16_t *x, int32_t blocks)
{
    mt_mve_copy((int8_t *)column, (const int8_t *)x, blocks);
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
#define MT_MVE16_DOT4(blocks)                                                                                         \
    __asm__ volatile("ldrd r0, r2, [%[w]], #8\n\t"                                                                    \
                     "mov r4, r0\n\t"                                                                                 \
                     "mov r6, r2\n\t"                                                                                 \
                     "mov r8, r0\n\t"                                                                                 \
                     "mov r10, r2\n\t"                                                                                \
                     "mov r12, r0\n\t"                                                                                \
                     "mov lr, r2\n\t"                                                                                 \
                     "1:\n\t" blocks "cmp %[c], %[end]\n\t"                                                           \
                     "bne 1b\n\t"                                                                                     \
                     "vldr d4, [%[w]]\n\t"                                                                            \
                     "vldr d5, [%[w]]\n\t"                                                                            \
                     "adds %[w], #8\n\t"                                                                              \
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

/* Four columns by all output channels, two at a time; the pixels' outputs stand `step` apart. For each two channels the
 * weights are: biases a, b, blocks of [a 8][b 8], scales a, b. */
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

/* Eight outputs of a dense layer at a time: biases, for eight inputs eight weights of each, scales. */
MT_MVE_INLINE const int8_t *mt_mve16_rows(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    do {
        const int16_t *x = input;
        __asm__ volatile("ldmia %[w]!, {r0, r2, r4, r6, r8, r10, r12, lr}\n\t"
                         "1:\n\t"
                         "vldrh.u16 q0, [%[x]], #16\n\t"
                         "vldrb.s16 q1, [%[w]], #8\n\t"
                         "vmladava.s16 r0, q0, q1\n\t"
                         "vldrb.s16 q2, [%[w]], #8\n\t"
                         "vmladava.s16 r2, q0, q2\n\t"
                         "vldrb.s16 q1, [%[w]], #8\n\t"
                         "vmladava.s16 r4, q0, q1\n\t"
                         "vldrb.s16 q2, [%[w]], #8\n\t"
                         "vmladava.s16 r6, q0, q2\n\t"
                         "vldrb.s16 q1, [%[w]], #8\n\t"
                         "vmladava.s16 r8, q0, q1\n\t"
                         "vldrb.s16 q2, [%[w]], #8\n\t"
                         "vmladava.s16 r10, q0, q2\n\t"
                         "vldrb.s16 q1, [%[w]], #8\n\t"
                         "vmladava.s16 r12, q0, q1\n\t"
                         "vldrb.s16 q2, [%[w]], #8\n\t"
                         "vmladava.s16 lr, q0, q2\n\t"
                         "cmp %[x], %[end]\n\t"
                         "bne 1b\n\t"
                         "vmov q0[2], q0[0], r0, r4\n\t"
                         "vmov q0[3], q0[1], r2, r6\n\t"
                         "vmov q1[2], q1[0], r8, r12\n\t"
                         "vmov q1[3], q1[1], r10, lr\n\t"
                         "vldrw.32 q2, [%[w]], #16\n\t"
                         "vldrw.32 q3, [%[w]], #16\n\t"
                         "vcvt.f32.s32 q0, q0\n\t"
                         "vcvt.f32.s32 q1, q1\n\t"
                         "vmul.f32 q0, q0, q2\n\t"
                         "vmul.f32 q1, q1, q3\n\t"
                         "vcvtn.s32.f32 q0, q0\n\t"
                         "vcvtn.s32.f32 q1, q1\n\t"
                         "ldr r0, %[limits]\n\t"
                         "ldr r2, [r0]\n\t"
                         "vqadd.s32 q0, q0, r2\n\t"
                         "vqadd.s32 q1, q1, r2\n\t"
                         "vqmovnb.s32 q0, q0\n\t"
                         "vqmovnb.s32 q1, q1\n\t"
                         "vldrh.u16 q2, [r0, #4]\n\t"
                         "vmax.s16 q0, q0, q2\n\t"
                         "vmax.s16 q1, q1, q2\n\t"
                         "vldrh.u16 q2, [r0, #20]\n\t"
                         "vmin.s16 q0, q0, q2\n\t"
                         "vmin.s16 q1, q1, q2\n\t"
                         "vstrh.32 q0, [%[o]], #8\n\t"
                         "vstrh.32 q1, [%[o]], #8"
                         : [w] "+&l"(weights), [x] "+&r"(x), [o] "+&l"(output)
                         : [end] "r"(end), [limits] "m"(range)
                         : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory");
    } while (--groups);
    return weights;
}

/* A pixel of a depthwise convolution, eight channels at a time: `taps` has where each tap meets the first channel, in
 * elements from `base`. For each eight the weights are: biases of even and odd channels, eight of each tap, scales of even and odd channels. */
MT_MVE_INLINE const int8_t *mt_mve16_lanes(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output,
                                           const int8_t *weights, int32_t c, int32_t lanes,
                                           const struct mt_mve16_range *range)
{
    const int16x8_t low = vldrhq_s16(range->low), high = vldrhq_s16(range->high);
    const mve_pred16_t wanted = vctp16q((uint32_t)lanes);
    int32x4_t even = vldrwq_s32((const int32_t *)(const void *)weights);
    int32x4_t odd = vldrwq_s32((const int32_t *)(const void *)(weights + 16));
    weights += 32;
    MT_UNROLL(3)
    for (int32_t t = 0; t < count; ++t, weights += 8) {
        const int16_t *const at = base + c + taps[t];
        const int16x8_t x = lanes < 8 ? vldrhq_z_s16(at, wanted) : vldrhq_s16(at), w = vldrbq_s16(weights);
        even = vaddq_s32(even, vmullbq_int_s16(x, w));
        odd = vaddq_s32(odd, vmulltq_int_s16(x, w));
    }
    const float32x4_t first = vldrwq_f32((const float *)(const void *)weights);
    const float32x4_t second = vldrwq_f32((const float *)(const void *)(weights + 16));
    even = vqaddq_n_s32(vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(even), first)), range->zero_point);
    odd = vqaddq_n_s32(vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(odd), second)), range->zero_point);
    const int16x8_t both = vqmovntq_s32(vqmovnbq_s32(low, even), odd);
    vstrhq_p_s16(output + c, vminq_s16(vmaxq_s16(both, low), high), wanted);
    return weights + 32;
}

MT_MVE_INLINE void mt_mve16_pixel(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output, const int8_t *weights,
                                  int32_t channels, const struct mt_mve16_range *range)
{
    int32_t c = 0;
    for (; c <= channels - 8; c += 8)
        weights = mt_mve16_lanes(base, taps, count, output, weights, c, 8, range);
    if (c < channels)
        mt_mve16_lanes(base, taps, count, output, weights, c, channels - c, range);
}

#else /* the same in plain C */

MT_MVE_INLINE int16_t mt_mve16_narrow(int32_t sum, const int8_t *scale_bytes, const struct mt_mve16_range *range)
{
    float scale;
    memcpy(&scale, scale_bytes, 4);
    return (int16_t)mt_requantise_wide(sum, scale, range->zero_point, range->low[0], range->high[0]);
}

MT_MVE_INLINE void mt_mve16_columns(const int16_t *columns, const int16_t *end, const int8_t *weights, int16_t *output,
                                    int32_t step, int32_t pairs, int unroll, const struct mt_mve16_range *range)
{
    const int32_t length = (int32_t)(end - columns) / 2; /* bytes of weights for two channels */
    (void)unroll;
    for (; pairs; --pairs, weights += 16 + length, output += 2)
        for (int32_t q = 0; q < 2; ++q)
            for (int32_t p = 0; p < 4; ++p) {
                int32_t sum;
                memcpy(&sum, weights + 4 * q, 4);
                for (int32_t k = 0; k < length / 2; ++k)
                    sum += columns[k / 8 * 32 + p * 8 + k % 8] * weights[8 + k / 8 * 16 + q * 8 + k % 8];
                output[p * step + q] = mt_mve16_narrow(sum, weights + 8 + length + 4 * q, range);
            }
}

MT_MVE_INLINE const int8_t *mt_mve16_rows(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    const int32_t depth = (int32_t)(end - input);
    for (; groups; --groups, weights += 64 + 8 * depth, output += 8)
        for (int32_t q = 0; q < 8; ++q) {
            int32_t sum;
            memcpy(&sum, weights + 4 * q, 4);
            for (int32_t k = 0; k < depth; ++k)
                sum += input[k] * weights[32 + k / 8 * 64 + q * 8 + k % 8];
            output[q] = mt_mve16_narrow(sum, weights + 32 + 8 * depth + 4 * q, range);
        }
    return weights;
}

MT_MVE_INLINE void mt_mve16_pixel(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output, const int8_t *weights,
                                  int32_t channels, const struct mt_mve16_range *range)
{
    for (int32_t c = 0; c < channels; ++c) {
        const int8_t *const group = weights + c / 8 * (64 + 8 * count);
        const int32_t lane = c % 2 * 16 + c % 8 / 2 * 4; /* where bias and scale of the channel stand */
        int32_t sum;
        memcpy(&sum, group + lane, 4);
        for (int32_t t = 0; t < count; ++t)
            sum += base[taps[t] + c] * group[32 + 8 * t + c % 8];
        output[c] = mt_mve16_narrow(sum, group + 32 + 8 * count + lane, range);
    }
}

#endif

/* The functions that operators share. */
#define MT_MVE16_COLUMNS(unroll)                                                                                     \
    MT_OPERATOR void mt_mve16_columns_##unroll(const int16_t *columns, const int16_t *end, const int8_t *weights,    \
                                               int16_t *output, int32_t step, int32_t pairs,                         \
                                               const struct mt_mve16_range *range)                                   \
    {                                                                                                                \
        mt_mve16_columns(columns, end, weights, output, step, pairs, unroll, range);                                 \
    }
MT_MVE16_COLUMNS(1)
MT_MVE16_COLUMNS(2)
MT_MVE16_COLUMNS(4)

MT_OPERATOR const int8_t *mt_mve16_dense(const int16_t *input, const int16_t *end, const int8_t *weights,
                                         int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    return mt_mve16_rows(input, end, weights, output, groups, range);
}

MT_OPERATOR void mt_mve16_taps(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output, const int8_t *weights,
                               int32_t channels, const struct mt_mve16_range *range)
{
    mt_mve16_pixel(base, taps, count, output, weights, channels, range);
}

#ifdef __cplusplus
}
#endif

#endif
