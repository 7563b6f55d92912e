/* Convolutions of int8 with SIMD32, two pixels by two output channels: where the third of three would stay empty, or
 * where memory is short. See mt_dsp_tile_int8.h. */
#ifndef MT_DSP_TILE_2X2_INT8_H
#define MT_DSP_TILE_2X2_INT8_H

#include "mt_dsp_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* Two columns of int8 side by side as int16 pairs: for each four bytes [c0 c1] of (0, 2), then of (1, 3). */
MT_DSP_INLINE void mt_dsp_widen2(int32_t *columns, const int8_t *x0, const int8_t *x1, int32_t words)
{
    do {
        __asm__ volatile("ldr r4, [%1], #4\n\t"
                         "ldr r5, [%2], #4\n\t"
                         "sxtb16 r8, r4\n\t"
                         "sxtb16 r9, r5\n\t"
                         "sxtb16 r10, r4, ror #8\n\t"
                         "sxtb16 r11, r5, ror #8\n\t"
                         "stmia %0!, {r8, r9, r10, r11}"
                         : "+r"(columns), "+r"(x0), "+r"(x1)::"r4", "r5", "r8", "r9", "r10", "r11", "memory");
    } while (--words);
}

/* One of the two columns; returns where it goes on. */
MT_DSP_INLINE int32_t *mt_dsp_widen1_2x2(int32_t *column, const int8_t *x, int32_t words)
{
    do {
        int32_t even, odd;
        __asm__ volatile("ldr %1, [%3], #4\n\t"
                         "sxtb16 %2, %1, ror #8\n\t"
                         "sxtb16 %1, %1\n\t"
                         "str %2, [%0, #8]\n\t"
                         "str %1, [%0], #16"
                         : "+r"(column), "=&r"(even), "=&r"(odd), "+r"(x)::"memory");
    } while (--words);
    return column;
}

/* Four steps of k: 16 multiply-accumulates in 13 instructions. */
#define MT_DSP_2X2_MAC2(word)             \
    "ldrd r8, r9, [%[c]], #8\n\t"         \
    "sxtb16 r6, " word "\n\t"             \
    "smlad %[b0], r8, " word ", %[b0]\n\t" \
    "smlad %[b1], r9, " word ", %[b1]\n\t" \
    "smlad %[a0], r8, r6, %[a0]\n\t"      \
    "smlad %[a1], r9, r6, %[a1]\n\t"
#define MT_DSP_2X2_MAC4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_2X2_MAC2("r11") MT_DSP_2X2_MAC2("r12")
#define MT_DSP_2X2_MAC8 MT_DSP_2X2_MAC4 MT_DSP_2X2_MAC4
#define MT_DSP_2X2_MAC16 MT_DSP_2X2_MAC8 MT_DSP_2X2_MAC8
#define MT_DSP_2X2_MAC28 MT_DSP_2X2_MAC16 MT_DSP_2X2_MAC8 MT_DSP_2X2_MAC4
/* The same with weights that stand apart: 15 instructions. */
#define MT_DSP_2X2_APART2(rotation)       \
    "ldrd r8, r9, [%[c]], #8\n\t"         \
    "sxtb16 r6, r11" rotation "\n\t"      \
    "sxtb16 r10, r12" rotation "\n\t"     \
    "smlad %[a0], r8, r6, %[a0]\n\t"      \
    "smlad %[a1], r9, r6, %[a1]\n\t"      \
    "smlad %[b0], r8, r10, %[b0]\n\t"     \
    "smlad %[b1], r9, r10, %[b1]\n\t"
#define MT_DSP_2X2_APART4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_2X2_APART2("") MT_DSP_2X2_APART2(", ror #8")
#define MT_DSP_2X2_APART8 MT_DSP_2X2_APART4 MT_DSP_2X2_APART4
#define MT_DSP_2X2_APART16 MT_DSP_2X2_APART8 MT_DSP_2X2_APART8
#define MT_DSP_2X2_APART28 MT_DSP_2X2_APART16 MT_DSP_2X2_APART8 MT_DSP_2X2_APART4
#define MT_DSP_2X2_DOT(macs)                                                                                    \
    __asm__ volatile("ldrd %[a0], %[b0], [%[w]], #8\n\t"                                                        \
                     "mov %[a1], %[a0]\n\t"                                                                     \
                     "mov %[b1], %[b0]\n\t"                                                                     \
                     "1:\n\t" macs "cmp %[c], %[end]\n\t"                                                       \
                     "bne 1b"                                                                                   \
                     : [a0] "=&r"(a0), [a1] "=&r"(a1), [b0] "=&r"(b0), [b1] "=&r"(b1), [w] "+&r"(weights),      \
                       [c] "+&r"(c)                                                                             \
                     : [end] "r"(end)                                                                           \
                     : "r6", "r8", "r9", "r10", "r11", "r12", "cc", "memory")

/* What scales the four sums, in place. */
#define MT_DSP_2X2_FLOAT() MT_DSP_2X2_FLOAT_OF("", )
/* Where there are no multipliers for two channels, z is the scale of the first, and that of the second follows. */
#define MT_DSP_2X2_FLOAT_EXACT() MT_DSP_2X2_FLOAT_OF("vmov s0, %[z]\n\t", [z] "r"(z))
#define MT_DSP_2X2_FLOAT_OF(first, ...)                                                                    \
    __asm__ volatile("vldmia %[w]!, {s0, s1}\n\t" first                                                   \
                     "vmov s2, s3, %[a0], %[b0]\n\t"                                                      \
                     "vmov s4, s5, %[a1], %[b1]\n\t"                                                      \
                     "vcvt.f32.s32 s2, s2\n\t"                                                            \
                     "vcvt.f32.s32 s3, s3\n\t"                                                            \
                     "vcvt.f32.s32 s4, s4\n\t"                                                            \
                     "vcvt.f32.s32 s5, s5\n\t"                                                            \
                     "vmul.f32 s2, s2, s0\n\t"                                                            \
                     "vmul.f32 s3, s3, s1\n\t"                                                            \
                     "vmul.f32 s4, s4, s0\n\t"                                                            \
                     "vmul.f32 s5, s5, s1\n\t"                                                            \
                     "vcvtr.s32.f32 s2, s2\n\t"                                                           \
                     "vcvtr.s32.f32 s3, s3\n\t"                                                           \
                     "vcvtr.s32.f32 s4, s4\n\t"                                                           \
                     "vcvtr.s32.f32 s5, s5\n\t"                                                           \
                     "vmov %[a0], %[b0], s2, s3\n\t"                                                      \
                     "vmov %[a1], %[b1], s4, s5"                                                          \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [b0] "+&r"(b0), [b1] "+&r"(b1), [w] "+&r"(weights) \
                     : __VA_ARGS__                                                                        \
                     : "s0", "s1", "s2", "s3", "s4", "s5", "memory")
#define MT_DSP_2X2_FIXED2(x, y, scale)                                                            \
    __asm__ volatile("ldrd %[m], %[s], [%[w]], #8\n\t"                                            \
                     scale("%[i]", "%[m]", "%[s]") scale("%[j]", "%[m]", "%[s]")                  \
                     : [i] "+&r"(x), [j] "+&r"(y), [w] "+&r"(weights), [m] "=&r"(m), [s] "=&r"(s) \
                     :                                                                            \
                     : "cc", "memory")
#define MT_DSP_2X2_FIXED(scale_a, scale_b)  \
    do {                                    \
        int32_t m, s;                       \
        MT_DSP_2X2_FIXED2(a0, a1, scale_a); \
        MT_DSP_2X2_FIXED2(b0, b1, scale_b); \
    } while (0)

/* The four sums by multipliers and offsets: those of the second channel follow. */
#define MT_DSP_2X2_EXACT(shift_b)                                                                                      \
    __asm__ volatile(MT_DSP_EXACT("%[a0]", "%[m]", "%[z]", "%[n]") MT_DSP_EXACT("%[a1]", "%[m]", "%[z]", "%[n]")       \
                     "ldrd %[m], %[z], [%[w]], #8\n\t"                                                                 \
                     MT_DSP_EXACT("%[b0]", "%[m]", "%[z]", "%[k]") MT_DSP_EXACT("%[b1]", "%[m]", "%[z]", "%[k]")       \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [b0] "+&r"(b0), [b1] "+&r"(b1), [w] "+&r"(weights),             \
                       [m] "+&r"(m), [z] "+&r"(z)                                                                      \
                     : [n] "i"(MT_EXACT_PLACES(by)), [k] "i"(MT_EXACT_PLACES(by) + (shift_b))                                      \
                     : "cc", "memory")
#define MT_DSP_2X2_STORE_EXACT()                                                                                       \
    __asm__ volatile("bfi %[a0], %[b0], #8, #8\n\tstrh %[a0], [%[o0], %[at]]\n\t"                                      \
                     "bfi %[a1], %[b1], #8, #8\n\tstrh %[a1], [%[o1], %[at]]\n\t"                                      \
                     "add %[at], %[at], #2"                                                                            \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [at] "+&r"(at)                                                  \
                     : [b0] "r"(b0), [b1] "r"(b1), [o0] "r"(o0), [o1] "r"(o1)                                          \
                     : "memory")

/* Two columns by all output channels, two at a time; as mt_dsp_columns. */
MT_DSP_INLINE void mt_dsp_columns_2x2(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                      int8_t *o1, int32_t pairs, int unroll, int apart, enum mt_scaling by,
                                      int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    int32_t at = -2 * pairs; /* from the ends of the outputs */
    o0 -= at;
    o1 -= at;
    do {
        int32_t a0, a1, b0, b1;
        const int32_t *c = columns;
        if (apart && unroll == 28)
            MT_DSP_2X2_DOT(MT_DSP_2X2_APART28);
        else if (apart && unroll == 16)
            MT_DSP_2X2_DOT(MT_DSP_2X2_APART16);
        else if (apart)
            MT_DSP_2X2_DOT(MT_DSP_2X2_APART8);
        else if (unroll == 28)
            MT_DSP_2X2_DOT(MT_DSP_2X2_MAC28);
        else if (unroll == 16)
            MT_DSP_2X2_DOT(MT_DSP_2X2_MAC16);
        else
            MT_DSP_2X2_DOT(MT_DSP_2X2_MAC8);
        if (!apart)
            __asm__ volatile("sub %[b0], %[b0], %[a0]\n\t"
                             "sub %[b1], %[b1], %[a1]"
                             : [b0] "+&r"(b0), [b1] "+&r"(b1)
                             : [a0] "r"(a0), [a1] "r"(a1));
        if (by > MT_EXACT) {
            int32_t m, z;
            MT_DSP_NEXT(m, z, weights);
            if (MT_DSP_USUAL(m)) {
                MT_DSP_2X2_EXACT(apart ? 0 : 8);
                if (!clamped) {
                    MT_DSP_2X2_STORE_EXACT();
                } else {
                    MT_DSP_STORE_CLAMPED(a0, b0, o0);
                    MT_DSP_STORE_CLAMPED(a1, b1, o1);
                    at += 2;
                }
                continue;
            }
            MT_DSP_2X2_FLOAT_EXACT();
        } else
            MT_DSP_SCALE_PAIRS(MT_DSP_2X2_FLOAT, MT_DSP_2X2_FIXED);
        MT_DSP_STORE(a0, b0, o0);
        MT_DSP_STORE(a1, b1, o1);
        at += 2;
    } while (at);
}

#else /* the same in plain C */

MT_DSP_INLINE int32_t *mt_dsp_widen1_2x2(int32_t *column, const int8_t *x, int32_t words)
{
    return mt_dsp_widen_of(column, x, words, 2);
}

MT_DSP_INLINE void mt_dsp_widen2(int32_t *columns, const int8_t *x0, const int8_t *x1, int32_t words)
{
    mt_dsp_widen1_2x2(columns, x0, words);
    mt_dsp_widen1_2x2(columns + 1, x1, words);
}

MT_DSP_INLINE void mt_dsp_columns_2x2(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                      int8_t *o1, int32_t pairs, int unroll, int apart, enum mt_scaling by,
                                      int clamped, const struct mt_dsp_range *range)
{
    int8_t *const o[2] = {o0, o1};
    (void)unroll;
    (void)clamped;
    mt_dsp_tiles(columns, end, weights, o, pairs, apart, by, range, 2);
}

#endif

/* One column of padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill1_2x2(int32_t *column, int8_t value, int32_t words)
{
    return mt_dsp_fill_of(column, value, words, 2);
}

/* The functions that operators share: the unrolling, the scaling, and whether the output has a range of its own. Those of
 * MT_EXACT are written where they are called. */
#define MT_DSP_COLUMNS_2X2_PLAIN(name, unroll, apart, by)                                                                  \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,           \
                          int8_t *o1, int32_t pairs)                                                                 \
    {                                                                                                                \
        mt_dsp_columns_2x2(columns, end, weights, o0, o1, pairs, unroll, apart, by, 0, 0);                           \
    }
#define MT_DSP_COLUMNS_2X2_RANGE(name, unroll, apart, by, clamped)                                                      \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,           \
                          int8_t *o1, int32_t pairs, const struct mt_dsp_range *range)                               \
    {                                                                                                                \
        const struct mt_dsp_range own = *range;                                                                      \
        mt_dsp_columns_2x2(columns, end, weights, o0, o1, pairs, unroll, apart, by, clamped, &own);                  \
    }
#define MT_DSP_COLUMNS_2X2(name, unroll, apart, by)      \
    MT_DSP_COLUMNS_2X2_PLAIN(name, unroll, apart, by) \
    MT_DSP_COLUMNS_2X2_RANGE(name##_range, unroll, apart, by, 1)
#define MT_DSP_EACH_2X2(kind, by)                                 \
    MT_DSP_COLUMNS_2X2(mt_dsp_columns_2x2##kind##_8, 8, 0, by)    \
    MT_DSP_COLUMNS_2X2(mt_dsp_columns_2x2##kind##_16, 16, 0, by)  \
    MT_DSP_COLUMNS_2X2(mt_dsp_columns_2x2##kind##_28, 28, 0, by)  \
    MT_DSP_COLUMNS_2X2(mt_dsp_apart_2x2##kind##_8, 8, 1, by)      \
    MT_DSP_COLUMNS_2X2(mt_dsp_apart_2x2##kind##_16, 16, 1, by)    \
    MT_DSP_COLUMNS_2X2(mt_dsp_apart_2x2##kind##_28, 28, 1, by)
MT_DSP_EACH_2X2(, MT_BY_FLOAT)
MT_DSP_EACH_2X2(_twice, MT_TWICE)
MT_DSP_EACH_2X2(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
