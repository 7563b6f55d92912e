/* Internal to mtool: applications include mtool.h. */
/* Inner loops of int8 operators with SIMD32 (Armv7E-M, Armv8-M with DSP). Those that use an FPU's registers are
 * assembly only with one (MT_DSP_FPU).
 *
 * Activations are widened to int16 pairs in scratch. Weights stay int8: a halfword holds wa + 256 * wb, the weights of
 * two output channels a and b. SMLAD of the raw word gives A + 256 * B modulo 2^32, SMLAD of its SXTB16 gives A, so one
 * widening serves two channels; B is (R - A) / 256, exact while |B| < 2^23. The division is part of b's scale. Within
 * four bytes the pairs are (0, 2) and (1, 3): the results of SXTB16, without and with a rotation by 8. Weights that
 * can't be proved to fit are stored apart: four bytes of a, four of b, and a widening for each.
 *
 * Results are those of mt_requantize or mt_scaled, bit for bit. On other cores, without optimization (the assembly
 * takes every register) and with MT_PORTABLE defined, the same functions are plain C. */
#ifndef MT_DSP_H
#define MT_DSP_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_FEATURE_DSP) && \
    !defined(MT_KEPT_R9) && !defined(MT_PORTABLE)
#define MT_DSP_ASM 1
#ifdef __ARM_FP
#define MT_DSP_FPU 1
#endif
#endif

#if defined(__GNUC__)
#define MT_DSP_INLINE static inline __attribute__((always_inline))
#else
#define MT_DSP_INLINE static inline
#endif

/* Some assembly takes every register, so neither a frame pointer nor (Armv8.1-M) a loop counter may occupy one. At
 * -Og, GCC 12 manages with these passes of -O1; but not in operators, neither at -Og nor at -Os, so these are
 * compiled with -O2. */
#ifdef MT_DSP_ASM
#pragma GCC optimize("tree-sra", "tree-pta", "tree-bit-ccp", "tree-dse", "dse", "move-loop-invariants", "ssa-phiopt", \
                         "omit-frame-pointer")
#if __ARM_ARCH >= 8
#pragma GCC optimize("no-branch-count-reg")
#endif
#define MT_DSP_OPERATOR __attribute__((optimize("O2"))) MT_OPERATOR
#else
#define MT_DSP_OPERATOR MT_OPERATOR
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits, for packed arithmetic: four bytes biased by 128 are clamped by a saturating
 * addition, a saturating subtraction and an addition. */
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

/* A channel's bias, and its scaling: a multiplier and places, or a multiplier and an offset (MT_EXACT). */
struct mt_dsp_fixed {
    int32_t bias, multiplier, places;
};

#ifdef MT_DSP_ASM

/* Multiply the sum in x by the multiplier in m and shift by the places in s. ASRS leaves the rounding bit in the
 * carry. Ties of the second rounding go away from zero, unless negative results are clamped anyway (RELU). _256:
 * sums are 256 times too large. */
#define MT_DSP_DOUBLE(x) "lsl " x ", " x ", #1\n\t"
#define MT_DSP_DOUBLE_256(x) "asr " x ", " x ", #7\n\t"
#define MT_DSP_FIRST(x, m) "smmulr " x ", " x ", " m "\n\t"
#define MT_DSP_AWAY(x) "add " x ", " x ", " x ", asr #31\n\t"
#define MT_DSP_ROUND(x, s) "asrs " x ", " x ", " s "\n\tadc " x ", " x ", #0\n\t"
#define MT_DSP_TWICE(x, m, s) MT_DSP_DOUBLE(x) MT_DSP_FIRST(x, m) MT_DSP_AWAY(x) MT_DSP_ROUND(x, s)
#define MT_DSP_TWICE_256(x, m, s) MT_DSP_DOUBLE_256(x) MT_DSP_FIRST(x, m) MT_DSP_AWAY(x) MT_DSP_ROUND(x, s)
#define MT_DSP_TWICE_RELU(x, m, s) MT_DSP_DOUBLE(x) MT_DSP_FIRST(x, m) MT_DSP_ROUND(x, s)
#define MT_DSP_TWICE_RELU_256(x, m, s) MT_DSP_DOUBLE_256(x) MT_DSP_FIRST(x, m) MT_DSP_ROUND(x, s)
#define MT_DSP_ONCE(x, m, s) "smmul " x ", " x ", " m "\n\t" MT_DSP_ROUND(x, s)
#define MT_DSP_ONCE_256(x, m, s) "asr " x ", " x ", #8\n\t" MT_DSP_ONCE(x, m, s)

/* Scale the sum in x with a multiplier m and an offset c, equal to the float's result: MT_EXACT of mt_math.h. */
#define MT_DSP_EXACT(x, m, c, shift) \
    "smmla " x ", " x ", " m ", " c "\n\tssat " x ", #8, " x ", asr " shift "\n\t"

#define MT_DSP_EXACT1(x, shift)                                  \
    __asm__ volatile(MT_DSP_EXACT("%[i]", "%[m]", "%[z]", "%[n]") \
                     : [i] "+&r"(x)                              \
                     : [m] "r"(m), [z] "r"(z), [n] "i"(shift)    \
                     : "cc")

/* Scale the sums of channels a and b of a tile: with floats, or with the macros for a and for b. */
#define MT_DSP_SCALE_PAIRS(by_float, by_fixed)                  \
    do {                                                        \
        if (by == MT_TWICE && range && apart)                   \
            by_fixed(MT_DSP_TWICE, MT_DSP_TWICE);               \
        else if (by == MT_TWICE && range)                       \
            by_fixed(MT_DSP_TWICE, MT_DSP_TWICE_256);           \
        else if (by == MT_TWICE && apart)                       \
            by_fixed(MT_DSP_TWICE_RELU, MT_DSP_TWICE_RELU);     \
        else if (by == MT_TWICE)                                \
            by_fixed(MT_DSP_TWICE_RELU, MT_DSP_TWICE_RELU_256); \
        else if (by == MT_ONCE && apart)                        \
            by_fixed(MT_DSP_ONCE, MT_DSP_ONCE);                 \
        else if (by == MT_ONCE)                                 \
            by_fixed(MT_DSP_ONCE, MT_DSP_ONCE_256);             \
        else                                                    \
            by_float();                                         \
    } while (0)

/* A dot product in words of four steps of k: `first`, then `rest` times `four`, or a loop of `turn` times `four` that is
 * entered where the rest is whole turns: all instructions of `four` have four bytes, and so have the last two of the
 * entry. `free` is a register. GCC takes an asm to be as long as its lines: those that .rept writes are made good by empty ones. */
#define MT_DSP_LINES \
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
#define MT_DSP_WHOLE(first, four) first ".rept %c[rest]\n\t" four ".endr\n\t" MT_DSP_LINES MT_DSP_LINES MT_DSP_LINES
#define MT_DSP_IN_TURNS(first, four, bytes, free, compare)                     \
    first "ldr " free ", %[skip]\n\t"                                       \
    "add pc, " free "\n\t"                                                  \
    "nop\n"                                                                 \
    "1:\n\t.rept %c[turn]\n\t" four ".endr\n\t" MT_DSP_CHECK(bytes) compare "bne 1b" MT_DSP_LINES MT_DSP_LINES
/* `bytes` is the size of `four`: the entry jumps by it, so the number must change with the instructions. */
#define MT_DSP_CHECK(bytes) MT_DSP_CHECK_TEXT(bytes)
#define MT_DSP_CHECK_TEXT(bytes) \
    ".if . - 1b - %c[turn] * (" #bytes ")\n\t.error \"a turn of this loop has not " #bytes " bytes, by which its entry jumps\"\n\t.endif\n\t"
/* The bytes of the loop that are skipped at first; `turn` is a power of two. */
#define MT_DSP_SKIP(words, turn, bytes) ((bytes) * ((1 - (words)) & ((turn) - 1)))

/* Convert the results a and b of two channels to bytes and store them at o + at; uses `range` and a copy `own` of
 * it. */
#define MT_DSP_STORE2 "strh %[va], [%[to], %[at]]"
#define MT_DSP_BYTES2                     \
    "usat %[va], #8, %[va]\n\t"           \
    "usat %[vb], #8, %[vb]\n\t"           \
    "orr %[va], %[va], %[vb], lsl #8\n\t" \
    "eor %[va], %[va], #0x80808080\n\t" MT_DSP_STORE2
#define MT_DSP_LIMITS4(x)                \
    "uqadd8 " x ", " x ", %[above]\n\t" \
    "uqsub8 " x ", " x ", %[span]\n\t"  \
    "uadd8 " x ", " x ", %[low]\n\t"
#define MT_DSP_STORE_RANGE(a, b, o)                                                                              \
    __asm__ volatile("qadd %[va], %[va], %[offset]\n\t"                                                          \
                     "qadd %[vb], %[vb], %[offset]\n\t"                                                          \
                     "usat %[va], #8, %[va]\n\t"                                                                 \
                     "usat %[vb], #8, %[vb]\n\t"                                                                 \
                     "orr %[va], %[va], %[vb], lsl #8\n\t" MT_DSP_LIMITS4("%[va]") MT_DSP_STORE2                 \
                     : [va] "+&r"(a), [vb] "+&r"(b)                                                              \
                     : [to] "r"(o), [at] "r"(at), [offset] "r"(own.offset), [above] "r"(own.above),              \
                       [span] "r"(own.span), [low] "r"(own.low)                                                  \
                     : "cc", "memory")
#define MT_DSP_STORE(a, b, o)                              \
    if (range)                                             \
        MT_DSP_STORE_RANGE(a, b, o);                       \
    else                                                   \
        __asm__ volatile(MT_DSP_BYTES2                     \
                         : [va] "+&r"(a), [vb] "+&r"(b)    \
                         : [to] "r"(o), [at] "r"(at)       \
                         : "cc", "memory")

/* Load the next four words after the weights, into registers in LDM's order; most channels have a multiplier. */
#define MT_DSP_NEXT(m, z, w) __asm__ volatile("ldrd %0, %1, [%2], #8" : "=&r"(m), "=&r"(z), "+&r"(w)::"memory")
#define MT_DSP_NEXT4(m, z, mb, zb, w) \
    __asm__ volatile("ldmia %4!, {r8, r9, r10, r11}" : "=r"(m), "=r"(z), "=r"(mb), "=r"(zb), "+&r"(w)::"memory")
#define MT_DSP_USUAL(m) __builtin_expect((m) != 0, 1)

/* Store the results of channels a and b, int8 already, clamped to limits. */
#define MT_DSP_STORE_CLAMPED(a, b, o)                                                                 \
    __asm__ volatile("bfi %[va], %[vb], #8, #8\n\t"                                                   \
                     "eor %[va], %[va], #0x80808080\n\t" MT_DSP_LIMITS4("%[va]") MT_DSP_STORE2        \
                     : [va] "+&r"(a)                                                                  \
                     : [vb] "r"(b), [to] "r"(o), [at] "r"(at), [above] "r"(own.above),                \
                       [span] "r"(own.span), [low] "r"(own.low)                                       \
                     : "cc", "memory")

/* Convert a scaled sum to int8. */
#define MT_DSP_ADD_ZERO(x) "qadd " x ", " x ", %[zero]\n\tssat " x ", #8, " x "\n\t"

/* Scale the four sums a to d of a dense layer, with the floats after the weights. */
#define MT_DSP_FLOAT4 "vldmia %[w]!, {s0, s1, s2, s3}\n\t" MT_DSP_FLOAT4_OF
#define MT_DSP_FLOAT4_OF                 \
    "vmov s4, s5, %[a], %[b]\n\t"        \
    "vmov s6, s7, %[c], %[d]\n\t"        \
    "vcvt.f32.s32 s4, s4\n\t"            \
    "vcvt.f32.s32 s5, s5\n\t"            \
    "vcvt.f32.s32 s6, s6\n\t"            \
    "vcvt.f32.s32 s7, s7\n\t"            \
    "vmul.f32 s4, s4, s0\n\t"            \
    "vmul.f32 s5, s5, s1\n\t"            \
    "vmul.f32 s6, s6, s2\n\t"            \
    "vmul.f32 s7, s7, s3\n\t"            \
    "vcvtr.s32.f32 s4, s4\n\t"           \
    "vcvtr.s32.f32 s5, s5\n\t"           \
    "vcvtr.s32.f32 s6, s6\n\t"           \
    "vcvtr.s32.f32 s7, s7\n\t"           \
    "vmov %[a], %[b], s4, s5\n\t"        \
    "vmov %[c], %[d], s6, s7"

#ifdef MT_DSP_FPU
#define MT_DSP_FLOATS "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7",
#else
#define MT_DSP_FLOATS

/* Scale sums by the bits of a float, without an FPU: of the few channels that have no multiplier. */
static MT_COLD void mt_dsp_by_float(int32_t *sums, int32_t count, int32_t bits)
{
    const float scale = mt_f32_of_u32((uint32_t)bits);
    for (int32_t i = 0; i < count; ++i) {
        const float value = (float)sums[i] * scale; /* beyond 2^20 it is clamped in any case */
        sums[i] = mt_round(value < -1048576.0f ? -1048576.0f : value < 1048576.0f ? value : 1048576.0f);
    }
}
#endif
#endif

#ifndef MT_DSP_FPU /* portable version */

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

/* Scale a sum of channel a, or with `factor` of channel b, with the words packed after its weights. Those of both
 * channels begin at `first`; without multipliers there are a 0 and later the zero point. */
MT_DSP_INLINE int8_t mt_dsp_narrow(uint32_t sum, int32_t factor, const uint32_t *words, const uint32_t *first,
                                   enum mt_scaling by, const struct mt_dsp_range *range)
{
    const int32_t zero_point = by > MT_EXACT ? (int32_t)first[2] : range ? range->offset - 128 : -128;
    const int32_t low = range ? (int8_t)(range->low & 255) : -128;
    const int32_t high = range ? 127 - (int32_t)(range->above & 255) : 127;
    float scale;
    if (by > MT_EXACT && first[0]) {
        const int32_t places = MT_EXACT_PLACES(by) + (factor == 256 ? 8 : 0);
        return (int8_t)mt_clamp(mt_requantize_exact((int32_t)sum, (int32_t)words[0], (int32_t)words[1], places), low, high);
    }
    words += by > MT_EXACT;
    if (by == MT_TWICE || by == MT_ONCE) {
        const int32_t scaled = mt_scaled(by, (int32_t)sum / factor, (int32_t)words[0], (int32_t)words[1]);
        return (int8_t)mt_clamp(scaled + zero_point, low, high);
    }
    memcpy(&scale, words, 4);
    return (int8_t)mt_requantize_wide((int32_t)sum, scale, zero_point, low, high);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
