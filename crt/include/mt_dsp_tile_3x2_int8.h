/* Convolutions of int8 with SIMD32: three pixels by two output channels. See mt_dsp_tile_int8.h. */
#ifndef MT_DSP_TILE_3X2_INT8_H
#define MT_DSP_TILE_3X2_INT8_H

#include "mt_dsp_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* Three columns of int8 side by side as int16 pairs: for each four bytes [c0 c1 c2] of (0, 2), then of (1, 3). */
MT_DSP_INLINE void mt_dsp_widen3(int32_t *columns, const int8_t *x0, const int8_t *x1, const int8_t *x2, int32_t words)
{
    do {
        __asm__ volatile("ldr r4, [%1], #4\n\t"
                         "ldr r5, [%2], #4\n\t"
                         "ldr r6, [%3], #4\n\t"
                         "sxtb16 r8, r4\n\t"
                         "sxtb16 r9, r5\n\t"
                         "sxtb16 r10, r6\n\t"
                         "stmia %0!, {r8, r9, r10}\n\t"
                         "sxtb16 r4, r4, ror #8\n\t"
                         "sxtb16 r5, r5, ror #8\n\t"
                         "sxtb16 r6, r6, ror #8\n\t"
                         "stmia %0!, {r4, r5, r6}"
                         : "+r"(columns), "+r"(x0), "+r"(x1), "+r"(x2)::"r4", "r5", "r6", "r8", "r9", "r10", "memory");
    } while (--words);
}

/* One of the three columns; returns where it goes on. */
MT_DSP_INLINE int32_t *mt_dsp_widen1(int32_t *column, const int8_t *x, int32_t words)
{
    do {
        int32_t even, odd;
        __asm__ volatile("ldr %1, [%3], #4\n\t"
                         "sxtb16 %2, %1, ror #8\n\t"
                         "sxtb16 %1, %1\n\t"
                         "str %2, [%0, #12]\n\t"
                         "str %1, [%0], #24"
                         : "+r"(column), "=&r"(even), "=&r"(odd), "+r"(x)::"memory");
    } while (--words);
    return column;
}

/* Four steps of k: 24 multiply-accumulates in 17 instructions. */
#define MT_DSP_MAC2(word)             \
    "sxtb16 r6, " word "\n\t"         \
    "ldmia %[c]!, {r8, r9, r10}\n\t"  \
    "smlad %[a0], r8, r6, %[a0]\n\t"  \
    "smlad %[a1], r9, r6, %[a1]\n\t"  \
    "smlad %[a2], r10, r6, %[a2]\n\t" \
    "smlad %[b0], r8, " word ", %[b0]\n\t" \
    "smlad %[b1], r9, " word ", %[b1]\n\t" \
    "smlad %[b2], r10, " word ", %[b2]\n\t"
#define MT_DSP_MAC4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_MAC2("r11") MT_DSP_MAC2("r12")
#define MT_DSP_MAC8 MT_DSP_MAC4 MT_DSP_MAC4
#define MT_DSP_MAC16 MT_DSP_MAC8 MT_DSP_MAC8
#define MT_DSP_MAC28 MT_DSP_MAC16 MT_DSP_MAC8 MT_DSP_MAC4
/* The same with weights that stand apart: 19 instructions. */
#define MT_DSP_APART2(rotation)               \
    "ldmia %[c]!, {r8, r9, r10}\n\t"         \
    "sxtb16 r6, r11" rotation "\n\t"         \
    "smlad %[a0], r8, r6, %[a0]\n\t"         \
    "smlad %[a1], r9, r6, %[a1]\n\t"         \
    "smlad %[a2], r10, r6, %[a2]\n\t"        \
    "sxtb16 r6, r12" rotation "\n\t"         \
    "smlad %[b0], r8, r6, %[b0]\n\t"         \
    "smlad %[b1], r9, r6, %[b1]\n\t"         \
    "smlad %[b2], r10, r6, %[b2]\n\t"
#define MT_DSP_APART4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_APART2("") MT_DSP_APART2(", ror #8")
#define MT_DSP_APART8 MT_DSP_APART4 MT_DSP_APART4
#define MT_DSP_APART16 MT_DSP_APART8 MT_DSP_APART8
#define MT_DSP_APART28 MT_DSP_APART16 MT_DSP_APART8 MT_DSP_APART4
#define MT_DSP_DOT3(macs)                                                                                        \
    __asm__ volatile("ldrd %[a0], %[b0], [%[w]], #8\n\t"                                                         \
                     "mov %[a1], %[a0]\n\t"                                                                      \
                     "mov %[b1], %[b0]\n\t"                                                                      \
                     "mov %[a2], %[a0]\n\t"                                                                      \
                     "mov %[b2], %[b0]\n\t"                                                                      \
                     "1:\n\t" macs "ldr r6, %[end]\n\t"                                                          \
                     "cmp %[c], r6\n\t"                                                                          \
                     "bne 1b"                                                                                    \
                     : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [b0] "=&r"(b0), [b1] "=&r"(b1),           \
                       [b2] "=&r"(b2), [w] "+&r"(weights), [c] "+&r"(c)                                          \
                     : [end] "m"(end)                                                                            \
                     : "r6", "r8", "r9", "r10", "r11", "r12", "cc", "memory")

/* What scales the six sums, in place: in s2 to s7, by `a` and `b`. */
#define MT_DSP_SCALE6(a, b)             \
    "vmov s2, s3, %[a0], %[b0]\n\t"     \
    "vmov s4, s5, %[a1], %[b1]\n\t"     \
    "vmov s6, s7, %[a2], %[b2]\n\t"     \
    "vcvt.f32.s32 s2, s2\n\t"           \
    "vcvt.f32.s32 s3, s3\n\t"           \
    "vcvt.f32.s32 s4, s4\n\t"           \
    "vcvt.f32.s32 s5, s5\n\t"           \
    "vcvt.f32.s32 s6, s6\n\t"           \
    "vcvt.f32.s32 s7, s7\n\t"           \
    "vmul.f32 s2, s2, " a "\n\t"        \
    "vmul.f32 s3, s3, " b "\n\t"        \
    "vmul.f32 s4, s4, " a "\n\t"        \
    "vmul.f32 s5, s5, " b "\n\t"        \
    "vmul.f32 s6, s6, " a "\n\t"        \
    "vmul.f32 s7, s7, " b "\n\t"        \
    "vcvtr.s32.f32 s2, s2\n\t"          \
    "vcvtr.s32.f32 s3, s3\n\t"          \
    "vcvtr.s32.f32 s4, s4\n\t"          \
    "vcvtr.s32.f32 s5, s5\n\t"          \
    "vcvtr.s32.f32 s6, s6\n\t"          \
    "vcvtr.s32.f32 s7, s7\n\t"          \
    "vmov %[a0], %[b0], s2, s3\n\t"     \
    "vmov %[a1], %[b1], s4, s5\n\t"     \
    "vmov %[a2], %[b2], s6, s7"
#define MT_DSP_FLOAT6()                                                                                \
    __asm__ volatile("vldmia %[w]!, {s0, s1}\n\t" MT_DSP_SCALE6("s0", "s1")                            \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), \
                       [b2] "+&r"(b2), [w] "+&r"(weights)                                              \
                     :                                                                                 \
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "memory")
#define MT_DSP_FIXED3(x, y, z, scale)                                                                           \
    __asm__ volatile("ldrd %[m], %[s], [%[w]], #8\n\t"                                                          \
                     scale("%[i]", "%[m]", "%[s]") scale("%[j]", "%[m]", "%[s]") scale("%[k]", "%[m]", "%[s]")  \
                     : [i] "+&r"(x), [j] "+&r"(y), [k] "+&r"(z), [w] "+&r"(weights), [m] "=&r"(m), [s] "=&r"(s) \
                     :                                                                                          \
                     : "cc", "memory")
#define MT_DSP_FIXED6(scale_a, scale_b)     \
    do {                                    \
        int32_t m, s;                       \
        MT_DSP_FIXED3(a0, a1, a2, scale_a); \
        MT_DSP_FIXED3(b0, b1, b2, scale_b); \
    } while (0)

/* The six sums by multipliers and offsets: those of the second channel follow. */
#define MT_DSP_EXACT6(shift_b)                                                                                          \
    __asm__ volatile(MT_DSP_EXACT("%[a0]", "%[m]", "%[z]", "%[n]") MT_DSP_EXACT("%[a1]", "%[m]", "%[z]", "%[n]")        \
                         MT_DSP_EXACT("%[a2]", "%[m]", "%[z]", "%[n]") "ldrd %[m], %[z], [%[w]], #8\n\t"                \
                         MT_DSP_EXACT("%[b0]", "%[m]", "%[z]", "%[k]") MT_DSP_EXACT("%[b1]", "%[m]", "%[z]", "%[k]")    \
                         MT_DSP_EXACT("%[b2]", "%[m]", "%[z]", "%[k]")                                                  \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2),  \
                       [w] "+&r"(weights), [m] "+&r"(m), [z] "+&r"(z)                                                   \
                     : [n] "i"(MT_EXACT_PLACES(by)), [k] "i"(MT_EXACT_PLACES(by) + (shift_b))                                       \
                     : "cc", "memory")
/* What they are becomes pairs of bytes; pointers that registers have no room for lie in memory. */
#define MT_DSP_STORE_EXACT6()                                                                                           \
    __asm__ volatile("bfi %[a0], %[b0], #8, #8\n\tldr %[b0], %[o0]\n\tstrh %[a0], [%[b0], %[at]]\n\t"                   \
                     "bfi %[a1], %[b1], #8, #8\n\tldr %[b1], %[o1]\n\tstrh %[a1], [%[b1], %[at]]\n\t"                   \
                     "bfi %[a2], %[b2], #8, #8\n\tldr %[b2], %[o2]\n\tstrh %[a2], [%[b2], %[at]]\n\t"                   \
                     "add %[at], %[at], #2"                                                                             \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2),  \
                       [at] "+&r"(at)                                                                                   \
                     : [o0] "m"(o0), [o1] "m"(o1), [o2] "m"(o2)                                                         \
                     : "cc", "memory")
/* Where there are no multipliers for two channels, z is the scale of the first, and that of the second follows. */
#define MT_DSP_FLOAT6_EXACT()                                                                          \
    __asm__ volatile("vldmia %[w]!, {s0, s1}\n\tvmov s0, %[z]\n\t" MT_DSP_SCALE6("s0", "s1")           \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), \
                       [b2] "+&r"(b2), [w] "+&r"(weights)                                              \
                     : [z] "r"(z)                                                                      \
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "memory")

/* Three columns by all output channels, two at a time. `range` null: zero point -128 and no limits; `clamped`: it has
 * limits. */
MT_DSP_INLINE void mt_dsp_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                  int8_t *o1, int8_t *o2, int32_t pairs, int unroll, int apart, enum mt_scaling by,
                                  int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    int32_t at = -2 * pairs; /* from the ends of the outputs */
    o0 -= at;
    o1 -= at;
    o2 -= at;
    do {
        int32_t a0, a1, a2, b0, b1, b2;
        const int32_t *c = columns;
        if (apart && unroll == 28)
            MT_DSP_DOT3(MT_DSP_APART28);
        else if (apart && unroll == 16)
            MT_DSP_DOT3(MT_DSP_APART16);
        else if (apart)
            MT_DSP_DOT3(MT_DSP_APART8);
        else if (unroll == 28)
            MT_DSP_DOT3(MT_DSP_MAC28);
        else if (unroll == 16)
            MT_DSP_DOT3(MT_DSP_MAC16);
        else
            MT_DSP_DOT3(MT_DSP_MAC8);
        if (!apart)
            __asm__ volatile("sub %[b0], %[b0], %[a0]\n\t"
                             "sub %[b1], %[b1], %[a1]\n\t"
                             "sub %[b2], %[b2], %[a2]"
                             : [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2)
                             : [a0] "r"(a0), [a1] "r"(a1), [a2] "r"(a2));
        if (by > MT_EXACT) {
            int32_t m, z;
            MT_DSP_NEXT(m, z, weights);
            if (MT_DSP_USUAL(m)) {
                MT_DSP_EXACT6(apart ? 0 : 8);
                if (!clamped) {
                    MT_DSP_STORE_EXACT6();
                } else {
                    MT_DSP_STORE_CLAMPED(a0, b0, o0);
                    MT_DSP_STORE_CLAMPED(a1, b1, o1);
                    MT_DSP_STORE_CLAMPED(a2, b2, o2);
                    at += 2;
                }
                continue;
            }
            MT_DSP_FLOAT6_EXACT();
        } else
            MT_DSP_SCALE_PAIRS(MT_DSP_FLOAT6, MT_DSP_FIXED6);
        MT_DSP_STORE(a0, b0, o0);
        MT_DSP_STORE(a1, b1, o1);
        MT_DSP_STORE(a2, b2, o2);
        at += 2;
    } while (at);
}

#else /* the same in plain C */

MT_DSP_INLINE int32_t *mt_dsp_widen1(int32_t *column, const int8_t *x, int32_t words)
{
    return mt_dsp_widen_of(column, x, words, 3);
}

MT_DSP_INLINE void mt_dsp_widen3(int32_t *columns, const int8_t *x0, const int8_t *x1, const int8_t *x2, int32_t words)
{
    mt_dsp_widen1(columns, x0, words);
    mt_dsp_widen1(columns + 1, x1, words);
    mt_dsp_widen1(columns + 2, x2, words);
}

MT_DSP_INLINE void mt_dsp_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                  int8_t *o1, int8_t *o2, int32_t pairs, int unroll, int apart, enum mt_scaling by,
                                  int clamped, const struct mt_dsp_range *range)
{
    int8_t *const o[3] = {o0, o1, o2};
    (void)unroll;
    (void)clamped;
    mt_dsp_tiles(columns, end, weights, o, pairs, apart, by, range, 3);
}

#endif

/* One column of padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill1(int32_t *column, int8_t value, int32_t words)
{
    return mt_dsp_fill_of(column, value, words, 3);
}

/* The functions that operators share: the unrolling, the scaling, and whether the output has a range of its own. Those of
 * MT_EXACT are written where they are called. */
#define MT_DSP_COLUMNS_PLAIN(name, unroll, apart, by)                                                                    \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,         \
                          int8_t *o1, int8_t *o2, int32_t pairs)                                                   \
    {                                                                                                              \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, unroll, apart, by, 0, 0);                         \
    }
#define MT_DSP_COLUMNS_RANGE(name, unroll, apart, by, clamped)                                                        \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,         \
                          int8_t *o1, int8_t *o2, int32_t pairs, const struct mt_dsp_range *range)                 \
    {                                                                                                              \
        const struct mt_dsp_range own = *range;                                                                    \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, unroll, apart, by, clamped, &own);                \
    }
#define MT_DSP_COLUMNS(name, unroll, apart, by)      \
    MT_DSP_COLUMNS_PLAIN(name, unroll, apart, by) \
    MT_DSP_COLUMNS_RANGE(name##_range, unroll, apart, by, 1)
#define MT_DSP_EACH_COLUMNS(kind, by)                     \
    MT_DSP_COLUMNS(mt_dsp_columns##kind##_8, 8, 0, by)    \
    MT_DSP_COLUMNS(mt_dsp_columns##kind##_16, 16, 0, by)  \
    MT_DSP_COLUMNS(mt_dsp_columns##kind##_28, 28, 0, by)  \
    MT_DSP_COLUMNS(mt_dsp_apart##kind##_8, 8, 1, by)      \
    MT_DSP_COLUMNS(mt_dsp_apart##kind##_16, 16, 1, by)    \
    MT_DSP_COLUMNS(mt_dsp_apart##kind##_28, 28, 1, by)
MT_DSP_EACH_COLUMNS(, MT_BY_FLOAT)
MT_DSP_EACH_COLUMNS(_twice, MT_TWICE)
MT_DSP_EACH_COLUMNS(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
