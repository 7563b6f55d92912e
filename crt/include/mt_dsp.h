/* The inner loops of int8 operators with SIMD32 (Armv7E-M, Armv8-M with DSP and a float32 FPU).
 *
 * Activations are widened to int16 pairs in scratch. Weights stay int8: a halfword holds wa + 256 * wb, the weights of
 * two output channels a and b. SMLAD of the raw word gives A + 256 * B modulo 2^32, SMLAD of its SXTB16 gives A, so
 * that one widening serves two channels; B is (R - A) / 256, exact while |B| < 2^23. The division is in b's scale.
 * Within four bytes the pairs are (0, 2) and (1, 3): what SXTB16 gives, without and with a rotation by 8.
 * Weights that can't be proved to fit stand apart: four bytes of a, four of b, and a widening for each.
 *
 * Results are those of mt_requantise, bit for bit. Elsewhere, without optimisation (the assembly takes every register)
 * and with MT_PORTABLE defined, the same functions are plain C. */
#ifndef MT_DSP_H
#define MT_DSP_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_FEATURE_DSP) && \
    defined(__ARM_FP) && !defined(MT_PORTABLE)
#define MT_DSP_ASM 1
#endif

#if defined(__GNUC__)
#define MT_DSP_INLINE static inline __attribute__((always_inline))
#else
#define MT_DSP_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits, as the packed arithmetic wants them: clamping four bytes that are biased by 128
 * is a saturating addition, a saturating subtraction and an addition. */
struct mt_dsp_range {
    int32_t offset; /* zero point + 128 */
    uint32_t above; /* 127 - high, in each byte */
    uint32_t span;  /* above + low + 128 */
    uint32_t low;
};

#define MT_DSP_BYTES(value) ((uint32_t)((value)&255) * 0x01010101u)
#define MT_DSP_RANGE(zero_point, low, high)                                                                   \
    {                                                                                                         \
        (zero_point) + 128, MT_DSP_BYTES(127 - (high)), MT_DSP_BYTES(255 - (high) + (low)), MT_DSP_BYTES(low) \
    }

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

/* Three columns by all output channels, two at a time. For each two channels the weights are: biases a and a + 256 * b,
 * a word for two steps of k, scales a and b / 256. `apart`: biases a and b, for four steps of k a word of a and one of b,
 * scales a and b. `range` null: zero point -128 and no limits. */
MT_DSP_INLINE void mt_dsp_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                  int8_t *o1, int8_t *o2, int32_t pairs, int unroll, int apart,
                                  const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
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
        __asm__ volatile("vldmia %[w]!, {s0, s1}\n\t"
                         "vmov s2, s3, %[a0], %[b0]\n\t"
                         "vmov s4, s5, %[a1], %[b1]\n\t"
                         "vmov s6, s7, %[a2], %[b2]\n\t"
                         "vcvt.f32.s32 s2, s2\n\t"
                         "vcvt.f32.s32 s3, s3\n\t"
                         "vcvt.f32.s32 s4, s4\n\t"
                         "vcvt.f32.s32 s5, s5\n\t"
                         "vcvt.f32.s32 s6, s6\n\t"
                         "vcvt.f32.s32 s7, s7\n\t"
                         "vmul.f32 s2, s2, s0\n\t"
                         "vmul.f32 s3, s3, s1\n\t"
                         "vmul.f32 s4, s4, s0\n\t"
                         "vmul.f32 s5, s5, s1\n\t"
                         "vmul.f32 s6, s6, s0\n\t"
                         "vmul.f32 s7, s7, s1\n\t"
                         "vcvtr.s32.f32 s2, s2\n\t"
                         "vcvtr.s32.f32 s3, s3\n\t"
                         "vcvtr.s32.f32 s4, s4\n\t"
                         "vcvtr.s32.f32 s5, s5\n\t"
                         "vcvtr.s32.f32 s6, s6\n\t"
                         "vcvtr.s32.f32 s7, s7\n\t"
                         "vmov %[a0], %[b0], s2, s3\n\t"
                         "vmov %[a1], %[b1], s4, s5\n\t"
                         "vmov %[a2], %[b2], s6, s7"
                         : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1),
                           [b2] "+&r"(b2), [w] "+&r"(weights)
                         :
                         : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "memory");
#define MT_DSP_STORE(a, b, o)                                                                   \
    if (range)                                                                                  \
        __asm__ volatile("qadd %[va], %[va], %[offset]\n\t"                                     \
                         "qadd %[vb], %[vb], %[offset]\n\t"                                     \
                         "usat %[va], #8, %[va]\n\t"                                            \
                         "usat %[vb], #8, %[vb]\n\t"                                            \
                         "orr %[va], %[va], %[vb], lsl #8\n\t"                                  \
                         "uqadd8 %[va], %[va], %[above]\n\t"                                    \
                         "uqsub8 %[va], %[va], %[span]\n\t"                                     \
                         "uadd8 %[va], %[va], %[low]\n\t"                                       \
                         "strh %[va], [%[to]], #2"                                              \
                         : [va] "+&r"(a), [vb] "+&r"(b), [to] "+&r"(o)                          \
                         : [offset] "r"(own.offset), [above] "r"(own.above), [span] "r"(own.span),   \
                           [low] "r"(own.low)                                                       \
                         : "cc", "memory");                                                     \
    else                                                                                        \
        __asm__ volatile("usat %[va], #8, %[va]\n\t"                                            \
                         "usat %[vb], #8, %[vb]\n\t"                                            \
                         "orr %[va], %[va], %[vb], lsl #8\n\t"                                  \
                         "eor %[va], %[va], #0x80808080\n\t"                                    \
                         "strh %[va], [%[to]], #2"                                              \
                         : [va] "+&r"(a), [vb] "+&r"(b), [to] "+&r"(o)                          \
                         :                                                                      \
                         : "cc", "memory")
        MT_DSP_STORE(a0, b0, o0);
        MT_DSP_STORE(a1, b1, o1);
        MT_DSP_STORE(a2, b2, o2);
    } while (--pairs);
}

/* The nine weights of a depthwise channel as pairs: u = (w0, w1), v = (w1, w2) of each row of taps. */
struct mt_dsp_taps {
    int32_t u0, u1, u2, v0, v1, v2;
};

MT_DSP_INLINE void mt_dsp_pair_taps(uint32_t word, int32_t *u, int32_t *v)
{
    int32_t even, odd;
    __asm__("sxtb16 %0, %2\n\t"
            "sxtb16 %1, %2, ror #8"
            : "=&r"(even), "=r"(odd)
            : "r"(word));
    __asm__("pkhbt %0, %2, %3, lsl #16\n\t"
            "pkhbt %1, %3, %2"
            : "=&r"(*u), "=r"(*v)
            : "r"(even), "r"(odd));
}

/* One row of taps, for two outputs side by side, or for one. */
#define MT_DSP_TAPS2(r, from)                \
    "ldrd %[p], %[q], " from "\n\t"          \
    "smlad %[a], %[p], %[u" r "], %[a]\n\t"  \
    "smlatb %[b], %[p], %[u" r "], %[b]\n\t" \
    "smlabt %[a], %[q], %[v" r "], %[a]\n\t" \
    "smlad %[b], %[q], %[v" r "], %[b]\n\t"
#define MT_DSP_TAPS1(r, from, sum)                   \
    "ldrd %[p], %[q], " from "\n\t"                  \
    "smlad " sum ", %[p], %[u" r "], " sum "\n\t"    \
    "smlabt " sum ", %[q], %[v" r "], " sum "\n\t"
#define MT_DSP_ROWS1(sum)                     \
    MT_DSP_TAPS1("2", "[%[i], %[row2]]", sum) \
    MT_DSP_TAPS1("1", "[%[i], %[row1]]", sum) \
    MT_DSP_TAPS1("0", "[%[i]], #4", sum)
#define MT_DSP_PAIR_STRIDE1                \
    MT_DSP_TAPS2("2", "[%[i], %[row2]]")   \
    MT_DSP_TAPS2("1", "[%[i], %[row1]]")   \
    MT_DSP_TAPS2("0", "[%[i]], #4")
#define MT_DSP_PAIR_STRIDE2 MT_DSP_ROWS1("%[a]") MT_DSP_ROWS1("%[b]")
#define MT_DSP_SCALE2                   \
    "vmov s0, s1, %[a], %[b]\n\t"       \
    "vcvt.f32.s32 s0, s0\n\t"           \
    "vcvt.f32.s32 s1, s1\n\t"           \
    "vmul.f32 s0, s0, %[scale]\n\t"     \
    "vmul.f32 s1, s1, %[scale]\n\t"     \
    "vcvtr.s32.f32 s0, s0\n\t"          \
    "vcvtr.s32.f32 s1, s1\n\t"          \
    "vmov %[a], %[b], s0, s1\n\t"
#define MT_DSP_PLAIN(x)        \
    "usat " x ", #8, " x "\n\t" \
    "eor " x ", " x ", #128\n\t"
#define MT_DSP_ZERO(x)                  \
    "add " x ", " x ", %[zero]\n\t"     \
    "ssat " x ", #8, " x "\n\t"
#define MT_DSP_LIMITS(x)                \
    MT_DSP_ZERO(x)                      \
    "cmp " x ", %[least]\n\t"           \
    "it lt\n\t"                         \
    "movlt " x ", %[least]\n\t"         \
    "cmp " x ", %[most]\n\t"            \
    "it gt\n\t"                         \
    "movgt " x ", %[most]\n\t"
#define MT_DSP_SLIDE2(pair, narrow)                                                                                 \
    __asm__ volatile("1:\n\t"                                                                                       \
                     "vmov %[a], %[bias]\n\t"                                                                       \
                     "vmov %[b], %[bias]\n\t" pair MT_DSP_SCALE2 narrow("%[a]") narrow("%[b]")                      \
                     "strb %[a], [%[o]]\n\t"                                                                        \
                     "strb %[b], [%[o], %[step]]\n\t"                                                               \
                     "add %[o], %[o], %[step2]\n\t"                                                                 \
                     "ldr %[p], %[e]\n\t"                                                                           \
                     "cmp %[i], %[p]\n\t"                                                                           \
                     "bne 1b"                                                                                       \
                     : [a] "=&r"(a), [b] "=&r"(b), [p] "=&r"(p), [q] "=&r"(q), [i] "+&r"(i), [o] "+&r"(output)      \
                     : MT_DSP_SLIDE_INPUTS, [e] "m"(end)                                                            \
                     : "s0", "s1", "cc", "memory")
#define MT_DSP_SLIDE1(narrow)                                                                                       \
    __asm__ volatile("vmov %[a], %[bias]\n\t" MT_DSP_ROWS1("%[a]")                                                  \
                     "vmov s0, %[a]\n\t"                                                                            \
                     "vcvt.f32.s32 s0, s0\n\t"                                                                      \
                     "vmul.f32 s0, s0, %[scale]\n\t"                                                                \
                     "vcvtr.s32.f32 s0, s0\n\t"                                                                     \
                     "vmov %[a], s0\n\t" narrow("%[a]")                                                             \
                     "strb %[a], [%[o]]"                                                                            \
                     : [a] "=&r"(a), [p] "=&r"(p), [q] "=&r"(q), [i] "+&r"(i), [o] "+&r"(output)                    \
                     : MT_DSP_SLIDE_INPUTS                                                                          \
                     : "s0", "s1", "cc", "memory")
#define MT_DSP_SLIDE_INPUTS                                                                                         \
    [u0] "r"(taps->u0), [u1] "r"(taps->u1), [u2] "r"(taps->u2), [v0] "r"(taps->v0), [v1] "r"(taps->v1),             \
        [v2] "r"(taps->v2), [bias] "t"(bias), [scale] "t"(scale), [row1] "i"(2 * pitch), [row2] "i"(4 * pitch),     \
        [step] "i"(step), [step2] "i"(2 * step), [zero] "i"(zero_point), [least] "i"(low), [most] "i"(high)

/* One row of outputs of a 3x3 depthwise channel. `plane` has int16, `pitch` of them a row (even); `bias` has the bits
 * of an int32; outputs stand `step` bytes apart. All from `pitch` on are constants. */
MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps, float bias,
                                float scale, int32_t pitch, int32_t stride, int32_t count, int32_t step,
                                int32_t zero_point, int32_t low, int32_t high)
{
    const int16_t *i = plane, *const end = plane + count / 2 * 2 * stride;
    const int plain = zero_point == -128 && low == -128 && high == 127, full = low == -128 && high == 127;
    int32_t a, b, p, q;
    if (count >= 2 && stride == 1) {
        if (plain)
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE1, MT_DSP_PLAIN);
        else if (full)
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE1, MT_DSP_ZERO);
        else
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE1, MT_DSP_LIMITS);
    } else if (count >= 2) {
        if (plain)
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE2, MT_DSP_PLAIN);
        else if (full)
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE2, MT_DSP_ZERO);
        else
            MT_DSP_SLIDE2(MT_DSP_PAIR_STRIDE2, MT_DSP_LIMITS);
    }
    if (count % 2) {
        if (plain)
            MT_DSP_SLIDE1(MT_DSP_PLAIN);
        else if (full)
            MT_DSP_SLIDE1(MT_DSP_ZERO);
        else
            MT_DSP_SLIDE1(MT_DSP_LIMITS);
    }
}

/* In the order that is written: the compiler would load everything first, and spill it. */
MT_DSP_INLINE int32_t mt_dsp_mac(int32_t x, int32_t y, int32_t sum)
{
    __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
}

/* A step of a sweep with stride 1: outputs 0 and 1 see the columns x, outputs 2 and 3 those after them. */
MT_DSP_INLINE void mt_dsp_step1(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t *x)
{
    int32_t u, v, next;
    __asm__ volatile("ldrd %[u], %[v], [%[w]], #8\n\t"
                     "ldr %[n], [%[p]], #4"
                     : [w] "+&r"(*taps), [p] "+&r"(*from), [u] "=&r"(u), [v] "=&r"(v), [n] "=r"(next)
                     :
                     : "memory");
    sums[0] = mt_dsp_mac(*x, u, sums[0]);
    sums[1] = mt_dsp_mac(*x, v, sums[1]);
    sums[2] = mt_dsp_mac(next, u, sums[2]);
    sums[3] = mt_dsp_mac(next, v, sums[3]);
    *x = next;
}

/* With stride 2 each output begins a word after the one before it. */
MT_DSP_INLINE void mt_dsp_step2(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t x[3])
{
    int32_t u, next;
    __asm__ volatile("ldr %[u], [%[w]], #8\n\t"
                     "ldr %[n], [%[p]], #4"
                     : [w] "+&r"(*taps), [p] "+&r"(*from), [u] "=&r"(u), [n] "=r"(next)
                     :
                     : "memory");
    sums[0] = mt_dsp_mac(x[0], u, sums[0]);
    sums[1] = mt_dsp_mac(x[1], u, sums[1]);
    sums[2] = mt_dsp_mac(x[2], u, sums[2]);
    sums[3] = mt_dsp_mac(next, u, sums[3]);
    x[0] = x[1];
    x[1] = x[2];
    x[2] = next;
}

MT_DSP_INLINE int8_t mt_dsp_requantise(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    float value = (float)acc * scale;
    int32_t step;
    __asm__("vcvtr.s32.f32 %0, %0\n\t"
            "vmov %1, %0"
            : "+t"(value), "=r"(step));
    if (zero_point == -128 && low == -128 && high == 127) {
        __asm__("usat %0, #8, %0" : "+r"(step) : : "cc");
        return (int8_t)(step - 128);
    }
    __asm__("qadd %0, %0, %1\n\t"
            "ssat %0, #8, %0"
            : "+r"(step)
            : "r"(zero_point)
            : "cc");
    if (low > -128)
        step = step > low ? step : low;
    if (high < 127)
        step = step < high ? step : high;
    return (int8_t)step;
}

/* Four outputs of a dense layer at a time: biases a, a + 256 * b, c, c + 256 * d, for each four inputs two words of
 * (a, b) and two of (c, d), scales a, b / 256, c, d / 256. `unroll` inputs an iteration, of which `end` is a multiple. */
#define MT_DSP_ROW4                        \
    "ldr r4, [%[x]], #4\n\t"               \
    "ldmia %[w]!, {r8, r9, r10, r11}\n\t"  \
    "sxtb16 r5, r4, ror #8\n\t"            \
    "sxtb16 r4, r4\n\t"                    \
    "sxtb16 r6, r8\n\t"                    \
    "smlad %[b], r4, r8, %[b]\n\t"         \
    "smlad %[a], r4, r6, %[a]\n\t"         \
    "sxtb16 r6, r10\n\t"                   \
    "smlad %[d], r4, r10, %[d]\n\t"        \
    "smlad %[c], r4, r6, %[c]\n\t"         \
    "sxtb16 r6, r9\n\t"                    \
    "smlad %[b], r5, r9, %[b]\n\t"         \
    "smlad %[a], r5, r6, %[a]\n\t"         \
    "sxtb16 r6, r11\n\t"                   \
    "smlad %[d], r5, r11, %[d]\n\t"        \
    "smlad %[c], r5, r6, %[c]\n\t"
#define MT_DSP_ROW8 MT_DSP_ROW4 MT_DSP_ROW4
#define MT_DSP_ROW16 MT_DSP_ROW8 MT_DSP_ROW8
#define MT_DSP_DENSE(macs)                                                                                          \
    __asm__ volatile("ldrd %[a], %[b], [%[w]], #8\n\t"                                                              \
                     "ldrd %[c], %[d], [%[w]], #8\n\t"                                                              \
                     "1:\n\t" macs "ldr r4, %[e]\n\t"                                                               \
                     "cmp %[x], r4\n\t"                                                                             \
                     "bne 1b\n\t"                                                                                   \
                     "vldmia %[w]!, {s0, s1, s2, s3}\n\t"                                                           \
                     "sub %[b], %[b], %[a]\n\t"                                                                     \
                     "sub %[d], %[d], %[c]\n\t"                                                                     \
                     "vmov s4, s5, %[a], %[b]\n\t"                                                                  \
                     "vmov s6, s7, %[c], %[d]\n\t"                                                                  \
                     "vcvt.f32.s32 s4, s4\n\t"                                                                      \
                     "vcvt.f32.s32 s5, s5\n\t"                                                                      \
                     "vcvt.f32.s32 s6, s6\n\t"                                                                      \
                     "vcvt.f32.s32 s7, s7\n\t"                                                                      \
                     "vmul.f32 s4, s4, s0\n\t"                                                                      \
                     "vmul.f32 s5, s5, s1\n\t"                                                                      \
                     "vmul.f32 s6, s6, s2\n\t"                                                                      \
                     "vmul.f32 s7, s7, s3\n\t"                                                                      \
                     "vcvtr.s32.f32 s4, s4\n\t"                                                                     \
                     "vcvtr.s32.f32 s5, s5\n\t"                                                                     \
                     "vcvtr.s32.f32 s6, s6\n\t"                                                                     \
                     "vcvtr.s32.f32 s7, s7\n\t"                                                                     \
                     "vmov %[a], %[b], s4, s5\n\t"                                                                  \
                     "vmov %[c], %[d], s6, s7"                                                                      \
                     : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [w] "+&r"(weights), [x] "+&r"(x)     \
                     : [e] "m"(end)                                                                                 \
                     : "r4", "r5", "r6", "r8", "r9", "r10", "r11", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", \
                       "cc", "memory")

MT_DSP_INLINE const uint32_t *mt_dsp_rows(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                          int8_t *output, int32_t groups, int unroll, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    do {
        const int8_t *x = input;
        int32_t a, b, c, d;
        if (unroll == 16)
            MT_DSP_DENSE(MT_DSP_ROW16);
        else if (unroll == 8)
            MT_DSP_DENSE(MT_DSP_ROW8);
        else
            MT_DSP_DENSE(MT_DSP_ROW4);
        if (range)
            __asm__ volatile("qadd %[a], %[a], %[offset]\n\t"
                             "qadd %[b], %[b], %[offset]\n\t"
                             "qadd %[c], %[c], %[offset]\n\t"
                             "qadd %[d], %[d], %[offset]"
                             : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d)
                             : [offset] "r"(own.offset)
                             : "cc");
        __asm__ volatile("usat %[a], #8, %[a]\n\t"
                         "usat %[b], #8, %[b]\n\t"
                         "usat %[c], #8, %[c]\n\t"
                         "usat %[d], #8, %[d]\n\t"
                         "orr %[a], %[a], %[b], lsl #8\n\t"
                         "orr %[c], %[c], %[d], lsl #8\n\t"
                         "orr %[a], %[a], %[c], lsl #16"
                         : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d)
                         :
                         : "cc");
        if (range)
            __asm__ volatile("uqadd8 %[a], %[a], %[above]\n\t"
                             "uqsub8 %[a], %[a], %[span]\n\t"
                             "uadd8 %[a], %[a], %[low]"
                             : [a] "+&r"(a)
                             : [above] "r"(own.above), [span] "r"(own.span), [low] "r"(own.low)
                             : "cc");
        else
            a ^= (int32_t)0x80808080u;
        memcpy(output, &a, 4);
        output += 4;
    } while (--groups);
    return weights;
}

#else /* the same in plain C */

MT_DSP_INLINE int32_t mt_dsp_sxtb16(uint32_t word)
{
    return (int32_t)((uint32_t)(int32_t)(int8_t)(word & 255) & 0xffff) |
           (int32_t)((uint32_t)(int32_t)(int8_t)(word >> 16 & 255) << 16);
}

MT_DSP_INLINE uint32_t mt_dsp_smlad(int32_t x, int32_t y, uint32_t sum)
{
    const int32_t low = (int32_t)(int16_t)(x & 0xffff) * (int16_t)(y & 0xffff);
    const int32_t high = (int32_t)(int16_t)((uint32_t)x >> 16) * (int16_t)((uint32_t)y >> 16);
    return sum + (uint32_t)low + (uint32_t)high;
}

MT_DSP_INLINE int32_t *mt_dsp_widen1(int32_t *column, const int8_t *x, int32_t words)
{
    for (; words; --words, column += 6, x += 4) {
        uint32_t word;
        memcpy(&word, x, 4);
        column[0] = mt_dsp_sxtb16(word);
        column[3] = mt_dsp_sxtb16(word >> 8 | word << 24);
    }
    return column;
}

MT_DSP_INLINE void mt_dsp_widen3(int32_t *columns, const int8_t *x0, const int8_t *x1, const int8_t *x2, int32_t words)
{
    mt_dsp_widen1(columns, x0, words);
    mt_dsp_widen1(columns + 1, x1, words);
    mt_dsp_widen1(columns + 2, x2, words);
}

MT_DSP_INLINE int8_t mt_dsp_narrow(uint32_t sum, uint32_t scale_bits, const struct mt_dsp_range *range)
{
    float scale;
    memcpy(&scale, &scale_bits, 4);
    const int32_t zero_point = range ? range->offset - 128 : -128;
    const int32_t low = range ? (int8_t)(range->low & 255) : -128;
    const int32_t high = range ? 127 - (int32_t)(range->above & 255) : 127;
    return (int8_t)mt_requantise_wide((int32_t)sum, scale, zero_point, low, high);
}

MT_DSP_INLINE void mt_dsp_columns(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                  int8_t *o1, int8_t *o2, int32_t pairs, int unroll, int apart,
                                  const struct mt_dsp_range *range)
{
    int8_t *const o[3] = {o0, o1, o2};
    (void)unroll;
    for (int32_t n = 0; n < pairs; ++n) {
        const uint32_t *const bias = weights;
        uint32_t a[3] = {bias[0], bias[0], bias[0]}, b[3] = {bias[1], bias[1], bias[1]};
        weights += 2;
        for (const int32_t *c = columns; apart && c != end; c += 6, weights += 2)
            for (int32_t j = 0; j < 6; ++j) {
                const uint32_t wa = j < 3 ? weights[0] : weights[0] >> 8 | weights[0] << 24;
                const uint32_t wb = j < 3 ? weights[1] : weights[1] >> 8 | weights[1] << 24;
                a[j % 3] = mt_dsp_smlad(c[j], mt_dsp_sxtb16(wa), a[j % 3]);
                b[j % 3] = mt_dsp_smlad(c[j], mt_dsp_sxtb16(wb), b[j % 3]);
            }
        for (const int32_t *c = columns; !apart && c != end; c += 3, ++weights)
            for (int32_t j = 0; j < 3; ++j) {
                a[j] = mt_dsp_smlad(c[j], mt_dsp_sxtb16(*weights), a[j]);
                b[j] = mt_dsp_smlad(c[j], (int32_t)*weights, b[j]);
            }
        for (int32_t j = 0; j < 3; ++j) {
            o[j][2 * n] = mt_dsp_narrow(a[j], weights[0], range);
            o[j][2 * n + 1] = mt_dsp_narrow(apart ? b[j] : b[j] - a[j], weights[1], range);
        }
        weights += 2;
    }
}

struct mt_dsp_taps {
    int8_t w[3][3];
};

MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps, float bias,
                                float scale, int32_t pitch, int32_t stride, int32_t count, int32_t step,
                                int32_t zero_point, int32_t low, int32_t high)
{
    for (int32_t x = 0; x < count; ++x, plane += stride, output += step) {
        int32_t sum;
        memcpy(&sum, &bias, 4);
        for (int32_t ky = 0; ky < 3; ++ky)
            for (int32_t kx = 0; kx < 3; ++kx)
                sum += plane[ky * pitch + kx] * taps->w[ky][kx];
        *output = (int8_t)mt_requantise_wide(sum, scale, zero_point, low, high);
    }
}

MT_DSP_INLINE int32_t mt_dsp_mac(int32_t x, int32_t y, int32_t sum)
{
    return (int32_t)mt_dsp_smlad(x, y, (uint32_t)sum);
}

MT_DSP_INLINE void mt_dsp_step1(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t *x)
{
    int32_t pairs[3];
    memcpy(pairs, *taps, 8);
    memcpy(pairs + 2, *from, 4);
    *taps += 4;
    *from += 2;
    for (int32_t i = 0; i < 4; ++i)
        sums[i] = mt_dsp_mac(i < 2 ? *x : pairs[2], pairs[i % 2], sums[i]);
    *x = pairs[2];
}

MT_DSP_INLINE void mt_dsp_step2(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t x[3])
{
    int32_t pairs[2];
    memcpy(pairs, *taps, 4);
    memcpy(pairs + 1, *from, 4);
    *taps += 4;
    *from += 2;
    for (int32_t i = 0; i < 4; ++i)
        sums[i] = mt_dsp_mac(i < 3 ? x[i] : pairs[1], pairs[0], sums[i]);
    x[0] = x[1];
    x[1] = x[2];
    x[2] = pairs[1];
}

MT_DSP_INLINE int8_t mt_dsp_requantise(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    return (int8_t)mt_requantise_wide(acc, scale, zero_point, low, high);
}

MT_DSP_INLINE const uint32_t *mt_dsp_rows(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                          int8_t *output, int32_t groups, int unroll, const struct mt_dsp_range *range)
{
    (void)unroll;
    for (; groups; --groups, output += 4) {
        uint32_t sums[4] = {weights[0], weights[1], weights[2], weights[3]};
        weights += 4;
        for (const int8_t *x = input; x != end; x += 4, weights += 4) {
            uint32_t word;
            memcpy(&word, x, 4);
            for (int32_t half = 0; half < 2; ++half) {
                const int32_t pair = mt_dsp_sxtb16(half ? word >> 8 | word << 24 : word);
                for (int32_t j = 0; j < 4; j += 2) {
                    const uint32_t both = weights[j + half];
                    sums[j] = mt_dsp_smlad(pair, mt_dsp_sxtb16(both), sums[j]);
                    sums[j + 1] = mt_dsp_smlad(pair, (int32_t)both, sums[j + 1]);
                }
            }
        }
        for (int32_t j = 0; j < 4; ++j)
            output[j] = mt_dsp_narrow(j % 2 ? sums[j] - sums[j - 1] : sums[j], weights[j], range);
        weights += 4;
    }
    return weights;
}

#endif

/* The taps of a channel from three words of (w0, w1, w2, 0), a word a row. */
MT_DSP_INLINE struct mt_dsp_taps mt_dsp_load_taps(const uint32_t *words)
{
    struct mt_dsp_taps taps;
#ifdef MT_DSP_ASM
    mt_dsp_pair_taps(words[0], &taps.u0, &taps.v0);
    mt_dsp_pair_taps(words[1], &taps.u1, &taps.v1);
    mt_dsp_pair_taps(words[2], &taps.u2, &taps.v2);
#else
    for (int32_t y = 0; y < 3; ++y)
        for (int32_t x = 0; x < 3; ++x)
            taps.w[y][x] = (int8_t)(words[y] >> 8 * x & 255);
#endif
    return taps;
}

MT_DSP_INLINE int32_t mt_dsp_pair(const int16_t *from)
{
    int32_t pair;
    memcpy(&pair, from, 4);
    return pair;
}

/* The taps of a row of a kernel in steps of two columns: (w0, w1), and a column later (0, w0); (w2, w3), (w1, w2)...
 * `from` is filled up with zeros to 2 * steps. */
#define MT_DSP_SPREAD(name, type)                                                              \
    MT_DSP_INLINE void name(int16_t *taps, const type *from, int32_t rows, int32_t steps)      \
    {                                                                                          \
        for (; rows; --rows) {                                                                 \
            int16_t before = 0;                                                                \
            for (int32_t k = 0; k < steps; ++k, taps += 4, from += 2) {                        \
                taps[0] = taps[3] = from[0];                                                   \
                taps[2] = before;                                                              \
                taps[1] = before = from[1];                                                    \
            }                                                                                  \
        }                                                                                      \
    }
MT_DSP_SPREAD(mt_dsp_spread_i8, int8_t)
MT_DSP_SPREAD(mt_dsp_spread_i16, int16_t)

/* A row of outputs of a depthwise channel with any kernel, four at a time (the last ones are computed and not stored).
 * `plane` has int16, aligned as words; taps are as mt_dsp_spread gives them. Rows of the plane that taps meet stand
 * `next` elements apart, outputs `step` bytes. All from `rows` on are constants, but perhaps `count`. */
MT_DSP_INLINE void mt_dsp_sweep(const int16_t *plane, int8_t *output, const int16_t *taps, int32_t bias, float scale,
                                int32_t rows, int32_t steps, int32_t next, int32_t stride, int32_t count, int32_t step,
                                int32_t zero_point, int32_t low, int32_t high)
{
    for (; count > 0; count -= 4, plane += 4 * stride, output += 4 * step) {
        int32_t sums[4] = {bias, bias, bias, bias};
        const int16_t *w = taps, *row = plane;
        for (int32_t y = 0; y < rows; ++y, row += next) {
            const int16_t *from = row;
            if (stride == 1) {
                int32_t x = mt_dsp_pair(from);
                from += 2;
                MT_UNROLL(8)
                for (int32_t k = 0; k < steps; ++k)
                    mt_dsp_step1(sums, &w, &from, &x);
            } else if (stride == 2) {
                int32_t x[3] = {mt_dsp_pair(from), mt_dsp_pair(from + 2), mt_dsp_pair(from + 4)};
                from += 6;
                MT_UNROLL(8)
                for (int32_t k = 0; k < steps; ++k)
                    mt_dsp_step2(sums, &w, &from, x);
            } else {
                for (int32_t k = 0; k < steps; ++k, w += 4, from += 2)
                    for (int32_t i = 0; i < 4; ++i)
                        sums[i] = mt_dsp_mac(mt_dsp_pair(from + i * stride), mt_dsp_pair(w), sums[i]);
            }
        }
        output[0] = mt_dsp_requantise(sums[0], scale, zero_point, low, high);
        if (count > 1)
            output[step] = mt_dsp_requantise(sums[1], scale, zero_point, low, high);
        if (count > 2)
            output[2 * step] = mt_dsp_requantise(sums[2], scale, zero_point, low, high);
        if (count > 3)
            output[3 * step] = mt_dsp_requantise(sums[3], scale, zero_point, low, high);
    }
}

/* One column with the same pair everywhere: padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill1(int32_t *column, int8_t value, int32_t words)
{
    const int32_t pair = (int32_t)((uint32_t)(uint16_t)value * 0x10001u);
    for (; words; --words, column += 6)
        column[0] = column[3] = pair;
    return column;
}

/* The functions that operators share: the unrolling, and whether the output has a range of its own. */
#define MT_DSP_COLUMNS(name, unroll, apart)                                                                          \
    MT_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,           \
                          int8_t *o1, int8_t *o2, int32_t pairs)                                                     \
    {                                                                                                                \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, unroll, apart, 0);                                  \
    }                                                                                                                \
    MT_OPERATOR void name##_range(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,   \
                                  int8_t *o1, int8_t *o2, int32_t pairs, const struct mt_dsp_range *range)           \
    {                                                                                                                \
        const struct mt_dsp_range own = *range;                                                                      \
        mt_dsp_columns(columns, end, weights, o0, o1, o2, pairs, unroll, apart, &own);                               \
    }
MT_DSP_COLUMNS(mt_dsp_columns_8, 8, 0)
MT_DSP_COLUMNS(mt_dsp_columns_16, 16, 0)
MT_DSP_COLUMNS(mt_dsp_columns_28, 28, 0)
MT_DSP_COLUMNS(mt_dsp_apart_8, 8, 1)
MT_DSP_COLUMNS(mt_dsp_apart_16, 16, 1)
MT_DSP_COLUMNS(mt_dsp_apart_28, 28, 1)

#define MT_DSP_ROWS(unroll)                                                                                          \
    MT_OPERATOR const uint32_t *mt_dsp_rows_##unroll(const int8_t *input, const int8_t *end,                       \
                                                       const uint32_t *weights, int8_t *output, int32_t groups)      \
    {                                                                                                                \
        return mt_dsp_rows(input, end, weights, output, groups, unroll, 0);                                          \
    }                                                                                                                \
    MT_OPERATOR const uint32_t *mt_dsp_rows_##unroll##_range(const int8_t *input, const int8_t *end,               \
                                                               const uint32_t *weights, int8_t *output,              \
                                                               int32_t groups, const struct mt_dsp_range *range)     \
    {                                                                                                                \
        const struct mt_dsp_range own = *range;                                                                      \
        return mt_dsp_rows(input, end, weights, output, groups, unroll, &own);                                       \
    }
MT_DSP_ROWS(4)
MT_DSP_ROWS(8)
MT_DSP_ROWS(16)

#ifdef __cplusplus
}
#endif

#endif
