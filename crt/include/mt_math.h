/* Internal to mtool: applications include mtool.h. */
/* Arithmetic of generated models: rounding, quantization, clamping.
 *
 * Results are the same on every target with IEEE 754 float32 arithmetic, provided that the compiler does not
 * contract a*b+c by itself (-ffp-contract=off, the default with -std=c99). */
#ifndef MT_MATH_H
#define MT_MATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mt_place.h"
#include "mt_scalar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Add `part` to a sum, and its rounding error to `rest` (Dekker's sum of two); at the end both are added. The error
 * of an infinity is NaN. */
#define MT_SUM(name, type)                                                \
    static inline void mt_add_##name(type *sum, type *rest, type part)    \
    {                                                                     \
        const type next = *sum + part;                                    \
        *rest += part - (next - *sum);                                    \
        *sum = next;                                                      \
    }                                                                     \
    static inline type mt_total_##name(type sum, type rest)               \
    {                                                                     \
        const type total = sum + rest;                                    \
        return total == total ? total : sum;                              \
    }
MT_SUM(f32, float)
MT_SUM(f64, double)

/* Ask the compiler to unroll the following loop. Without optimization GCC can't, and may warn. */
#define MT_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define MT_UNROLL(n) MT_PRAGMA(unroll n)
#elif defined(__GNUC__) && __GNUC__ >= 8 && defined(__OPTIMIZE__)
#define MT_UNROLL(n) MT_PRAGMA(GCC unroll n)
#else
#define MT_UNROLL(n)
#endif

/* What is above is computed before what is below is loaded. Otherwise GCC 12 (RISC-V) multiplies ahead until it has
 * no registers left, and spills the products. */
#if defined(__GNUC__)
#define MT_IN_ORDER __asm__ volatile("" ::: "memory")
#else
#define MT_IN_ORDER
#endif

/* Operators of a model stay functions of their own: faults name them, profiles list them, and their stack frames end
 * with them. GCC 12.2 must not analyse them across calls either: it removes the call of an operator whose result the
 * next one reads and overwrites in place (interprocedural dead stores, -fipa-modref). */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define MT_ALONE __attribute__((noipa, unused))
#elif defined(__GNUC__)
#define MT_ALONE __attribute__((noinline, unused))
#else
#define MT_ALONE
#endif
#define MT_OPERATOR static MT_ALONE

/* Assembly that uses a register reserved by modules (docs/modules.md) for the address of their imports: s31, a part
 * of q7, on cores with an FPU, otherwise r9. The compiler may not use that register, but does not save it around
 * such a statement either. */
#if defined(MT_KEPT_S31)
#define MT_KEPT_OUT(place) __asm__ volatile("vstr s31, %0" : "=Uv"(place))
#define MT_KEPT_IN(place) __asm__ volatile("vldr s31, %0" : : "Uv"(place))
#elif defined(MT_KEPT_R9)
#define MT_KEPT_OUT(place) __asm__ volatile("str r9, %0" : "=m"(place))
#define MT_KEPT_IN(place) __asm__ volatile("ldr r9, %0" : : "m"(place))
#endif
#ifdef MT_KEPT_OUT
#define MT_KEPT(...)          \
    do {                      \
        uint32_t mt_kept;     \
        MT_KEPT_OUT(mt_kept); \
        __VA_ARGS__;          \
        MT_KEPT_IN(mt_kept);  \
    } while (0)
#else
#define MT_KEPT(...) __VA_ARGS__
#endif

/* memcpy; newlib's for RISC-V goes byte by byte. */
#if defined(__GNUC__) && defined(__riscv)
static MT_ALONE void mt_copy(void *to, const void *from, size_t count)
{
    int8_t *out = (int8_t *)to;
    const int8_t *in = (const int8_t *)from;
    if ((((uintptr_t)to | (uintptr_t)from) & 3) == 0)
        for (; count >= 8; count -= 8, out += 8, in += 8) {
            __builtin_memcpy(__builtin_assume_aligned(out, 4), __builtin_assume_aligned(in, 4), 8);
            MT_IN_ORDER;
        }
    for (; count; --count) {
        *out++ = *in++;
        MT_IN_ORDER;
    }
}
#else
#define mt_copy memcpy
#endif

/* An unlikely condition, and a rarely called function. */
#if defined(__GNUC__)
#define MT_SELDOM(condition) __builtin_expect((condition), 0)
#define MT_COLD __attribute__((cold, noinline, unused))
#else
#define MT_SELDOM(condition) (condition)
#define MT_COLD
#endif

/* A function that is inlined wherever it is called, as one of its arguments is a constant there. */
#if defined(__GNUC__)
#define MT_INLINE static inline __attribute__((always_inline))
#else
#define MT_INLINE static inline
#endif

/* Products of 8 by 8 bits. For AVR, avr-gcc -Os would call a function for 16 by 16 instead. */
static inline int16_t mt_product_i8(int8_t a, int8_t b)
{
#ifdef __AVR__
    int16_t product;
    __asm__("muls %1, %2\n\tmovw %0, r0\n\tclr r1" : "=r"(product) : "d"(a), "d"(b) : "r0");
    return product;
#else
    return (int16_t)(a * b);
#endif
}

static inline int16_t mt_product_u8(uint8_t a, int8_t b)
{
#ifdef __AVR__
    int16_t product;
    __asm__("mulsu %2, %1\n\tmovw %0, r0\n\tclr r1" : "=r"(product) : "a"(a), "a"(b) : "r0");
    return product;
#else
    return (int16_t)(a * b);
#endif
}

#if defined(__ARM_FEATURE_SAT) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 10))
/* One instruction between the usual limits, including a shift; GCC 12 would compare. */
MT_INLINE int32_t mt_clamp(int32_t value, int32_t low, int32_t high)
{
    if (__builtin_constant_p(low) && __builtin_constant_p(high)) {
        if (low == -128 && high == 127)
            return (int32_t)__builtin_arm_ssat(value, 8);
        if (low == 0 && high == 255)
            return (int32_t)__builtin_arm_usat(value, 8);
        if (low == INT16_MIN && high == INT16_MAX)
            return (int32_t)__builtin_arm_ssat(value, 16);
    }
    return value < low ? low : value > high ? high : value;
}
#else
static inline int32_t mt_clamp(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}
#endif

/* The position that an ONNX index selects along a dimension; negative ones count from the end. -1: out of range. */
static inline int32_t mt_place(int64_t index, int32_t size)
{
    if (index < -(int64_t)size || index >= size)
        return -1;
    return (int32_t)(index < 0 ? index + size : index);
}

/* Round to the nearest integer, ties to even, for |value| < 2^22: adding 1.5 * 2^23 leaves the rounded integer in
 * the float's low bits. */
static inline int32_t mt_round(float value)
{
    union {
        float f;
        int32_t i;
    } bits;
    bits.f = value + 12582912.0f;
    return bits.i - 0x4B400000;
}

/* saturate(round_half_even(acc * scale) + zero_point): ONNX QuantizeLinear of an int32 accumulator, equal to
 * onnxruntime's integer kernels. Requires |acc * scale| < 2^22. */
static inline int32_t mt_requantize(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    return mt_clamp(mt_round((float)acc * scale) + zero_point, low, high);
}

/* The same for any acc and scale. */
static inline int32_t mt_requantize_wide(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    float value = (float)acc * scale;
    float least = (float)(low - zero_point);
    float most = (float)(high - zero_point);
    value = value > least ? value : least;
    return mt_round(value < most ? value : most) + zero_point;
}

/* The same for 64-bit sums. */
static inline int32_t mt_requantize_long(int64_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    float value = (float)acc * scale;
    float least = (float)(low - zero_point);
    float most = (float)(high - zero_point);
    value = value > least ? value : least;
    return mt_round(value < most ? value : most) + zero_point;
}

/* A value whose origin is hidden. GCC would replace the product of a constant by up to ten shifts and sums, and extend
 * the sign of a byte that is only stored. */
MT_INLINE int32_t mt_factor(int32_t value)
{
#if (defined(__arm__) && !defined(__ARM_FEATURE_MVE)) || (defined(__riscv) && !defined(__riscv_vector))
    __asm__("" : "+r"(value));
#endif
    return value;
}

/* Cores without an instruction for 64-bit products. */
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define MT_NO_LONG_PRODUCT
#endif
#if defined(MT_NO_LONG_PRODUCT) && defined(__GNUC__) && defined(__thumb__) && !defined(MT_PORTABLE)
#define MT_THUMB1_ASM
#endif

#ifdef MT_NO_LONG_PRODUCT
/* The lower 16 bits; GCC would shift twice. */
static inline uint32_t mt_low_half(int32_t value)
{
#if defined(__GNUC__) && defined(__thumb__) && !defined(MT_PORTABLE)
    uint32_t half;
    __asm__("uxth %0, %1" : "=l"(half) : "l"(value));
    return half;
#else
    return (uint16_t)value;
#endif
}

/* acc * multiplier / 2^32, rounded down: four products of 16 by 16 bits, instead of a call for 64 by 64; too long to
 * be inlined at each output. */
static MT_ALONE int32_t mt_high_word(int32_t acc, int32_t multiplier)
{
    const int32_t a = acc >> 16, b = multiplier >> 16;
    const uint32_t c = mt_low_half(acc), d = mt_low_half(multiplier);
    const int32_t left = a * (int32_t)d + (int32_t)((c * d) >> 16);
    const int32_t right = b * (int32_t)c + (int32_t)mt_low_half(left);
    return a * b + (left >> 16) + (right >> 16);
}
#else
/* acc * multiplier / 2^32, rounded down. */
static inline int32_t mt_high_word(int32_t acc, int32_t multiplier)
{
    return (int32_t)(((int64_t)acc * multiplier) >> 32);
}
#endif

/* mt_high_word for -2^16 < acc < 2^16 and 0 <= multiplier < 2^30. */
static inline int32_t mt_high_product(int32_t acc, int32_t multiplier)
{
#ifdef MT_NO_LONG_PRODUCT
    return (acc * mt_factor(multiplier >> 15) + (acc * mt_factor(multiplier & 0x7fff) >> 15)) >> 17;
#else
    return mt_high_word(acc, multiplier);
#endif
}

/* low + above, clamped, by one comparison: for cores without an instruction that saturates. */
static inline int32_t mt_clamp_above(int32_t above, int32_t low, int32_t high)
{
    if ((uint32_t)above > (uint32_t)(high - low))
        above = ~(above >> 31) & (high - low);
    return mt_factor(above + low);
}

/* mt_requantize without floating point: multiplier is scale * 2^(32 + shift), offset is the zero point plus a half step,
 * both times 2^shift. Multipliers are chosen so that every accumulator that can occur gives the same integer; with
 * 16 bits, results near ties may differ by 1. */
static inline int32_t mt_requantize_fixed(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift, int32_t low,
                                          int32_t high)
{
    const int32_t scaled = mt_high_word(acc, multiplier) + offset;
#if defined(__GNUC__) && (defined(MT_NO_LONG_PRODUCT) || defined(__riscv))
    if (!__builtin_constant_p(multiplier)) /* otherwise registers are left for the limits */
        return mt_clamp_above((scaled - low * ((int32_t)1 << shift)) >> shift, low, high);
#endif
    return mt_clamp(scaled >> shift, low, high);
}

/* sum + x * w in three instructions with the load of x; the sum may be in an upper register. */
static inline int32_t mt_add_product(int32_t sum, int32_t x, int32_t w)
{
#ifdef MT_THUMB1_ASM
    __asm__ volatile(".syntax unified\n\t"
                     "muls %[x], %[w], %[x]\n\t"
                     "add %[sum], %[x]"
                     : [sum] "+hl"(sum), [x] "+l"(x)
                     : [w] "l"(w)
                     : "cc");
    return sum;
#else
    return sum + x * w;
#endif
}

/* acc * multiplier / 2^20, rounded down, plus `more`, where |acc| < 2^20 and |acc * multiplier| < 2^51, for cores without
 * an instruction for 64-bit products: ten bits of the multiplier at a time. */
static inline int32_t mt_short_product(int32_t acc, int32_t multiplier, int32_t more)
{
    int32_t low = multiplier & 0x3ff, middle = (multiplier >> 10) & 0x3ff;
    const int32_t high = multiplier >> 20;
#ifdef MT_THUMB1_ASM
    __asm__(".syntax unified\n\t"
            "muls %[low], %[acc], %[low]\n\t"
            "asrs %[low], %[low], #10\n\t"
            "muls %[middle], %[acc], %[middle]\n\t"
            "adds %[low], %[low], %[middle]\n\t"
            "asrs %[low], %[low], #10\n\t"
            "mov %[middle], %[high]\n\t"
            "muls %[acc], %[middle], %[acc]\n\t"
            "adds %[acc], %[acc], %[low]\n\t"
            "add %[acc], %[more]"
            : [acc] "+l"(acc), [low] "+l"(low), [middle] "+l"(middle)
            : [high] "hl"(high), [more] "hl"(more)
            : "cc");
    return acc;
#else
    return (((acc * low >> 10) + acc * middle) >> 10) + acc * high + more;
#endif
}

/* mt_requantize_fixed for the same. */
static inline int32_t mt_requantize_fixed_short(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift,
                                                int32_t low, int32_t high)
{
    const int32_t scaled = mt_short_product(acc, multiplier, (offset - low * ((int32_t)1 << shift)) * 4096);
    return mt_clamp_above(scaled >> (shift + 12), low, high);
}

/* The same with ties to even, for scales such as 1/64 that produce exact ties. */
static inline int32_t mt_requantize_fixed_even(int32_t acc, int32_t multiplier, int32_t zero_point, int32_t shift,
                                               int32_t low, int32_t high)
{
    const int32_t scaled = mt_high_word(acc, multiplier);
    const int32_t odd = (scaled >> shift) & 1;
    const int32_t rest = (uint32_t)acc * (uint32_t)multiplier != 0; /* what mt_high_word discarded */
    const int32_t offset = zero_point * ((int32_t)1 << shift) + ((int32_t)1 << (shift - 1)) - 1;
    return mt_clamp((scaled + (odd | rest) + offset) >> shift, low, high);
}

/* total / 2^shift, rounded to nearest, ties to even. */
static inline int32_t mt_shift_even(int32_t total, int32_t shift)
{
    return (total + ((int32_t)1 << (shift - 1)) - 1 + ((total >> shift) & 1)) >> shift;
}

/* Whether the last `shift` bits of a total are below `window`. */
static inline int32_t mt_is_near_tie(int32_t total, int32_t shift, int32_t window)
{
    return MT_SELDOM(((uint32_t)total & (((uint32_t)1 << shift) - 1)) < (uint32_t)window) ? 1 : 0;
}

/* The nearest number that a float32 can represent, ties to even. */
static inline uint64_t mt_as_float(uint64_t value)
{
    int32_t places = 0;
    uint64_t odd;
    while (value >> places >= (uint64_t)1 << 24)
        ++places;
    odd = (value >> places) & 1;
    return places ? (value + ((uint64_t)1 << (places - 1)) - 1 + odd) >> places << places : value;
}

/* acc * multiplier / 2^(32 + shift) as float32 would compute it, if the multiplier has all bits of the scale. */
static MT_COLD int32_t mt_requantize_as_float(int32_t acc, int32_t multiplier, int32_t shift)
{
    const uint64_t total = mt_as_float(acc < 0 ? 0u - (uint32_t)acc : (uint32_t)acc);
    const uint64_t product = mt_as_float(total * (uint32_t)multiplier);
    const uint64_t half = (uint64_t)1 << (31 + shift);
    const int32_t steps = (int32_t)((product + half - 1 + ((product >> (32 + shift)) & 1)) >> (32 + shift));
    return acc < 0 ? -steps : steps;
}

/* mt_requantize_fixed, with a multiplier that always gives the float's result, or the negative of one that does so
 * except within 2^-16 of a half. */
static inline int32_t mt_requantize_fixed_exact(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift,
                                                int32_t low, int32_t high)
{
    const int32_t factor = multiplier < 0 ? -multiplier : multiplier;
    const int32_t scaled = mt_high_word(acc, factor) + offset;
    int32_t steps = scaled >> shift;
    if (multiplier < 0) {
        const uint32_t rest = (uint32_t)scaled << (32 - shift) | ((uint32_t)acc * (uint32_t)factor) >> shift;
        if (MT_SELDOM(rest + 0x10000u < 0x20000u))
            steps = mt_requantize_as_float(acc, factor, shift) + (offset >> shift);
    }
    return mt_clamp(steps, low, high);
}

/* The same where mt_requantize_fixed_short is possible, and shift is at least 4: the product has the bits that count. */
static inline int32_t mt_requantize_fixed_exact_short(int32_t acc, int32_t multiplier, int32_t offset, int32_t shift,
                                                      int32_t low, int32_t high)
{
    const int32_t factor = multiplier < 0 ? -multiplier : multiplier;
    const int32_t scaled = mt_short_product(acc, factor, (offset - low * ((int32_t)1 << shift)) * 4096);
    if (multiplier < 0 && MT_SELDOM(((uint32_t)scaled << (20 - shift)) + 0x20000u < 0x40000u))
        return mt_clamp(mt_requantize_as_float(acc, factor, shift) + (offset >> shift), low, high);
    return mt_clamp_above(scaled >> (shift + 12), low, high);
}

/* TFLite's requantization: acc * multiplier / 2^(32 + shift), rounded once, ties up; shift is 1 to 30. */
static inline int32_t mt_rescale(int32_t acc, int32_t multiplier, int32_t shift)
{
    return (mt_high_word(acc, multiplier) + ((int32_t)1 << (shift - 1))) >> shift;
}

/* The same, rounded twice: acc * multiplier / 2^31, ties up, then the shift, ties away from zero; shift is 0 to 30. */
static inline int32_t mt_rescale_twice(int32_t acc, int32_t multiplier, int32_t shift)
{
#ifdef MT_NO_LONG_PRODUCT
    const uint32_t low = (uint32_t)acc * (uint32_t)multiplier;
    int32_t scaled = (int32_t)((uint32_t)mt_high_word(acc, multiplier) * 2 + (low >> 31) + (low >> 30 & 1));
#else
    int32_t scaled = (int32_t)(((int64_t)acc * multiplier + ((int64_t)1 << 30)) >> 31);
#endif
    scaled += scaled >> 31;
    return ((scaled >> shift) + 1) >> 1;
}

/* The same for shifts from -31 to 30; results saturate at 2^30. */
static inline int32_t mt_rescale_wide(int32_t acc, int32_t multiplier, int32_t shift)
{
    const int64_t half = (int64_t)1 << (31 + shift);
    const int64_t limit = (int64_t)1 << 30;
    const int64_t scaled = ((int64_t)acc * multiplier + half) >> (32 + shift);
    return (int32_t)(scaled > limit ? limit : scaled < -limit ? -limit : scaled);
}

/* Rounded twice, for shifts from -31 to 30. */
static inline int32_t mt_rescale_twice_wide(int32_t acc, int32_t multiplier, int32_t shift)
{
    if (shift >= 0)
        return mt_rescale_twice(acc, multiplier, shift);
    return mt_rescale_wide((int32_t)((uint32_t)acc << (-1 - shift)), multiplier, -1);
}

/* The same for 64-bit sums: acc * multiplier / 2^places, rounded once, ties up; the multiplier has 15 bits. */
static inline int32_t mt_rescale_long(int64_t acc, int32_t multiplier, int32_t places)
{
    return (int32_t)((acc * multiplier + ((int64_t)1 << (places - 1))) >> places);
}

/* How SIMD kernels scale a sum, and a channel's packed values: a float scale, a multiplier and places, or for
 * MT_EXACT_<places> a multiplier and an offset, with which mt_requantize_exact gives the result of mt_requantize. A
 * channel without these has 0 and the float scale. */
enum mt_scaling {
    MT_BY_FLOAT, /* mt_requantize_wide */
    MT_BY_NEAR_FLOAT, /* the same for int8: results fit into 16 bits, and the zero point is even */
    MT_BY_ODD_FLOAT,  /* the same with an odd zero point */
    MT_TWICE,    /* mt_rescale_twice with shift = places - 1, from 1 to 31; the sum stays below 2^30 */
    MT_ONCE,     /* mt_rescale with shift = places */
    MT_EXACT,    /* mt_requantize_exact; the places follow */
    MT_EXACT_1,
    MT_EXACT_2,
    MT_EXACT_3,
    MT_EXACT_4
};
#define MT_EXACT_PLACES(by) ((int32_t)(by) - (int32_t)MT_EXACT)

/* saturate((acc * multiplier / 2^32 + offset) / 2^places) to int8, both rounded down. */
static inline int32_t mt_requantize_exact(int32_t acc, int32_t multiplier, int32_t offset, int32_t places)
{
    return mt_clamp((mt_high_word(acc, multiplier) + offset) >> places, -128, 127);
}

static inline int32_t mt_scaled(enum mt_scaling by, int32_t acc, int32_t multiplier, int32_t places)
{
    return by == MT_TWICE ? mt_rescale_twice(acc, multiplier, places - 1) : mt_rescale(acc, multiplier, places);
}

/* sum / count, rounded, ties away from zero; count is positive. */
static inline int32_t mt_mean(int32_t sum, int32_t count)
{
#ifdef __GNUC__
    if (__builtin_constant_p(count) && count > 1 && !(count & (count - 1)))
        return (sum + (sum >> 31) + count / 2) >> __builtin_ctzl((unsigned long)count);
#endif
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
}

#if defined(__ARM_FEATURE_QBIT) && defined(__ARM_FP) && !defined(__ARM_FEATURE_MVE) && !defined(__SOFTFP__)
#define MT_SATURATED_STEPS
/* The nearest integer, ties to even, saturated to 32 bits; of NaN 0. */
static inline int32_t mt_saturated_steps(float value)
{
    float nearest;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(nearest) : "t"(value));
    return (int32_t)mt_u32_of_f32(nearest);
}
static inline int32_t mt_saturated_sum(int32_t a, int32_t b)
{
    if (__builtin_constant_p(b) && b == 0)
        return a;
    __asm__("qadd %0, %1, %2" : "=r"(a) : "r"(a), "r"(b));
    return a;
}
#endif

/* ONNX QuantizeLinear: saturate(round_half_even(value / scale) + zero_point). NaN gives low. */
static inline int32_t mt_quantize(float value, float scale, int32_t zero_point, int32_t low, int32_t high)
{
#ifdef MT_SATURATED_STEPS
    int32_t steps = mt_saturated_steps(value / scale);
    if (MT_SELDOM(steps == 0) && value != value)
        steps = INT32_MIN;
    return mt_clamp(mt_saturated_sum(steps, zero_point), low, high);
#else
    float least = (float)(low - zero_point);
    float most = (float)(high - zero_point);
    value = value / scale;
    value = value > least ? value : least;
    return mt_round(value < most ? value : most) + zero_point;
#endif
}

/* The same for a finite value and a scale that is not 0. */
static inline int32_t mt_quantize_finite(float value, float scale, int32_t zero_point, int32_t low, int32_t high)
{
#ifdef MT_SATURATED_STEPS
    return mt_clamp(mt_saturated_sum(mt_saturated_steps(value / scale), zero_point), low, high);
#else
    return mt_quantize(value, scale, zero_point, low, high);
#endif
}

#ifdef __cplusplus
}
#endif

#endif
