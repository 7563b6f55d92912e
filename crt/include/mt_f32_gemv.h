/* Dense layers of float32 on Cortex-M: eight outputs at a time. In plain C as mt_f32.h is. */
#ifndef MT_F32_GEMV_H
#define MT_F32_GEMV_H

#include "mt_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_F32_ASM

/* An input by eight outputs (s0 to s7), of four inputs (s16 to s19) that are loaded at a time. */
#define MT_F32_INPUT_MULADD(x)       \
    "vldmia %[w]!, {s8-s15}\n\t"     \
    "vmul.f32 s20, " x ", s8\n\t"    \
    "vmul.f32 s21, " x ", s9\n\t"    \
    "vmul.f32 s22, " x ", s10\n\t"   \
    "vmul.f32 s23, " x ", s11\n\t"   \
    "vmul.f32 s24, " x ", s12\n\t"   \
    "vmul.f32 s25, " x ", s13\n\t"   \
    "vmul.f32 s26, " x ", s14\n\t"   \
    "vmul.f32 s27, " x ", s15\n\t"   \
    "vadd.f32 s0, s0, s20\n\t"       \
    "vadd.f32 s1, s1, s21\n\t"       \
    "vadd.f32 s2, s2, s22\n\t"       \
    "vadd.f32 s3, s3, s23\n\t"       \
    "vadd.f32 s4, s4, s24\n\t"       \
    "vadd.f32 s5, s5, s25\n\t"       \
    "vadd.f32 s6, s6, s26\n\t"       \
    "vadd.f32 s7, s7, s27\n\t"
#define MT_F32_INPUT_FMA(x)          \
    "vldmia %[w]!, {s8-s15}\n\t"     \
    "vfma.f32 s0, " x ", s8\n\t"     \
    "vfma.f32 s1, " x ", s9\n\t"     \
    "vfma.f32 s2, " x ", s10\n\t"    \
    "vfma.f32 s3, " x ", s11\n\t"    \
    "vfma.f32 s4, " x ", s12\n\t"    \
    "vfma.f32 s5, " x ", s13\n\t"    \
    "vfma.f32 s6, " x ", s14\n\t"    \
    "vfma.f32 s7, " x ", s15\n\t"
#define MT_F32_INPUTS(each) "vldmia %[x]!, {s16-s19}\n\t" each("s16") each("s17") each("s18") each("s19")

#define MT_F32_DENSE(step)                                                                                     \
    __asm__ volatile("vmov s0, %[zero]\n\tvmov s1, %[zero]\n\tvmov s2, %[zero]\n\tvmov s3, %[zero]\n\t"          \
                     "vmov s4, %[zero]\n\tvmov s5, %[zero]\n\tvmov s6, %[zero]\n\tvmov s7, %[zero]\n\t"          \
                     "1:\n\t" step "cmp %[x], %[stop]\n\t"                                                     \
                     "bne 1b\n\t"                                                                              \
                     "vstmia %[o], {s0-s7}"                                                                    \
                     : [w] "+&r"(weights), [x] "+&r"(x)                                                        \
                     : [stop] "r"(stop), [zero] "r"(0), [o] "r"(sums)                                          \
                     : MT_F32_REGISTERS, "cc", "memory")

/* Eight outputs of a dense layer at a time: for each input eight floats, then the biases; inputs a multiple of four. In
 * onnxruntime's order: sums of up to 256 products from zero, added up, then the bias. */
MT_F32_INLINE const float *mt_f32_rows(const float *input, const float *end, const float *weights, float *output,
                                       int32_t groups, int fused, int relu)
{
    do {
        const float *x = input;
        float *sums = output;
        float block[8];
        while (x != end) {
            const float *const stop = end - x > 256 ? x + 256 : end;
            if (fused)
                MT_F32_DENSE(MT_F32_INPUTS(MT_F32_INPUT_FMA));
            else
                MT_F32_DENSE(MT_F32_INPUTS(MT_F32_INPUT_MULADD));
            for (int32_t q = 0; sums == block && q < 8; ++q)
                output[q] += block[q];
            sums = block;
        }
        for (int32_t q = 0; q < 8; ++q)
            output[q] += weights[q];
        weights += 8;
        output += 8;
        if (relu) {
            MT_F32_RELU4(output);
            MT_F32_RELU4(output - 4);
        }
    } while (--groups);
    return weights;
}

#else /* the same in plain C */

MT_F32_INLINE const float *mt_f32_rows(const float *input, const float *end, const float *weights, float *output,
                                       int32_t groups, int fused, int relu)
{
    const int32_t depth = (int32_t)(end - input);
    for (; groups; --groups, weights += 8 * (depth + 1), output += 8)
        for (int32_t q = 0; q < 8; ++q) {
            float sum = 0.0f, block = 0.0f;
            for (int32_t k = 0; k < depth; ++k) {
                block = mt_f32_add_product(block, input[k], weights[8 * k + q], fused);
                if (k % 256 == 255 || k == depth - 1) {
                    sum += block;
                    block = 0.0f;
                }
            }
            sum += weights[8 * depth + q];
            output[q] = relu && sum < 0.0f ? 0.0f : sum;
        }
    return weights;
}

#endif

/* The functions that operators share. */
#define MT_F32_ROWS(name, fused, relu) \
    MT_OPERATOR const float *name(const float *input, const float *end, const float *weights, float *output, \
                                  int32_t groups) \
    { \
        return mt_f32_rows(input, end, weights, output, groups, fused, relu); \
    }
MT_F32_ROWS(mt_f32_rows_muladd, 0, 0)
MT_F32_ROWS(mt_f32_rows_muladd_relu, 0, 1)
MT_F32_ROWS(mt_f32_rows_fma, 1, 0)
MT_F32_ROWS(mt_f32_rows_fma_relu, 1, 1)

#ifdef __cplusplus
}
#endif

#endif
