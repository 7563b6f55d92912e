/* Internal to mtool: applications include mtool.h. */
/* Products of int8 for cores without SIMD, two at a time: a word holds x0 + 65536 * x1 of two pixels, and
 * multiplying it by w gives both products. Two such words fit 32 bits: after adding 32768, the upper half is the sum
 * of the second pixel's products, as if the lower half had been 0. These are summed separately; the total of the
 * whole words minus 65536 times that is the first pixel's sum. Exact, unless two adjacent weights are both -128.
 *
 * `admit` is for proofs (docs/proofs.md): a word is 65536 times its upper half plus its lower half, 0 to 65535, so that
 * sums[0] is bias - 16384 * depth plus the lower halves, of which there are depth / 2. The analysis does not relate t0 to
 * b0; more splitting does not help, as both depend on the data. */
#ifndef MT_INT_PAIRS_INT8_H
#define MT_INT_PAIRS_INT8_H

#include <stdint.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MT_PAIR_HALF 32768

/* For size, GCC does not use the upper registers of Armv6-M. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(MT_PORTABLE) && \
    (defined(__thumb2__) || (defined(__thumb__) && !defined(__OPTIMIZE_SIZE__)))
#define MT_PAIRS_ASM 1
#endif

/* The columns of four pixels: two words for each element. Elements from `count` to `filled` are 0. */
static inline void mt_int_pair_columns(int32_t *columns, const int8_t *x0, const int8_t *x1, const int8_t *x2,
                                       const int8_t *x3, int32_t count, int32_t filled)
{
    MT_UNROLL(4)
    for (int32_t k = 0; k < count; ++k, columns += 2) {
        columns[0] = x0[k] + x1[k] * 65536;
        columns[1] = x2[k] + x3[k] * 65536;
    }
    for (int32_t k = count; k < filled; ++k, columns += 2)
        columns[0] = columns[1] = 0;
}

#ifdef MT_PAIRS_ASM

#ifdef __thumb2__

/* Two elements: 8 multiply-accumulates in 11 instructions. */
#define MT_INT_PAIRS2(first, second)           \
    "ldmia %[c]!, {r8, r9, r10, r11}\n\t"      \
    "ldrsb %[u], [%[w]], #1\n\t"               \
    "mla r8, r8, %[u], %[half]\n\t"            \
    "mla r9, r9, %[u], %[half]\n\t"            \
    "ldrsb %[u], [%[w]], #1\n\t"               \
    "mla r8, r10, %[u], r8\n\t"                \
    "mla r9, r11, %[u], r9\n\t"                \
    "add %[t0], %[t0], r8\n\t"                 \
    "add %[t1], %[t1], r9\n\t"                 \
    "add %[b0], %[b0], r8, asr #16\n\t"        \
    "add %[b1], %[b1], r9, asr #16\n\t"
#define MT_INT_PAIRS_TURNS(pairs)                                                                              \
    MT_KEPT(__asm__ volatile("1:\n\t" pairs "cmp %[c], %[end]\n\t"                                           \
                     "bne 1b"                                                                                  \
                     : [t0] "+&r"(t0), [b0] "+&r"(b0), [t1] "+&r"(t1), [b1] "+&r"(b1), [c] "+&r"(columns),     \
                       [w] "+&r"(weights), [u] "=&r"(u)                                                        \
                     : [half] "r"(MT_PAIR_HALF), [end] "r"(end)                                                \
                     : "r8", "r9", "r10", "r11", "cc", "memory"))

#else

/* The same in 20 for Armv6-M, whose upper registers are only added: they have the sums. */
#define MT_INT_PAIRS2(first, second)   \
    "ldmia %[c]!, {r3, r4}\n\t"        \
    "ldrb %[u], [%[w], #" first "]\n\t"  \
    "sxtb %[u], %[u]\n\t"              \
    "muls r3, %[u], r3\n\t"            \
    "muls r4, %[u], r4\n\t"            \
    "ldmia %[c]!, {r5, r6}\n\t"        \
    "ldrb %[u], [%[w], #" second "]\n\t" \
    "sxtb %[u], %[u]\n\t"              \
    "muls r5, %[u], r5\n\t"            \
    "muls r6, %[u], r6\n\t"            \
    "adds r3, r3, r5\n\t"              \
    "adds r4, r4, r6\n\t"              \
    "add r3, r3, %[half]\n\t"          \
    "add r4, r4, %[half]\n\t"          \
    "add %[t0], %[t0], r3\n\t"         \
    "add %[t1], %[t1], r4\n\t"         \
    "asrs r3, r3, #16\n\t"             \
    "asrs r4, r4, #16\n\t"             \
    "add %[b0], %[b0], r3\n\t"         \
    "add %[b1], %[b1], r4\n\t"
#define MT_INT_PAIRS_TURNS(pairs)                                                                              \
    __asm__ volatile(".syntax unified\n"                                                                       \
                     "1:\n\t" pairs "ldr %[u], %[end]\n\t"                                                    \
                     "adds %[w], %[w], %[step]\n\t"                                                            \
                     "cmp %[c], %[u]\n\t"                                                                      \
                     "beq 2f\n\t"                                                                              \
                     "b 1b\n" /* too far for a condition */                                                    \
                     "2:"                                                                                      \
                     : [t0] "+&h"(t0), [b0] "+&h"(b0), [t1] "+&h"(t1), [b1] "+&h"(b1), [c] "+&l"(columns),     \
                       [w] "+&l"(weights), [u] "=&l"(u)                                                        \
                     : [half] "h"(MT_PAIR_HALF), [end] "m"(end), [step] "i"(2 * turn)                          \
                     : "r3", "r4", "r5", "r6", "cc", "memory")

#endif

#define MT_INT_PAIRS_1 MT_INT_PAIRS2("0", "1")
#define MT_INT_PAIRS_2 MT_INT_PAIRS_1 MT_INT_PAIRS2("2", "3")
#define MT_INT_PAIRS_3 MT_INT_PAIRS_2 MT_INT_PAIRS2("4", "5")
#define MT_INT_PAIRS_4 MT_INT_PAIRS_3 MT_INT_PAIRS2("6", "7")
#define MT_INT_PAIRS_5 MT_INT_PAIRS_4 MT_INT_PAIRS2("8", "9")
#define MT_INT_PAIRS_6 MT_INT_PAIRS_5 MT_INT_PAIRS2("10", "11")
#define MT_INT_PAIRS_7 MT_INT_PAIRS_6 MT_INT_PAIRS2("12", "13")
#define MT_INT_PAIRS_8 MT_INT_PAIRS_7 MT_INT_PAIRS2("14", "15")
#define MT_INT_PAIRS_10 MT_INT_PAIRS_8 MT_INT_PAIRS2("16", "17") MT_INT_PAIRS2("18", "19")

#endif

/* The sums of one channel and four pixels, including `bias`: `depth` elements, 2 * turn of them in each turn of the
 * loop, turn from 1 to 8, or 10. Returns the end of the weights. */
MT_INLINE const int8_t *mt_int_pairs(const int32_t *columns, const int32_t *const end, const int8_t *weights,
                                     int32_t bias, int32_t depth, int32_t turn, int32_t sums[4])
{
    uint32_t t0 = (uint32_t)bias * 65537u - (uint32_t)depth * (MT_PAIR_HALF / 2), t1 = t0;
    int32_t b0 = bias, b1 = bias;
#ifdef MT_PAIRS_ASM
    int32_t u;
    if (turn == 10)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_10);
    else if (turn == 8)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_8);
    else if (turn == 7)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_7);
    else if (turn == 6)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_6);
    else if (turn == 5)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_5);
    else if (turn == 4)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_4);
    else if (turn == 3)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_3);
    else if (turn == 2)
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_2);
    else
        MT_INT_PAIRS_TURNS(MT_INT_PAIRS_1);
#else
    (void)turn;
    for (; columns != end; columns += 4, weights += 2) {
        const int32_t both0 = columns[0] * weights[0] + MT_PAIR_HALF + columns[2] * weights[1];
        const int32_t both1 = columns[1] * weights[0] + MT_PAIR_HALF + columns[3] * weights[1];
        t0 += (uint32_t)both0;
        t1 += (uint32_t)both1;
        b0 += both0 >> 16;
        b1 += both1 >> 16;
    }
#endif
    sums[0] = (int32_t)(t0 - (uint32_t)b0 * 65536u);
    sums[1] = b0;
    sums[2] = (int32_t)(t1 - (uint32_t)b1 * 65536u);
    sums[3] = b1;
    /*@ admit bias - 16384 * depth <= sums[0] <= bias + 16384 * depth; */
    /*@ admit bias - 16384 * depth <= sums[2] <= bias + 16384 * depth; */
    return weights;
}

/* The same of two channels for cores with many registers; `depth` elements are between their weights. */
MT_INLINE const int8_t *mt_int_pairs_of_two(const int32_t *columns, const int32_t *const end, const int8_t *weights,
                                            int32_t bias0, int32_t bias1, int32_t depth, int32_t turn,
                                            int32_t sums[8])
{
    const int32_t half = mt_factor(MT_PAIR_HALF);
    uint32_t t0 = (uint32_t)bias0 * 65537u - (uint32_t)depth * (MT_PAIR_HALF / 2), t1 = t0;
    uint32_t t2 = (uint32_t)bias1 * 65537u - (uint32_t)depth * (MT_PAIR_HALF / 2), t3 = t2;
    int32_t b0 = bias0, b1 = bias0, b2 = bias1, b3 = bias1;
    for (; columns != end; columns += 4 * turn, weights += 2 * turn) {
        MT_UNROLL(10)
        for (int32_t i = 0; i < turn; ++i) {
            const int32_t x0 = columns[4 * i], x1 = columns[4 * i + 1];
            const int32_t x2 = columns[4 * i + 2], x3 = columns[4 * i + 3];
            const int32_t u0 = weights[2 * i], v0 = weights[2 * i + 1];
            const int32_t u1 = weights[depth + 2 * i], v1 = weights[depth + 2 * i + 1];
            const int32_t both0 = x0 * u0 + half + x2 * v0;
            const int32_t both1 = x1 * u0 + half + x3 * v0;
            const int32_t both2 = x0 * u1 + half + x2 * v1;
            const int32_t both3 = x1 * u1 + half + x3 * v1;
            t0 += (uint32_t)both0;
            t1 += (uint32_t)both1;
            t2 += (uint32_t)both2;
            t3 += (uint32_t)both3;
            b0 += both0 >> 16;
            b1 += both1 >> 16;
            b2 += both2 >> 16;
            b3 += both3 >> 16;
#if defined(__GNUC__)
            /* GCC would add up all turns' words first, and spill them */
            __asm__ volatile("" : "+r"(t0), "+r"(t1), "+r"(t2), "+r"(t3) : : "memory");
#endif
        }
    }
    sums[0] = (int32_t)(t0 - (uint32_t)b0 * 65536u);
    sums[1] = b0;
    sums[2] = (int32_t)(t1 - (uint32_t)b1 * 65536u);
    sums[3] = b1;
    sums[4] = (int32_t)(t2 - (uint32_t)b2 * 65536u);
    sums[5] = b2;
    sums[6] = (int32_t)(t3 - (uint32_t)b3 * 65536u);
    sums[7] = b3;
    /*@ admit bias0 - 16384 * depth <= sums[0] <= bias0 + 16384 * depth; */
    /*@ admit bias0 - 16384 * depth <= sums[2] <= bias0 + 16384 * depth; */
    /*@ admit bias1 - 16384 * depth <= sums[4] <= bias1 + 16384 * depth; */
    /*@ admit bias1 - 16384 * depth <= sums[6] <= bias1 + 16384 * depth; */
    return weights + depth;
}

#ifdef __cplusplus
}
#endif

#endif
