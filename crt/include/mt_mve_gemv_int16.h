/* Internal to mtool: applications include mtool.h. */
/* Dense layers of int16 activations with Helium: eight outputs at a time. See mt_mve_int16.h. */
#ifndef MT_MVE_GEMV_INT16_H
#define MT_MVE_GEMV_INT16_H

#include "mt_mve_int16.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* The dot products of eight outputs, in q0 and q1. */
#define MT_MVE16_DENSE \
    "ldmia %[w]!, {r0, r2, r4, r6, r8, r10, r12, lr}\n\t" \
    "1:\n\t" \
    "vldrh.u16 q0, [%[x]], #16\n\t" \
    "vldrb.s16 q1, [%[w]], #8\n\t" \
    "vmladava.s16 r0, q0, q1\n\t" \
    "vldrb.s16 q2, [%[w]], #8\n\t" \
    "vmladava.s16 r2, q0, q2\n\t" \
    "vldrb.s16 q1, [%[w]], #8\n\t" \
    "vmladava.s16 r4, q0, q1\n\t" \
    "vldrb.s16 q2, [%[w]], #8\n\t" \
    "vmladava.s16 r6, q0, q2\n\t" \
    "vldrb.s16 q1, [%[w]], #8\n\t" \
    "vmladava.s16 r8, q0, q1\n\t" \
    "vldrb.s16 q2, [%[w]], #8\n\t" \
    "vmladava.s16 r10, q0, q2\n\t" \
    "vldrb.s16 q1, [%[w]], #8\n\t" \
    "vmladava.s16 r12, q0, q1\n\t" \
    "vldrb.s16 q2, [%[w]], #8\n\t" \
    "vmladava.s16 lr, q0, q2\n\t" \
    "cmp %[x], %[end]\n\t" \
    "bne 1b\n\t" \
    "vmov q0[2], q0[0], r0, r4\n\t" \
    "vmov q0[3], q0[1], r2, r6\n\t" \
    "vmov q1[2], q1[0], r8, r12\n\t" \
    "vmov q1[3], q1[1], r10, lr\n\t"

/* Eight outputs of a dense layer at a time: biases, for eight inputs eight weights of each, scales. */
MT_MVE_INLINE const int8_t *mt_mve16_rows(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    do {
        const int16_t *x = input;
        __asm__ volatile(MT_MVE16_DENSE
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

/* The same without scales: the results are the sums. */
MT_MVE_INLINE const int8_t *mt_mve16_sums(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int32_t *output, int32_t groups)
{
    do {
        const int16_t *x = input;
        __asm__ volatile(MT_MVE16_DENSE
                         "vstrw.32 q0, [%[o]], #16\n\t"
                         "vstrw.32 q1, [%[o]], #16"
                         : [w] "+&l"(weights), [x] "+&r"(x), [o] "+&l"(output)
                         : [end] "r"(end)
                         : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "cc", "memory");
    } while (--groups);
    return weights;
}

#else /* portable version */

/* The dot product of one of eight outputs. */
MT_MVE_INLINE int32_t mt_mve16_dot(const int16_t *input, int32_t depth, const int8_t *weights, int32_t q)
{
    int32_t sum;
    memcpy(&sum, weights + 4 * q, 4);
    for (int32_t k = 0; k < depth; ++k)
        sum += input[k] * weights[32 + k / 8 * 64 + q * 8 + k % 8];
    return sum;
}

MT_MVE_INLINE const int8_t *mt_mve16_rows(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    const int32_t depth = (int32_t)(end - input);
    for (; groups; --groups, weights += 64 + 8 * depth, output += 8)
        for (int32_t q = 0; q < 8; ++q)
            output[q] = mt_mve16_narrow(mt_mve16_dot(input, depth, weights, q), weights + 32 + 8 * depth + 4 * q, range);
    return weights;
}

MT_MVE_INLINE const int8_t *mt_mve16_sums(const int16_t *input, const int16_t *end, const int8_t *weights,
                                          int32_t *output, int32_t groups)
{
    const int32_t depth = (int32_t)(end - input);
    for (; groups; --groups, weights += 32 + 8 * depth, output += 8)
        for (int32_t q = 0; q < 8; ++q)
            output[q] = mt_mve16_dot(input, depth, weights, q);
    return weights;
}

#endif

MT_OPERATOR const int8_t *mt_mve16_dense(const int16_t *input, const int16_t *end, const int8_t *weights,
                                         int16_t *output, int32_t groups, const struct mt_mve16_range *range)
{
    return mt_mve16_rows(input, end, weights, output, groups, range);
}

MT_OPERATOR const int8_t *mt_mve16_dense_sums(const int16_t *input, const int16_t *end, const int8_t *weights,
                                              int32_t *output, int32_t groups)
{
    return mt_mve16_sums(input, end, weights, output, groups);
}

#ifdef __cplusplus
}
#endif

#endif
