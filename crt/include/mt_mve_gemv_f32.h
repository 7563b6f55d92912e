/* Internal to mtool: applications include mtool.h. */
/* Dense layers of float32 with Helium: vectors of outputs. See mt_mve_f32.h. */
#ifndef MT_MVE_GEMV_F32_H
#define MT_MVE_GEMV_F32_H

#include "mt_mve_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

#define MT_MVE_F32_ADD(sum, of, x) "vfma.f32 " sum ", " of ", " x "\n\t"
/* Four inputs (r0 to r3) by four outputs (q0), eight (q0, q1) or 16 (q0 to q3). */
#define MT_MVE_F32_ROWS4(load)                                                                        \
    load(4) load(5) MT_MVE_F32_ADD("q0", "q4", "r0")                \
    load(6) MT_MVE_F32_ADD("q0", "q5", "r1")                                      \
    load(7) MT_MVE_F32_ADD("q0", "q6", "r2") MT_MVE_F32_ADD("q0", "q7", "r3")
#define MT_MVE_F32_TWO(load, x, then)                                                                 \
    load(5) MT_MVE_F32_ADD("q0", "q4", x) then MT_MVE_F32_ADD("q1", "q5", x)
#define MT_MVE_F32_ROWS8(load)                                                                        \
    load(4) MT_MVE_F32_TWO(load, "r0", load(4))                           \
    MT_MVE_F32_TWO(load, "r1", load(4)) MT_MVE_F32_TWO(load, "r2", load(4))     \
    MT_MVE_F32_TWO(load, "r3", "")
#define MT_MVE_F32_FOUR(load, x, then)                                                                \
    load(5) MT_MVE_F32_ADD("q0", "q4", x) load(6)                   \
    MT_MVE_F32_ADD("q1", "q5", x) load(7) MT_MVE_F32_ADD("q2", "q6", x)           \
    then MT_MVE_F32_ADD("q3", "q7", x)
#define MT_MVE_F32_ROWS16(load)                                                                       \
    load(4) MT_MVE_F32_FOUR(load, "r0", load(4))                          \
    MT_MVE_F32_FOUR(load, "r1", load(4)) MT_MVE_F32_FOUR(load, "r2", load(4))   \
    MT_MVE_F32_FOUR(load, "r3", "")
/* Convert each sum: summed from zero, with the bias added last. */
#define MT_MVE_F32_ZERO(sum, at) "vmov.i32 " sum ", #0\n\t"
#define MT_MVE_F32_LAST(sum, at) \
    "vldrw.32 q5, [%[w]], #16\n\tvadd.f32 " sum ", " sum ", q5\n\tvmax.s32 " sum ", " sum ", q4\n\t"
#define MT_MVE_F32_STORE(sum, at) "vstrw.32 " sum ", [%[o], #" at "]\n\t"
#define MT_MVE_F32_OF4(what) what("q0", "0")
#define MT_MVE_F32_OF8(what) MT_MVE_F32_OF4(what) what("q1", "16")
#define MT_MVE_F32_OF16(what) MT_MVE_F32_OF8(what) what("q2", "32") what("q3", "48")
#define MT_MVE_F32_DENSE(of, four, any)                                                        \
    MT_KEPT(__asm__ volatile(of(MT_MVE_F32_ZERO) "dls lr, %[n]\n\t"                             \
                     "1:\n\t"                                                                   \
                     "ldmia %[x]!, {r0-r3}\n\t" four "le lr, 1b\n\t"                            \
                     "ldr lr, %[end]\n\t"                                                       \
                     "cmp %[x], lr\n\t"                                                         \
                     "bne 2f\n\t"                                                               \
                     "ldr lr, %[least]\n\t"                                                     \
                     "vdup.32 q4, lr\n\t" of(MT_MVE_F32_LAST)                                   \
                     "2:\n\t" of(MT_MVE_F32_STORE)                                              \
                     : [w] any(weights), [x] "+&r"(x)                                           \
                     : [n] "r"(fours), [end] "m"(last), [o] "r"(to), [least] "m"(least)         \
                     : "r0", "r1", "r2", "r3", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6",  \
                       "q7", "cc", "memory"))

#define MT_MVE_F32_DENSE_BY(of, rows, halves)            \
    do {                                                 \
        if (halves)                                      \
            MT_MVE_F32_DENSE(of, rows(MT_MVE_F32_HALVES), "+&l"); \
        else                                             \
            MT_MVE_F32_DENSE(of, rows(MT_MVE_F32_FLOATS), "+&r"); \
    } while (0)

/* At the end, the sums of blocks plus the biases are the results. */
MT_MVE_F32_INLINE const uint32_t *mt_mve_f32_results(const float32x4_t *sums, const float32x4_t *rests,
                                                     const uint32_t *biases, float *output, int32_t wide, int32_t least)
{
    for (int32_t q = 0; q < wide / 4; ++q, biases += 4) {
        const float32x4_t total = mt_mve_f32_total(sums[q], rests[q]);
        const int32x4_t bits = vreinterpretq_s32_f32(vaddq_f32(total, vreinterpretq_f32_u32(vldrwq_u32(biases))));
        vstrwq_s32((int32_t *)(void *)(output + 4 * q), vmaxq_s32(bits, vdupq_n_s32(least)));
    }
    return biases;
}

/* Four, eight or 16 outputs (`wide`) of a dense layer at a time: for each input a weight per output, then the biases
 * (floats); the number of inputs is a multiple of four. Up to 256 products are summed from zero, as in onnxruntime,
 * then the bias is added; for more inputs, sums of 128 are added with compensation for rounding. */
MT_MVE_F32_INLINE const uint32_t *mt_mve_f32_rows(const float *input, const float *end, const uint32_t *weights,
                                                  float *output, int32_t groups, int32_t wide, int halves,
                                                  int32_t least)
{
    const int in_blocks = end - input > 256;
    const float *const last = in_blocks ? NULL : end;
    float block[16];
    do {
        const float *x = input;
        float *const to = in_blocks ? block : output;
        float32x4_t sums[4], rests[4];
        for (int32_t q = 0; q < wide / 4; ++q) /* otherwise GCC warns that they are uninitialized */
            sums[q] = rests[q] = vdupq_n_f32(0.0f);
        do {
            const int32_t fours = in_blocks && end - x > 128 ? 32 : (int32_t)(end - x) / 4;
            if (wide == 16)
                MT_MVE_F32_DENSE_BY(MT_MVE_F32_OF16, MT_MVE_F32_ROWS16, halves);
            else if (wide == 8)
                MT_MVE_F32_DENSE_BY(MT_MVE_F32_OF8, MT_MVE_F32_ROWS8, halves);
            else
                MT_MVE_F32_DENSE_BY(MT_MVE_F32_OF4, MT_MVE_F32_ROWS4, halves);
            if (in_blocks)
                mt_mve_f32_add_blocks(block, sums, rests, wide / 4);
        } while (x != end);
        if (in_blocks)
            weights = mt_mve_f32_results(sums, rests, weights, output, wide, least);
        output += wide;
    } while (--groups);
    return weights;
}

#else /* portable version */

MT_MVE_F32_INLINE const uint32_t *mt_mve_f32_rows(const float *input, const float *end, const uint32_t *weights,
                                                  float *output, int32_t groups, int32_t wide, int halves,
                                                  int32_t least)
{
    const int32_t depth = (int32_t)(end - input), words = wide * depth / (halves ? 2 : 1), most = depth > 256 ? 128 : 256;
    for (; groups; --groups, weights += words + wide, output += wide)
        for (int32_t q = 0; q < wide; ++q) {
            float sum = 0.0f, rest = 0.0f, block = 0.0f;
            for (int32_t k = 0; k < depth; ++k) {
                block = fmaf(input[k], mt_mve_f32_weight(weights, wide * k + q, halves), block);
                if ((k + 1) % most == 0 || k == depth - 1) {
                    mt_add_f32(&sum, &rest, block);
                    block = 0.0f;
                }
            }
            sum = mt_total_f32(sum, rest);
            output[q] = mt_mve_f32_at_least(sum + mt_mve_f32_weight(weights + words, q, 0), least);
        }
    return weights;
}

#endif

/* The instances that operators share. */
#define MT_MVE_F32_ROWS(name, type, wide, halves)                                                                    \
    MT_OPERATOR const type *name(const float *input, const float *end, const type *weights, float *output,           \
                                 int32_t groups, int32_t least)                                                      \
    {                                                                                                                \
        const uint32_t *const words = (const uint32_t *)(const void *)weights;                                       \
        return (const type *)(const void *)mt_mve_f32_rows(input, end, words, output, groups, wide, halves, least);  \
    }
MT_MVE_F32_ROWS(mt_mve_f32_rows_4, float, 4, 0)
MT_MVE_F32_ROWS(mt_mve_f32_rows_8, float, 8, 0)
MT_MVE_F32_ROWS(mt_mve_f32_rows_16, float, 16, 0)
MT_MVE_F32_ROWS(mt_mve_f32_rows_halves_4, uint32_t, 4, 1)
MT_MVE_F32_ROWS(mt_mve_f32_rows_halves_8, uint32_t, 8, 1)
MT_MVE_F32_ROWS(mt_mve_f32_rows_halves_16, uint32_t, 16, 1)

#ifdef __cplusplus
}
#endif

#endif
