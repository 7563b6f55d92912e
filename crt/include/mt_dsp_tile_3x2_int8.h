/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with SIMD32: three pixels by two output channels. See mt_dsp_tile_int8.h. */
#ifndef MT_DSP_TILE_3X2_INT8_H
#define MT_DSP_TILE_3X2_INT8_H

#include "mt_dsp_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* Three interleaved columns of int8 as int16 pairs: for each four bytes [c0 c1 c2] of (0, 2), then of (1, 3). */
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

/* One of the three columns; returns where it continues. */
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

/* Four steps of k: 24 multiply-accumulates in 17 instructions. Registers are in LDM's order: sums r0 to r5 (a0, b0,
 * a1, b1, a2, b2), pixels r8 to r10, weights r11 and r12. */
#define MT_DSP_MAC2(word)               \
    "sxtb16 r6, " word "\n\t"           \
    "ldmia %[c]!, {r8, r9, r10}\n\t"    \
    "smlad r0, r8, r6, r0\n\t"          \
    "smlad r2, r9, r6, r2\n\t"          \
    "smlad r4, r10, r6, r4\n\t"         \
    "smlad r1, r8, " word ", r1\n\t"    \
    "smlad r3, r9, " word ", r3\n\t"    \
    "smlad r5, r10, " word ", r5\n\t"
#define MT_DSP_MAC4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_MAC2("r11") MT_DSP_MAC2("r12")
/* The first two steps: all pixels' sums begin with the biases, which are loaded with the first weights. */
#define MT_DSP_FIRST4                      \
    "ldmia %[w]!, {r0, r1, r11, r12}\n\t"  \
    "sxtb16 r6, r11\n\t"                   \
    "ldmia %[c]!, {r8, r9, r10}\n\t"       \
    "smlad r2, r9, r6, r0\n\t"             \
    "smlad r4, r10, r6, r0\n\t"            \
    "smlad r0, r8, r6, r0\n\t"             \
    "smlad r3, r9, r11, r1\n\t"            \
    "smlad r5, r10, r11, r1\n\t"           \
    "smlad r1, r8, r11, r1\n\t" MT_DSP_MAC2("r12")
/* The same with weights stored apart: 19 instructions. */
#define MT_DSP_APART2(rotation)         \
    "ldmia %[c]!, {r8, r9, r10}\n\t"    \
    "sxtb16 r6, r11" rotation "\n\t"    \
    "smlad r0, r8, r6, r0\n\t"          \
    "smlad r2, r9, r6, r2\n\t"          \
    "smlad r4, r10, r6, r4\n\t"         \
    "sxtb16 r6, r12" rotation "\n\t"    \
    "smlad r1, r8, r6, r1\n\t"          \
    "smlad r3, r9, r6, r3\n\t"          \
    "smlad r5, r10, r6, r5\n\t"
#define MT_DSP_APART4 "ldrd r11, r12, [%[w]], #8\n\t" MT_DSP_APART2("") MT_DSP_APART2(", ror #8")
#define MT_DSP_FIRST_APART4                \
    "ldmia %[w]!, {r0, r1, r11, r12}\n\t"  \
    "ldmia %[c]!, {r8, r9, r10}\n\t"       \
    "sxtb16 r6, r11\n\t"                   \
    "smlad r2, r9, r6, r0\n\t"             \
    "smlad r4, r10, r6, r0\n\t"            \
    "smlad r0, r8, r6, r0\n\t"             \
    "sxtb16 r6, r12\n\t"                   \
    "smlad r3, r9, r6, r1\n\t"             \
    "smlad r5, r10, r6, r1\n\t"            \
    "smlad r1, r8, r6, r1\n\t" MT_DSP_APART2(", ror #8")
#define MT_DSP_MAC4_SIZE 68 /* size of MT_DSP_MAC4 */
#define MT_DSP_APART4_SIZE 76 /* size of MT_DSP_APART4 */
#define MT_DSP_END3 "ldr r6, %[end]\n\tcmp %[c], r6\n\t"
#define MT_DSP_DOT3(macs)                                                                                        \
    __asm__ volatile(macs                                                                                        \
                     : "=&r"(a0), "=&r"(b0), "=&r"(a1), "=&r"(b1), "=&r"(a2), "=&r"(b2), [w] "+&r"(weights),     \
                       [c] "+&r"(c)                                                                              \
                     : [end] "m"(end), [rest] "i"(words - 1), [turn] "i"(turn), [skip] "m"(skip)                 \
                     : "r6", "r8", "r9", "r10", "r11", "r12", "cc", "memory")

/* Scale the six sums in place, in s2 to s7, with `a` and `b`. If two channels have no multipliers (_EXACT), the offsets
 * are their scales, and the multiplier of b is the zero point. */
#ifdef MT_DSP_FPU
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
#define MT_DSP_FLOAT6_EXACT()                                                                          \
    __asm__ volatile("vmov s0, s1, %[z], %[zb]\n\t" MT_DSP_SCALE6("s0", "s1")                          \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), \
                       [b2] "+&r"(b2)                                                                  \
                     : [z] "r"(z), [zb] "r"(zb)                                                        \
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
#else
#define MT_DSP_SCALE6(a, b)                                   \
    do {                                                      \
        int32_t sums[6] = {a0, a1, a2, b0, b1, b2};           \
        const int32_t of_a = (int32_t)(a), of_b = (int32_t)(b); \
        mt_dsp_by_float(sums, 3, of_a);                       \
        mt_dsp_by_float(sums + 3, 3, of_b);                   \
        a0 = sums[0], a1 = sums[1], a2 = sums[2];             \
        b0 = sums[3], b1 = sums[4], b2 = sums[5];             \
    } while (0)
#define MT_DSP_FLOAT6()                         \
    do {                                        \
        MT_DSP_SCALE6(weights[0], weights[1]);  \
        weights += 2;                           \
    } while (0)
#define MT_DSP_FLOAT6_EXACT() MT_DSP_SCALE6(z, zb)
#endif
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

/* Scale the six sums with the multipliers and offsets of two channels. */
#define MT_DSP_EXACT6(shift_b)                                                                                          \
    __asm__ volatile(MT_DSP_EXACT("%[a0]", "%[m]", "%[z]", "%[n]") MT_DSP_EXACT("%[a1]", "%[m]", "%[z]", "%[n]")        \
                         MT_DSP_EXACT("%[a2]", "%[m]", "%[z]", "%[n]") MT_DSP_EXACT("%[b0]", "%[mb]", "%[zb]", "%[k]")  \
                         MT_DSP_EXACT("%[b1]", "%[mb]", "%[zb]", "%[k]") MT_DSP_EXACT("%[b2]", "%[mb]", "%[zb]", "%[k]") \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2)   \
                     : [m] "r"(m), [z] "r"(z), [mb] "r"(mb), [zb] "r"(zb), [n] "i"(MT_EXACT_PLACES(by)),                \
                       [k] "i"(MT_EXACT_PLACES(by) + (shift_b))                                                         \
                     : "cc")
/* Convert scaled sums to int8. */
#define MT_DSP_NARROW6(narrow)                                                                                      \
    __asm__ volatile(narrow("%[a0]") narrow("%[a1]") narrow("%[a2]") narrow("%[b0]") narrow("%[b1]") narrow("%[b2]") \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1),             \
                       [b2] "+&r"(b2)                                                                              \
                     : [zero] "r"(mb)                                                                \
                     : "cc")
/* Store pairs of bytes; the pointers lie in memory, as no registers are left. */
#define MT_DSP_STORE_EXACT6()                                                                                          \
    __asm__ volatile("ldrd r8, r9, %[second]\n\t"                                                                      \
                     "ldrd r6, r10, %[first]\n\t"                                                                      \
                     "bfi %[a0], %[b0], #8, #8\n\t"                                                                    \
                     "bfi %[a1], %[b1], #8, #8\n\t"                                                                    \
                     "bfi %[a2], %[b2], #8, #8\n\t"                                                                    \
                     "strh %[a0], [r6, r9]\n\t"                                                                        \
                     "strh %[a1], [r10, r9]\n\t"                                                                       \
                     "strh %[a2], [r8, r9]\n\t"                                                                        \
                     "add %[at], r9, #2"                                                                               \
                     : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [at] "=r"(at)                                   \
                     : [b0] "r"(b0), [b1] "r"(b1), [b2] "r"(b2), [first] "m"(to.first), [second] "m"(to.second)        \
                     : "r6", "r8", "r9", "r10", "memory")

/* Where the results of three columns go: as offsets in bytes from the ends of the outputs. */
struct mt_dsp_outputs3 {
    struct {
        int8_t *o0, *o1;
    } first;
    struct {
        int8_t *o2;
        int32_t at;
    } second;
};

/* The results of six sums without MT_EXACT; returns the following weights. */
MT_DSP_INLINE const uint32_t *mt_dsp_store_scaled3(int32_t a0, int32_t b0, int32_t a1, int32_t b1, int32_t a2,
                                                   int32_t b2, const uint32_t *weights,
                                                   const struct mt_dsp_outputs3 *to, int apart, enum mt_scaling by,
                                                   const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int32_t at = to->second.at;
    MT_DSP_SCALE_PAIRS(MT_DSP_FLOAT6, MT_DSP_FIXED6);
    MT_DSP_STORE(a0, b0, to->first.o0);
    MT_DSP_STORE(a1, b1, to->first.o1);
    MT_DSP_STORE(a2, b2, to->second.o2);
    return weights;
}

/* The results of six sums, at `to`, and the following weights. */
#define MT_DSP_RESULTS3()                                                                           \
    {                                                                                               \
        if (by > MT_EXACT) {                                                                        \
            register int32_t m __asm__("r8"), z __asm__("r9"), mb __asm__("r10"), zb __asm__("r11");\
            MT_DSP_NEXT4(m, z, mb, zb, weights);                                                    \
            if (MT_DSP_USUAL(m))                                                                    \
                MT_DSP_EXACT6(apart ? 0 : 8);                                                       \
            else {                                                                                  \
                MT_DSP_FLOAT6_EXACT();                                                              \
                MT_DSP_NARROW6(MT_DSP_ADD_ZERO);                                                    \
            }                                                                                       \
            if (!clamped) {                                                                         \
                MT_DSP_STORE_EXACT6();                                                              \
            } else {                                                                                \
                at = to.second.at;                                                                  \
                MT_DSP_STORE_CLAMPED(a0, b0, to.first.o0);                                          \
                MT_DSP_STORE_CLAMPED(a1, b1, to.first.o1);                                          \
                MT_DSP_STORE_CLAMPED(a2, b2, to.second.o2);                                         \
                at += 2;                                                                            \
            }                                                                                       \
        } else {                                                                                    \
            weights = mt_dsp_store_scaled3(a0, b0, a1, b1, a2, b2, weights, &to, apart, by, range); \
            at = to.second.at + 2;                                                                  \
        }                                                                                           \
        to.second.at = at;                                                                          \
    }

/* Three columns by all output channels, two at a time. All `words` of their dot products are unrolled, or (0) a loop
 * of `turn`, a power of two, runs over two words or more. `range` NULL: zero point -128 and no limits; `clamped`: it
 * has limits. */
MT_DSP_INLINE void mt_dsp_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                  int8_t *o1, int8_t *o2, int32_t pairs, int words, int turn, int apart,
                                  enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int32_t skip = MT_DSP_SKIP((int32_t)(end - columns) / 6, turn, apart ? MT_DSP_APART4_SIZE : MT_DSP_MAC4_SIZE);
    struct mt_dsp_outputs3 to = {{o0 + 2 * pairs, o1 + 2 * pairs}, {o2 + 2 * pairs, -2 * pairs}};
    do {
        register int32_t a0 __asm__("r0"), b0 __asm__("r1"), a1 __asm__("r2"), b1 __asm__("r3"), a2 __asm__("r4"),
            b2 __asm__("r5");
        int32_t at;
        const int32_t *c = columns;
        if (apart && turn)
            MT_DSP_DOT3(MT_DSP_IN_TURNS(MT_DSP_FIRST_APART4, MT_DSP_APART4, MT_DSP_APART4_SIZE, "r6", MT_DSP_END3));
        else if (apart)
            MT_DSP_DOT3(MT_DSP_WHOLE(MT_DSP_FIRST_APART4, MT_DSP_APART4));
        else if (turn)
            MT_DSP_DOT3(MT_DSP_IN_TURNS(MT_DSP_FIRST4, MT_DSP_MAC4, MT_DSP_MAC4_SIZE, "r6", MT_DSP_END3));
        else
            MT_DSP_DOT3(MT_DSP_WHOLE(MT_DSP_FIRST4, MT_DSP_MAC4));
        if (!apart)
            __asm__ volatile("sub %[b0], %[b0], %[a0]\n\t"
                             "sub %[b1], %[b1], %[a1]\n\t"
                             "sub %[b2], %[b2], %[a2]"
                             : [b0] "+&r"(b0), [b1] "+&r"(b1), [b2] "+&r"(b2)
                             : [a0] "r"(a0), [a1] "r"(a1), [a2] "r"(a2));
        MT_DSP_RESULTS3();
    } while (to.second.at);
}

#else /* portable version */

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
                                  int8_t *o1, int8_t *o2, int32_t pairs, int words, int turn, int apart,
                                  enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    int8_t *const o[3] = {o0, o1, o2};
    (void)words;
    (void)turn;
    (void)clamped;
    mt_dsp_tiles(columns, end, weights, o, pairs, apart, by, range, 3);
}

#endif

/* One column of padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill1(int32_t *column, int8_t value, int32_t words)
{
    return mt_dsp_fill_of(column, value, words, 3);
}

/* The instances that operators share, inlined where they are called: the loop, the scaling, and whether the output
 * has a range of its own. */
#define MT_DSP_COLUMNS_PLAIN(name, words, turn, apart, by)                                                   \
    MT_DSP_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights,           \
                              int8_t *o0, int8_t *o1, int8_t *o2, int32_t pairs)                             \
    {                                                                                                        \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, words, turn, apart, by, 0, 0);              \
    }
#define MT_DSP_COLUMNS_RANGE(name, words, turn, apart, by, clamped)                                          \
    MT_DSP_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights,           \
                              int8_t *o0, int8_t *o1, int8_t *o2, int32_t pairs,                             \
                              const struct mt_dsp_range *range)                                              \
    {                                                                                                        \
        const struct mt_dsp_range own = *range;                                                              \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, words, turn, apart, by, clamped, &own);     \
    }

#ifdef __cplusplus
}
#endif

#endif
