/* Internal to mtool: applications include mtool.h. */
/* Common parts of float32 operators on Cortex-M with a float32 FPU; their register tiles are in assembly.
 *
 * MULADD rounds twice and takes two single-cycle instructions; FMA is one instruction, but takes three cycles on a
 * Cortex-M4 (Arm DDI 0439B, table 7-1): MULADD is faster there, although it counts more instructions. On other
 * cores, without optimization and with MT_PORTABLE defined, the same functions are plain C. */
#ifndef MT_F32_H
#define MT_F32_H

#include <stdint.h>
#include <string.h>

#include "mt_half.h"
#include "mt_float.h"
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

/* The block depth for tiles with columns deeper than 256: the sums of blocks are added with compensation for
 * rounding. In the weights, each block except a tile's first has zeros instead of biases. */
#define MT_F32_BLOCK 128

/* How weights are stored: as floats; as float16, two per word; or as bytes, a sign and seven bits of magnitude, four
 * per word, which become subnormal float16 numbers: 2^-24 times the weight. */
enum mt_f32_stored { MT_F32_FLOATS, MT_F32_HALVES, MT_F32_BYTES };

/* Replace a negative number by zero, in an integer register: the core has no VMAX. */
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

/* Two float16 numbers of a register. */
#define MT_F32_WIDEN2(a, b, from) "vcvtb.f32.f16 " a ", " from "\n\tvcvtt.f32.f16 " b ", " from "\n\t"

/* Unpack a word of four bytes to two registers of float16; the mask selects sign and magnitude. */
#define MT_F32_MASKED , [mask] "r"(0x807F807Fu)
#define MT_F32_PLAIN
#define MT_F32_SPLIT(word, a, b)                 \
    "and r6, %[mask], " word "\n\t"              \
    "and " word ", %[mask], " word ", ror #8\n\t" \
    "vmov " a ", " b ", r6, " word "\n\t"

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

#else /* portable version */

MT_F32_INLINE float mt_f32_add_product(float sum, float a, float b, int fused)
{
    return fused ? fmaf(a, b, sum) : sum + a * b;
}

/* Weight i of a stream of weights; mt_f32_words: the words that `count` of them take. */
MT_F32_INLINE float mt_f32_weight(const uint32_t *weights, int32_t i, enum mt_f32_stored stored)
{
    if (stored == MT_F32_HALVES)
        return mt_f16_load((uint16_t)(weights[i / 2] >> i % 2 * 16 & 0xFFFFu));
    if (stored == MT_F32_BYTES) {
        static const uint8_t at[4] = {0, 16, 8, 24}, signs[4] = {15, 31, 23, 7};
        const float size = (float)(weights[i / 4] >> at[i % 4] & 127) * 5.9604644775390625e-8f;
        return weights[i / 4] >> signs[i % 4] & 1 ? -size : size;
    }
    float weight;
    memcpy(&weight, weights + i, sizeof(weight));
    return weight;
}

MT_F32_INLINE int32_t mt_f32_words(int32_t count, enum mt_f32_stored stored)
{
    return stored == MT_F32_HALVES ? count / 2 : stored == MT_F32_BYTES ? count / 4 : count;
}

/* `pixels` columns by all output channels, `channels` at a time: the results of a pixel go to its o. `most`: the
 * depth of a block. */
MT_F32_INLINE void mt_f32_tiles(const float *columns, const float *end, const uint32_t *weights, float *const *o,
                                int32_t tiles, enum mt_f32_stored stored, int fused, int relu, int32_t pixels,
                                int32_t channels, int32_t most)
{
    const int32_t depth = (int32_t)(end - columns) / pixels, blocks = (depth + most - 1) / most;
    const int32_t words = channels + mt_f32_words(channels * most, stored); /* of a whole block */
    for (int32_t n = 0; n < tiles; ++n, weights += channels * blocks + mt_f32_words(channels * depth, stored))
        for (int32_t p = 0; p < pixels; ++p)
            for (int32_t q = 0; q < channels; ++q) {
                float total = 0.0f, rest = 0.0f;
                for (int32_t b = 0; b < blocks; ++b) {
                    const uint32_t *const from = weights + b * words;
                    float sum = mt_f32_weight(from, q, MT_F32_FLOATS);
                    for (int32_t k = b * most; k < depth && k < (b + 1) * most; ++k) {
                        const float weight = mt_f32_weight(from + channels, channels * (k - b * most) + q, stored);
                        sum = mt_f32_add_product(sum, columns[pixels * k + p], weight, fused);
                    }
                    mt_add_f32(&total, &rest, sum);
                }
                total = mt_total_f32(total, rest);
                o[p][channels * n + q] = relu && total < 0.0f ? 0.0f : total;
            }
}

#endif

#ifdef __cplusplus
}
#endif

#endif
