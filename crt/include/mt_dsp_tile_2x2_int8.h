/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with SIMD32, two pixels by two output channels: for a remainder of two pixels, or if memory
 * is short. See mt_dsp_tile_int8.h. */
#ifndef MT_DSP_TILE_2X2_INT8_H
#define MT_DSP_TILE_2X2_INT8_H

#include "mt_dsp_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* Two interleaved columns of int8 as int16 pairs: for each four bytes [c0 c1] of (0, 2), then of (1, 3). */
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

/* One of the two columns; returns where it continues. */
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

/* Four steps of k: 16 multiply-accumulates in 13 instructions. Registers are in LDM's order: sums r0 to r3 (a0, b0,
 * a1, b1), pixels r8 and r9, weights r11 and r12. */
#define MT_DSP_2X2_MAC2(word)         \
    "ldrd r8, r9, [%[c]], #8\n\t"     \
    "sxtb16 r6, " word "\n\t"         \
    "smlad r1, r8, " word ", r1\n\t"  \
    "smlad r3, r9, " word ", r3\n\t"  \
    "smlad r0, r8, r6, r0\n\t"        \
    "smlad r2, r9, r6, r2\n\t"
#define MT_DSP_2X2_MAC4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_2X2_MAC2("r11") MT_DSP_2X2_MAC2("r12")
/* The first two steps: both pixels' sums begin with the biases, which are loaded with the first weights. */
#define MT_DSP_2X2_FIRST4                  \
    "ldmia %[w]!, {r0, r1, r11, r12}\n\t"  \
    "ldrd r8, r9, [%[c]], #8\n\t"          \
    "sxtb16 r6, r11\n\t"                   \
    "smlad r3, r9, r11, r1\n\t"            \
    "smlad r1, r8, r11, r1\n\t"            \
    "smlad r2, r9, r6, r0\n\t"             \
    "smlad r0, r8, r6, r0\n\t" MT_DSP_2X2_MAC2("r12")
/* The same with weights stored apart: 15 instructions. */
#define MT_DSP_2X2_APART2(rotation)   \
    "ldrd r8, r9, [%[c]], #8\n\t"     \
    "sxtb16 r6, r11" rotation "\n\t"  \
    "sxtb16 r10, r12" rotation "\n\t" \
    "smlad r0, r8, r6, r0\n\t"        \
    "smlad r2, r9, r6, r2\n\t"        \
    "smlad r1, r8, r10, r1\n\t"       \
    "smlad r3, r9, r10, r3\n\t"
#define MT_DSP_2X2_APART4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_2X2_APART2("") MT_DSP_2X2_APART2(", ror #8")
#define MT_DSP_2X2_FIRST_APART4            \
    "ldmia %[w]!, {r0, r1, r11, r12}\n\t"  \
    "ldrd r8, r9, [%[c]], #8\n\t"          \
    "sxtb16 r6, r11\n\t"                   \
    "sxtb16 r10, r12\n\t"                  \
    "smlad r2, r9, r6, r0\n\t"             \
    "smlad r0, r8, r6, r0\n\t"             \
    "smlad r3, r9, r10, r1\n\t"            \
    "smlad r1, r8, r10, r1\n\t" MT_DSP_2X2_APART2(", ror #8")
#define MT_DSP_2X2_MAC4_SIZE 52 /* size of MT_DSP_2X2_MAC4 */
#define MT_DSP_2X2_APART4_SIZE 60 /* size of MT_DSP_2X2_APART4 */
#define MT_DSP_2X2_END "cmp %[c], %[end]\n\t"
#define MT_DSP_2X2_DOT(macs)                                                                             \
    __asm__ volatile(macs                                                                                \
                     : "=&r"(a0), "=&r"(b0), "=&r"(a1), "=&r"(b1), [w] "+&r"(weights), [c] "+&r"(c)      \
                     : [end] "r"(end), [rest] "i"(words - 1), [turn] "i"(turn), [skip] "m"(skip)         \
                     : "r6", "r8", "r9", "r10", "r11", "r12", "cc", "memory")

/* Scale the four sums in place. */
#ifdef MT_DSP_FPU
#define MT_DSP_2X2_FLOAT() MT_DSP_2X2_FLOAT_OF("vldmia %[w]!, {s0, s1}\n\t", )
/* If two channels have no multipliers, the offsets are their scales, and the multiplier of b is the zero point. */
#define MT_DSP_2X2_FLOAT_EXACT() MT_DSP_2X2_FLOAT_OF("vmov s0, s1, %[z], %[zb]\n\t", [z] "r"(z), [zb] "r"(zb))
#define MT_DSP_2X2_FLOAT_OF(first, ...)                                                                    \
    __asm__ volatile(first                                                                                 \
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
#else
#define MT_DSP_2X2_SCALE(a, b)                                \
    do {                                                      \
        int32_t sums[4] = {a0, a1, b0, b1};                   \
        const int32_t of_a = (int32_t)(a), of_b = (int32_t)(b); \
        mt_dsp_by_float(sums, 2, of_a);                       \
        mt_dsp_by_float(sums + 2, 2, of_b);                   \
        a0 = sums[0], a1 = sums[1], b0 = sums[2], b1 = sums[3]; \
    } while (0)
#define MT_DSP_2X2_FLOAT()                       \
    do {                                         \
        MT_DSP_2X2_SCALE(weights[0], weights[1]); \
        weights += 2;                            \
    } while (0)
#define MT_DSP_2X2_FLOAT_EXACT() MT_DSP_2X2_SCALE(z, zb)
#endif
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

/* Scale the four sums with the multipliers and offsets of two channels. */
#define MT_DSP_2X2_EXACT(shift_b)                                                                                      \
    __asm__ volatile(MT_DSP_EXACT("%[a0]", "%[m]", "%[z]", "%[n]") MT_DSP_EXACT("%[a1]", "%[m]", "%[z]", "%[n]")       \
                         MT_DSP_EXACT("%[b0]", "%[mb]", "%[zb]", "%[k]") MT_DSP_EXACT("%[b1]", "%[mb]", "%[zb]", "%[k]") \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [b0] "+&r"(b0), [b1] "+&r"(b1)                                  \
                     : [m] "r"(m), [z] "r"(z), [mb] "r"(mb), [zb] "r"(zb), [n] "i"(MT_EXACT_PLACES(by)),               \
                       [k] "i"(MT_EXACT_PLACES(by) + (shift_b))                                                        \
                     : "cc")
/* Convert scaled sums to int8. */
#define MT_DSP_2X2_NARROW(narrow)                                                                   \
    __asm__ volatile(narrow("%[a0]") narrow("%[a1]") narrow("%[b0]") narrow("%[b1]")                \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [b0] "+&r"(b0), [b1] "+&r"(b1)               \
                     : [zero] "r"(mb)                                                 \
                     : "cc")
#define MT_DSP_2X2_STORE_EXACT()                                                                                       \
    __asm__ volatile("bfi %[a0], %[b0], #8, #8\n\tstrh %[a0], [%[o0], %[at]]\n\t"                                      \
                     "bfi %[a1], %[b1], #8, #8\n\tstrh %[a1], [%[o1], %[at]]\n\t"                                      \
                     "add %[at], %[at], #2"                                                                            \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [at] "+&r"(at)                                                  \
                     : [b0] "r"(b0), [b1] "r"(b1), [o0] "r"(o0), [o1] "r"(o1)                                          \
                     : "memory")

/* The results of four sums without MT_EXACT; returns the following weights. */
MT_DSP_INLINE const uint32_t *mt_dsp_store_scaled2(int32_t a0, int32_t b0, int32_t a1, int32_t b1,
                                                   const uint32_t *weights, int8_t *o0, int8_t *o1, int32_t at,
                                                   int apart, enum mt_scaling by, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    MT_DSP_SCALE_PAIRS(MT_DSP_2X2_FLOAT, MT_DSP_2X2_FIXED);
    MT_DSP_STORE(a0, b0, o0);
    MT_DSP_STORE(a1, b1, o1);
    return weights;
}

/* Two columns by all output channels, two at a time; as mt_dsp_columns. */
MT_DSP_INLINE void mt_dsp_columns_2x2(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                      int8_t *o1, int32_t pairs, int words, int turn, int apart, enum mt_scaling by,
                                      int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int32_t skip = MT_DSP_SKIP((int32_t)(end - columns) / 4, turn, apart ? MT_DSP_2X2_APART4_SIZE : MT_DSP_2X2_MAC4_SIZE);
    int32_t at = -2 * pairs; /* offset from the ends of the outputs */
    o0 -= at;
    o1 -= at;
    do {
        register int32_t a0 __asm__("r0"), b0 __asm__("r1"), a1 __asm__("r2"), b1 __asm__("r3");
        const int32_t *c = columns;
        if (apart && turn)
            MT_DSP_2X2_DOT(MT_DSP_IN_TURNS(MT_DSP_2X2_FIRST_APART4, MT_DSP_2X2_APART4, MT_DSP_2X2_APART4_SIZE, "r6", MT_DSP_2X2_END));
        else if (apart)
            MT_DSP_2X2_DOT(MT_DSP_WHOLE(MT_DSP_2X2_FIRST_APART4, MT_DSP_2X2_APART4));
        else if (turn)
            MT_DSP_2X2_DOT(MT_DSP_IN_TURNS(MT_DSP_2X2_FIRST4, MT_DSP_2X2_MAC4, MT_DSP_2X2_MAC4_SIZE, "r6", MT_DSP_2X2_END));
        else
            MT_DSP_2X2_DOT(MT_DSP_WHOLE(MT_DSP_2X2_FIRST4, MT_DSP_2X2_MAC4));
        if (!apart)
            __asm__ volatile("sub %[b0], %[b0], %[a0]\n\t"
                             "sub %[b1], %[b1], %[a1]"
                             : [b0] "+&r"(b0), [b1] "+&r"(b1)
                             : [a0] "r"(a0), [a1] "r"(a1));
        if (by > MT_EXACT) {
            register int32_t m __asm__("r8"), z __asm__("r9"), mb __asm__("r10"), zb __asm__("r11");
            MT_DSP_NEXT4(m, z, mb, zb, weights);
            if (MT_DSP_USUAL(m))
                MT_DSP_2X2_EXACT(apart ? 0 : 8);
            else {
                MT_DSP_2X2_FLOAT_EXACT();
                MT_DSP_2X2_NARROW(MT_DSP_ADD_ZERO);
            }
            if (!clamped) {
                MT_DSP_2X2_STORE_EXACT();
                continue;
            }
            MT_DSP_STORE_CLAMPED(a0, b0, o0);
            MT_DSP_STORE_CLAMPED(a1, b1, o1);
        } else
            weights = mt_dsp_store_scaled2(a0, b0, a1, b1, weights, o0, o1, at, apart, by, range);
        at += 2;
    } while (at);
}

#else /* portable version */

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
                                      int8_t *o1, int32_t pairs, int words, int turn, int apart, enum mt_scaling by,
                                      int clamped, const struct mt_dsp_range *range)
{
    int8_t *const o[2] = {o0, o1};
    (void)words;
    (void)turn;
    (void)clamped;
    mt_dsp_tiles(columns, end, weights, o, pairs, apart, by, range, 2);
}

#endif

/* One column of padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill1_2x2(int32_t *column, int8_t value, int32_t words)
{
    return mt_dsp_fill_of(column, value, words, 2);
}

/* The instances that operators share, as MT_DSP_COLUMNS_PLAIN. */
#define MT_DSP_COLUMNS_2X2_PLAIN(name, words, turn, apart, by)                                               \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,   \
                          int8_t *o1, int32_t pairs)                                                         \
    {                                                                                                        \
        mt_dsp_columns_2x2(columns, end, weights, o0, o1, pairs, words, turn, apart, by, 0, 0);              \
    }
#define MT_DSP_COLUMNS_2X2_RANGE(name, words, turn, apart, by, clamped)                                      \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,   \
                          int8_t *o1, int32_t pairs, const struct mt_dsp_range *range)                       \
    {                                                                                                        \
        const struct mt_dsp_range own = *range;                                                              \
        mt_dsp_columns_2x2(columns, end, weights, o0, o1, pairs, words, turn, apart, by, clamped, &own);     \
    }

#ifdef __cplusplus
}
#endif

#endif
