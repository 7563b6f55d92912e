/* Internal to mtool: applications include mtool.h. */
/* Dense layers of float32 on Cortex-M: eight outputs at a time. Plain C where mt_f32.h is. */
#ifndef MT_F32_GEMV_H
#define MT_F32_GEMV_H

#include "mt_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_F32_ASM

/* One input by eight outputs (s0 to s7); inputs are loaded four at a time (s16 to s19). */
#define MT_F32_INPUT_MULADD(x, eight) \
    eight                             \
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
#define MT_F32_INPUT_FMA(x, eight)    \
    eight                             \
    "vfma.f32 s0, " x ", s8\n\t"     \
    "vfma.f32 s1, " x ", s9\n\t"     \
    "vfma.f32 s2, " x ", s10\n\t"    \
    "vfma.f32 s3, " x ", s11\n\t"    \
    "vfma.f32 s4, " x ", s12\n\t"    \
    "vfma.f32 s5, " x ", s13\n\t"    \
    "vfma.f32 s6, " x ", s14\n\t"    \
    "vfma.f32 s7, " x ", s15\n\t"
#define MT_F32_INPUTS(each, eight) \
    "vldmia %[x]!, {s16-s19}\n\t" each("s16", eight) each("s17", eight) each("s18", eight) each("s19", eight)

/* Eight weights in s8 to s15. */
#define MT_F32_EIGHT_FLOATS "vldmia %[w]!, {s8-s15}\n\t"
#define MT_F32_EIGHT_WIDENED \
    MT_F32_WIDEN2("s8", "s9", "s28") MT_F32_WIDEN2("s10", "s11", "s29") MT_F32_WIDEN2("s12", "s13", "s30") \
    MT_F32_WIDEN2("s14", "s15", "s31")
#define MT_F32_EIGHT_HALVES "vldmia %[w]!, {s28-s31}\n\t" MT_F32_EIGHT_WIDENED
#define MT_F32_EIGHT_BYTES \
    "ldrd r4, r5, [%[w]], #8\n\t" MT_F32_SPLIT("r4", "s28", "s29") MT_F32_SPLIT("r5", "s30", "s31") \
    MT_F32_EIGHT_WIDENED

#define MT_F32_DENSE(step, masked, ...)                                                                                \
    MT_KEPT(__asm__ volatile("vmov s0, %[zero]\n\tvmov s1, %[zero]\n\tvmov s2, %[zero]\n\tvmov s3, %[zero]\n\t"  \
                     "vmov s4, %[zero]\n\tvmov s5, %[zero]\n\tvmov s6, %[zero]\n\tvmov s7, %[zero]\n\t"          \
                     "1:\n\t" step "cmp %[x], %[stop]\n\t"                                                     \
                     "bne 1b\n\t"                                                                              \
                     "vstmia %[o], {s0-s7}"                                                                    \
                     : [w] "+&r"(weights), [x] "+&r"(x)                                                        \
                     : [stop] "r"(stop), [zero] "r"(0), [o] "r"(sums) masked                                     \
                     : MT_F32_REGISTERS, __VA_ARGS__ "cc", "memory"))
#define MT_F32_DENSE_BY(each, stored)                                                       \
    do {                                                                                    \
        if ((stored) == MT_F32_BYTES)                                                       \
            MT_F32_DENSE(MT_F32_INPUTS(each, MT_F32_EIGHT_BYTES), MT_F32_MASKED, "r4", "r5", "r6", );      \
        else if ((stored) == MT_F32_HALVES)                                                 \
            MT_F32_DENSE(MT_F32_INPUTS(each, MT_F32_EIGHT_HALVES), MT_F32_PLAIN, );                       \
        else                                                                                \
            MT_F32_DENSE(MT_F32_INPUTS(each, MT_F32_EIGHT_FLOATS), MT_F32_PLAIN, );                       \
    } while (0)

/* Eight outputs of a dense layer at a time: for each input eight weights, then the biases (floats); the number of
 * inputs is a multiple of four. Up to 256 products are summed from zero, as in onnxruntime, then the bias is added;
 * for more inputs, sums of 128 are added with compensation for rounding. */
MT_F32_INLINE const uint32_t *mt_f32_rows(const float *input, const float *end, const uint32_t *weights, float *output,
                                          int32_t groups, enum mt_f32_stored stored, int fused, int relu)
{
    const int32_t most = end - input > 256 ? 128 : 256;
    do {
        const float *x = input;
        float *sums = output;
        float block[8], rest[8] = {0};
        while (x != end) {
            const float *const stop = end - x > most ? x + most : end;
            if (fused)
                MT_F32_DENSE_BY(MT_F32_INPUT_FMA, stored);
            else
                MT_F32_DENSE_BY(MT_F32_INPUT_MULADD, stored);
            for (int32_t q = 0; sums == block && q < 8; ++q)
                mt_add_f32(output + q, rest + q, block[q]);
            sums = block;
        }
        for (int32_t q = 0; most == 128 && q < 8; ++q)
            output[q] = mt_total_f32(output[q], rest[q]);
        const union mt_bits32 *const biases = (const union mt_bits32 *)(const void *)weights;
        for (int32_t q = 0; q < 8; ++q)
            output[q] += biases[q].f;
        weights += 8;
        output += 8;
        if (relu) {
            MT_F32_RELU4(output);
            MT_F32_RELU4(output - 4);
        }
    } while (--groups);
    return weights;
}

#else /* portable version */

MT_F32_INLINE const uint32_t *mt_f32_rows(const float *input, const float *end, const uint32_t *weights, float *output,
                                          int32_t groups, enum mt_f32_stored stored, int fused, int relu)
{
    const int32_t depth = (int32_t)(end - input), words = mt_f32_words(8 * depth, stored), most = depth > 256 ? 128 : 256;
    for (; groups; --groups, weights += words + 8, output += 8)
        for (int32_t q = 0; q < 8; ++q) {
            float sum = 0.0f, rest = 0.0f, block = 0.0f;
            for (int32_t k = 0; k < depth; ++k) {
                block = mt_f32_add_product(block, input[k], mt_f32_weight(weights, 8 * k + q, stored), fused);
                if ((k + 1) % most == 0 || k == depth - 1) {
                    mt_add_f32(&sum, &rest, block);
                    block = 0.0f;
                }
            }
            sum = mt_total_f32(sum, rest);
            sum += mt_f32_weight(weights + words, q, MT_F32_FLOATS);
            output[q] = relu && sum < 0.0f ? 0.0f : sum;
        }
    return weights;
}

#endif

/* The instances that operators share. */
#define MT_F32_ROWS(name, fused, relu)                                                                              \
    MT_OPERATOR const float *name(const float *input, const float *end, const float *weights, float *output,        \
                                  int32_t groups)                                                                   \
    {                                                                                                               \
        const uint32_t *const words = (const uint32_t *)(const void *)weights;                                      \
        return (const float *)(const void *)mt_f32_rows(input, end, words, output, groups, MT_F32_FLOATS, fused, relu); \
    }
MT_F32_ROWS(mt_f32_rows_muladd, 0, 0)
MT_F32_ROWS(mt_f32_rows_muladd_relu, 0, 1)
MT_F32_ROWS(mt_f32_rows_fma, 1, 0)
MT_F32_ROWS(mt_f32_rows_fma_relu, 1, 1)

#define MT_F32_STORED_ROWS(name, stored, fused, relu)                                                               \
    MT_OPERATOR const uint32_t *name(const float *input, const float *end, const uint32_t *weights, float *output,  \
                                     int32_t groups)                                                                \
    {                                                                                                               \
        return mt_f32_rows(input, end, weights, output, groups, stored, fused, relu);                               \
    }
MT_F32_STORED_ROWS(mt_f32_rows_halves_muladd, MT_F32_HALVES, 0, 0)
MT_F32_STORED_ROWS(mt_f32_rows_halves_muladd_relu, MT_F32_HALVES, 0, 1)
MT_F32_STORED_ROWS(mt_f32_rows_halves_fma, MT_F32_HALVES, 1, 0)
MT_F32_STORED_ROWS(mt_f32_rows_halves_fma_relu, MT_F32_HALVES, 1, 1)
MT_F32_STORED_ROWS(mt_f32_rows_bytes_muladd, MT_F32_BYTES, 0, 0)
MT_F32_STORED_ROWS(mt_f32_rows_bytes_fma, MT_F32_BYTES, 1, 0)

#ifdef __cplusplus
}
#endif

#endif
