/* The inner loops of float32 operators on Cortex-M with a float32 FPU: register tiles in assembly.
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

/* One step of k: four pixels (s20 to s23) by four channels (s16 to s19); the sums are s0 to s15, pixel by pixel.
 * A row: four inputs (s16 to s19) by eight outputs. */
#define MT_F32_TILE_MULADD \
    "vldmia %[w]!, {s16-s19}\n\t" \
    "vldmia %[c]!, {s20-s23}\n\t" \
    "vmul.f32 s24, s20, s16\n\t" \
    "vmul.f32 s25, s20, s17\n\t" \
    "vmul.f32 s26, s20, s18\n\t" \
    "vmul.f32 s27, s20, s19\n\t" \
    "vmul.f32 s28, s21, s16\n\t" \
    "vmul.f32 s29, s21, s17\n\t" \
    "vmul.f32 s30, s21, s18\n\t" \
    "vmul.f32 s31, s21, s19\n\t" \
    "vadd.f32 s0, s0, s24\n\t" \
    "vadd.f32 s1, s1, s25\n\t" \
    "vadd.f32 s2, s2, s26\n\t" \
    "vadd.f32 s3, s3, s27\n\t" \
    "vadd.f32 s4, s4, s28\n\t" \
    "vadd.f32 s5, s5, s29\n\t" \
    "vadd.f32 s6, s6, s30\n\t" \
    "vadd.f32 s7, s7, s31\n\t" \
    "vmul.f32 s24, s22, s16\n\t" \
    "vmul.f32 s25, s22, s17\n\t" \
    "vmul.f32 s26, s22, s18\n\t" \
    "vmul.f32 s27, s22, s19\n\t" \
    "vmul.f32 s28, s23, s16\n\t" \
    "vmul.f32 s29, s23, s17\n\t" \
    "vmul.f32 s30, s23, s18\n\t" \
    "vmul.f32 s31, s23, s19\n\t" \
    "vadd.f32 s8, s8, s24\n\t" \
    "vadd.f32 s9, s9, s25\n\t" \
    "vadd.f32 s10, s10, s26\n\t" \
    "vadd.f32 s11, s11, s27\n\t" \
    "vadd.f32 s12, s12, s28\n\t" \
    "vadd.f32 s13, s13, s29\n\t" \
    "vadd.f32 s14, s14, s30\n\t" \
    "vadd.f32 s15, s15, s31\n\t"

#define MT_F32_ROW_MULADD \
    "vldmia %[x]!, {s16-s19}\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vmul.f32 s20, s16, s8\n\t" \
    "vmul.f32 s21, s16, s9\n\t" \
    "vmul.f32 s22, s16, s10\n\t" \
    "vmul.f32 s23, s16, s11\n\t" \
    "vmul.f32 s24, s16, s12\n\t" \
    "vmul.f32 s25, s16, s13\n\t" \
    "vmul.f32 s26, s16, s14\n\t" \
    "vmul.f32 s27, s16, s15\n\t" \
    "vadd.f32 s0, s0, s20\n\t" \
    "vadd.f32 s1, s1, s21\n\t" \
    "vadd.f32 s2, s2, s22\n\t" \
    "vadd.f32 s3, s3, s23\n\t" \
    "vadd.f32 s4, s4, s24\n\t" \
    "vadd.f32 s5, s5, s25\n\t" \
    "vadd.f32 s6, s6, s26\n\t" \
    "vadd.f32 s7, s7, s27\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vmul.f32 s20, s17, s8\n\t" \
    "vmul.f32 s21, s17, s9\n\t" \
    "vmul.f32 s22, s17, s10\n\t" \
    "vmul.f32 s23, s17, s11\n\t" \
    "vmul.f32 s24, s17, s12\n\t" \
    "vmul.f32 s25, s17, s13\n\t" \
    "vmul.f32 s26, s17, s14\n\t" \
    "vmul.f32 s27, s17, s15\n\t" \
    "vadd.f32 s0, s0, s20\n\t" \
    "vadd.f32 s1, s1, s21\n\t" \
    "vadd.f32 s2, s2, s22\n\t" \
    "vadd.f32 s3, s3, s23\n\t" \
    "vadd.f32 s4, s4, s24\n\t" \
    "vadd.f32 s5, s5, s25\n\t" \
    "vadd.f32 s6, s6, s26\n\t" \
    "vadd.f32 s7, s7, s27\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vmul.f32 s20, s18, s8\n\t" \
    "vmul.f32 s21, s18, s9\n\t" \
    "vmul.f32 s22, s18, s10\n\t" \
    "vmul.f32 s23, s18, s11\n\t" \
    "vmul.f32 s24, s18, s12\n\t" \
    "vmul.f32 s25, s18, s13\n\t" \
    "vmul.f32 s26, s18, s14\n\t" \
    "vmul.f32 s27, s18, s15\n\t" \
    "vadd.f32 s0, s0, s20\n\t" \
    "vadd.f32 s1, s1, s21\n\t" \
    "vadd.f32 s2, s2, s22\n\t" \
    "vadd.f32 s3, s3, s23\n\t" \
    "vadd.f32 s4, s4, s24\n\t" \
    "vadd.f32 s5, s5, s25\n\t" \
    "vadd.f32 s6, s6, s26\n\t" \
    "vadd.f32 s7, s7, s27\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vmul.f32 s20, s19, s8\n\t" \
    "vmul.f32 s21, s19, s9\n\t" \
    "vmul.f32 s22, s19, s10\n\t" \
    "vmul.f32 s23, s19, s11\n\t" \
    "vmul.f32 s24, s19, s12\n\t" \
    "vmul.f32 s25, s19, s13\n\t" \
    "vmul.f32 s26, s19, s14\n\t" \
    "vmul.f32 s27, s19, s15\n\t" \
    "vadd.f32 s0, s0, s20\n\t" \
    "vadd.f32 s1, s1, s21\n\t" \
    "vadd.f32 s2, s2, s22\n\t" \
    "vadd.f32 s3, s3, s23\n\t" \
    "vadd.f32 s4, s4, s24\n\t" \
    "vadd.f32 s5, s5, s25\n\t" \
    "vadd.f32 s6, s6, s26\n\t" \
    "vadd.f32 s7, s7, s27\n\t"

#define MT_F32_TILE_FMA \
    "vldmia %[w]!, {s16-s19}\n\t" \
    "vldmia %[c]!, {s20-s23}\n\t" \
    "vfma.f32 s0, s20, s16\n\t" \
    "vfma.f32 s1, s20, s17\n\t" \
    "vfma.f32 s2, s20, s18\n\t" \
    "vfma.f32 s3, s20, s19\n\t" \
    "vfma.f32 s4, s21, s16\n\t" \
    "vfma.f32 s5, s21, s17\n\t" \
    "vfma.f32 s6, s21, s18\n\t" \
    "vfma.f32 s7, s21, s19\n\t" \
    "vfma.f32 s8, s22, s16\n\t" \
    "vfma.f32 s9, s22, s17\n\t" \
    "vfma.f32 s10, s22, s18\n\t" \
    "vfma.f32 s11, s22, s19\n\t" \
    "vfma.f32 s12, s23, s16\n\t" \
    "vfma.f32 s13, s23, s17\n\t" \
    "vfma.f32 s14, s23, s18\n\t" \
    "vfma.f32 s15, s23, s19\n\t"

#define MT_F32_ROW_FMA \
    "vldmia %[x]!, {s16-s19}\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vfma.f32 s0, s16, s8\n\t" \
    "vfma.f32 s1, s16, s9\n\t" \
    "vfma.f32 s2, s16, s10\n\t" \
    "vfma.f32 s3, s16, s11\n\t" \
    "vfma.f32 s4, s16, s12\n\t" \
    "vfma.f32 s5, s16, s13\n\t" \
    "vfma.f32 s6, s16, s14\n\t" \
    "vfma.f32 s7, s16, s15\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vfma.f32 s0, s17, s8\n\t" \
    "vfma.f32 s1, s17, s9\n\t" \
    "vfma.f32 s2, s17, s10\n\t" \
    "vfma.f32 s3, s17, s11\n\t" \
    "vfma.f32 s4, s17, s12\n\t" \
    "vfma.f32 s5, s17, s13\n\t" \
    "vfma.f32 s6, s17, s14\n\t" \
    "vfma.f32 s7, s17, s15\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vfma.f32 s0, s18, s8\n\t" \
    "vfma.f32 s1, s18, s9\n\t" \
    "vfma.f32 s2, s18, s10\n\t" \
    "vfma.f32 s3, s18, s11\n\t" \
    "vfma.f32 s4, s18, s12\n\t" \
    "vfma.f32 s5, s18, s13\n\t" \
    "vfma.f32 s6, s18, s14\n\t" \
    "vfma.f32 s7, s18, s15\n\t" \
    "vldmia %[w]!, {s8-s15}\n\t" \
    "vfma.f32 s0, s19, s8\n\t" \
    "vfma.f32 s1, s19, s9\n\t" \
    "vfma.f32 s2, s19, s10\n\t" \
    "vfma.f32 s3, s19, s11\n\t" \
    "vfma.f32 s4, s19, s12\n\t" \
    "vfma.f32 s5, s19, s13\n\t" \
    "vfma.f32 s6, s19, s14\n\t" \
    "vfma.f32 s7, s19, s15\n\t"


#define MT_F32_REGISTERS \
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15", \
          "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28", "s29", \
          "s30", "s31"

#define MT_F32_DOT(step) \
    __asm__ volatile("vldmia %[w]!, {s16-s19}\n\t" \
                     "vmov.f32 s0, s16\n\tvmov.f32 s1, s17\n\tvmov.f32 s2, s18\n\tvmov.f32 s3, s19\n\t" \
                     "vmov.f32 s4, s16\n\tvmov.f32 s5, s17\n\tvmov.f32 s6, s18\n\tvmov.f32 s7, s19\n\t" \
                     "vmov.f32 s8, s16\n\tvmov.f32 s9, s17\n\tvmov.f32 s10, s18\n\tvmov.f32 s11, s19\n\t" \
                     "vmov.f32 s12, s16\n\tvmov.f32 s13, s17\n\tvmov.f32 s14, s18\n\tvmov.f32 s15, s19\n\t" \
                     "1:\n\t" step step step step "cmp %[c], %[end]\n\t" \
                     "bne 1b\n\t" \
                     "vstmia %[o0]!, {s0-s3}\n\t" \
                     "vstmia %[o1]!, {s4-s7}\n\t" \
                     "vstmia %[o2]!, {s8-s11}\n\t" \
                     "vstmia %[o3]!, {s12-s15}" \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o0] "+&r"(o0), [o1] "+&r"(o1), [o2] "+&r"(o2), [o3] "+&r"(o3) \
                     : [end] "r"(end) \
                     : MT_F32_REGISTERS, "cc", "memory")

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

/* Four columns by all output channels, four at a time. The columns stand side by side, four floats for each k; their
 * depth is a multiple of four. For each four channels the weights are: biases, then four floats for each k. */
MT_F32_INLINE void mt_f32_columns(const float *columns, const float *end, const float *weights, float *o0, float *o1,
                                  float *o2, float *o3, int32_t quads, int fused, int relu)
{
    do {
        const float *c = columns;
        if (fused)
            MT_F32_DOT(MT_F32_TILE_FMA);
        else
            MT_F32_DOT(MT_F32_TILE_MULADD);
        if (relu) {
            MT_F32_RELU4(o0);
            MT_F32_RELU4(o1);
            MT_F32_RELU4(o2);
            MT_F32_RELU4(o3);
        }
    } while (--quads);
}

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
                MT_F32_DENSE(MT_F32_ROW_FMA);
            else
                MT_F32_DENSE(MT_F32_ROW_MULADD);
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

MT_F32_INLINE float mt_f32_add_product(float sum, float a, float b, int fused)
{
    return fused ? fmaf(a, b, sum) : sum + a * b;
}

MT_F32_INLINE void mt_f32_columns(const float *columns, const float *end, const float *weights, float *o0, float *o1,
                                  float *o2, float *o3, int32_t quads, int fused, int relu)
{
    float *const o[4] = {o0, o1, o2, o3};
    for (int32_t n = 0; n < quads; ++n) {
        const float *const bias = weights;
        weights += 4;
        for (int32_t p = 0; p < 4; ++p)
            for (int32_t q = 0; q < 4; ++q) {
                float sum = bias[q];
                for (int32_t k = 0; k < end - columns; k += 4)
                    sum = mt_f32_add_product(sum, columns[k + p], weights[k + q], fused);
                o[p][4 * n + q] = relu && sum < 0.0f ? 0.0f : sum;
            }
        weights += end - columns;
    }
}

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
#define MT_F32_COLUMNS(name, fused, relu) \
    MT_OPERATOR void name(const float *columns, const float *end, const float *weights, float *o0, float *o1, float *o2, \
                          float *o3, int32_t quads) \
    { \
        mt_f32_columns(columns, end, weights, o0, o1, o2, o3, quads, fused, relu); \
    }
MT_F32_COLUMNS(mt_f32_columns_muladd, 0, 0)
MT_F32_COLUMNS(mt_f32_columns_muladd_relu, 0, 1)
MT_F32_COLUMNS(mt_f32_columns_fma, 1, 0)
MT_F32_COLUMNS(mt_f32_columns_fma_relu, 1, 1)

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
