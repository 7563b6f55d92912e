/* What float32 operators on Cortex-M with a float32 FPU share: their register tiles are in assembly.
 *
 * MULADD rounds twice and takes two instructions of a cycle each; FMA is one instruction, but three cycles on a Cortex-M4
 * (Arm DDI 0439B, table 7-1): there MULADD is faster although it counts more. Elsewhere, without optimisation and with
 * MT_PORTABLE defined, the same functions are plain C. */
#ifndef MT_F32_H
#define MT_F32_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__thumb2__) && defined(__ARM_FP) && \
    !defined(MT_PORTABLE)
#define MT_F32_ASM 1
#endif

#if defined(__GNUC__)
#define MT_F32_INLINE static inline __attribute__((always_inline))
#else
#define MT_F32_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Zero instead of what is negative, in an integer register: a VMAX, which the core has not. */
MT_F32_INLINE float mt_f32_relu(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits &= ~(bits >> 31);
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

#ifdef MT_F32_ASM

#define MT_F32_REGISTERS \
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", \
          "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", \
          "s30", "s31"

/* mt_f32_relu of four stored sums. */
#define MT_F32_RELU4(o) \
    __asm__ volatile("ldmdb %[p], {r4, r5, r8, r9}\n\t" \
                     "bic r4, r4, r4, asr #31\n\t" \
                     "bic r5, r5, r5, asr #31\n\t" \
                     "bic r8, r8, r8, asr #31\n\t" \
                     "bic r9, r9, r9, asr #31\n\t" \
                     "stmdb %[p], {r4, r5, r8, r9}" \
                     : \
                     : [p] "r"(o) \
                     : "r4", "r5", "r8", "r9", "memory")

#else /* the same in plain C */

MT_F32_INLINE float mt_f32_add_product(float sum, float a, float b, int fused)
{
    return fused ? fmaf(a, b, sum) : sum + a * b;
}

/* `pixels` columns by all output channels, `channels` at a time: those of a pixel go to its o. */
MT_F32_INLINE void mt_f32_tiles(const float *columns, const float *end, const float *weights, float *const *o,
                                int32_t tiles, int fused, int relu, int32_t pixels, int32_t channels)
{
    const int32_t depth = (int32_t)(end - columns) / pixels;
    for (int32_t n = 0; n < tiles; ++n, weights += channels * (1 + depth))
        for (int32_t p = 0; p < pixels; ++p)
            for (int32_t q = 0; q < channels; ++q) {
                float sum = weights[q];
                for (int32_t k = 0; k < depth; ++k)
                    sum = mt_f32_add_product(sum, columns[pixels * k + p], weights[channels * (k + 1) + q], fused);
                o[p][channels * n + q] = relu && sum < 0.0f ? 0.0f : sum;
            }
}

#endif

#ifdef __cplusplus
}
#endif

#endif
