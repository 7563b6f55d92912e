/* Internal to mtool: applications include mtool.h. */
/* Floats of 8 and 4 bits: stored as their bits, computed in float32. Rounding is to nearest, ties to even; NaN stays
 * NaN if the type has one. Values that are too large become infinity, else NaN, else the largest number, whichever the
 * type has.
 *
 * The types are ONNX's: e4m3fn and e5m2 of Micikevicius et al. (2022), the fnuz ones of Noune et al. (2022), whose
 * only NaN has the bits of a negative zero, and e2m1fn of the OCP microscaling formats. */
#ifndef MT_FLOAT8_H
#define MT_FLOAT8_H

#include <stdint.h>

#include "mt_half.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number with these bits, without a sign. */
static inline float mt_float8_expand(uint32_t magnitude, int32_t mantissa, int32_t bias)
{
    union mt_bits32 bits;
    if (magnitude >> mantissa) {
        bits.u = (magnitude << (23 - mantissa)) + ((uint32_t)(127 - bias) << 23);
    } else { /* subnormal: in steps of 2^(1 - bias - mantissa) */
        bits.u = (uint32_t)(128 - bias - mantissa) << 23;
        bits.f *= (float)magnitude;
    }
    return bits.f;
}

/* The bits, without the sign, of the nearest number; `overflow` if that is above `largest`. */
static inline uint32_t mt_float8_round(uint32_t magnitude, int32_t mantissa, int32_t bias, uint32_t largest,
                                       uint32_t overflow)
{
    uint32_t result;
    if (magnitude < (uint32_t)(128 - bias) << 23) { /* adding a number with such steps leaves the rounded bits */
        union mt_bits32 bits, steps;
        steps.u = (uint32_t)(151 - bias - mantissa) << 23;
        bits.u = magnitude;
        bits.f += steps.f;
        result = bits.u - steps.u;
    } else {
        const int32_t cut = 23 - mantissa;
        result = (magnitude + (((uint32_t)1 << (cut - 1)) - 1u) + ((magnitude >> cut) & 1u)) >> cut;
        result -= (uint32_t)(127 - bias) << mantissa;
    }
    return result > largest ? overflow : result;
}

static inline float mt_float8_signed(uint32_t negative, float magnitude) { return negative ? -magnitude : magnitude; }

static inline float mt_float8_nan(uint32_t negative)
{
    union mt_bits32 bits;
    bits.u = negative ? 0xFFC00000u : 0x7FC00000u;
    return bits.f;
}

/* Types with a sign, a NaN from `nan` on, and optionally an infinity. */
#define MT_FLOAT8(type, mantissa, bias, largest, overflow, infinity, nan)                                              \
    static inline float mt_##type##_load(uint8_t x)                                                                    \
    {                                                                                                                  \
        const uint32_t magnitude = x & 0x7Fu;                                                                          \
        union mt_bits32 bits;                                                                                          \
        bits.u = 0x7F800000u;                                                                                          \
        if (magnitude > largest && magnitude != infinity)                                                              \
            return mt_float8_nan(x & 0x80u);                                                                           \
        return mt_float8_signed(x & 0x80u,                                                                             \
                                magnitude == infinity ? bits.f : mt_float8_expand(magnitude, mantissa, bias));         \
    }                                                                                                                  \
    static inline uint8_t mt_##type##_store(float value)                                                               \
    {                                                                                                                  \
        union mt_bits32 bits;                                                                                          \
        bits.f = value;                                                                                                \
        const uint32_t magnitude = bits.u & 0x7FFFFFFFu, sign = (bits.u >> 24) & 0x80u;                                \
        if (magnitude > 0x7F800000u)                                                                                   \
            return (uint8_t)(sign | nan);                                                                              \
        return (uint8_t)(sign | mt_float8_round(magnitude, mantissa, bias, largest, overflow));                        \
    }

/* Types whose NaN is 0x80, the negative zero. */
#define MT_FLOAT8_FNUZ(type, mantissa, bias)                                                                           \
    static inline float mt_##type##_load(uint8_t x)                                                                    \
    {                                                                                                                  \
        if (x == 0x80u)                                                                                                \
            return mt_float8_nan(0);                                                                                   \
        return mt_float8_signed(x & 0x80u, mt_float8_expand(x & 0x7Fu, mantissa, bias));                               \
    }                                                                                                                  \
    static inline uint8_t mt_##type##_store(float value)                                                               \
    {                                                                                                                  \
        union mt_bits32 bits;                                                                                          \
        bits.f = value;                                                                                                \
        const uint32_t magnitude = bits.u & 0x7FFFFFFFu;                                                               \
        const uint32_t result =                                                                                        \
            magnitude > 0x7F800000u ? 0x80u : mt_float8_round(magnitude, mantissa, bias, 0x7Fu, 0x80u);                \
        return (uint8_t)(result && result < 0x80u ? ((bits.u >> 24) & 0x80u) | result : result);                       \
    }

/* clang-format off */
MT_FLOAT8(float8_e4m3fn, 3, 7, 0x7Eu, 0x7Fu, 0xFFu, 0x7Fu)
MT_FLOAT8(float8_e5m2, 2, 15, 0x7Bu, 0x7Cu, 0x7Cu, 0x7Eu)
MT_FLOAT8_FNUZ(float8_e4m3fnuz, 3, 8)
MT_FLOAT8_FNUZ(float8_e5m2fnuz, 2, 16)
/* clang-format on */

static inline float mt_float4_e2m1fn_load(uint8_t x) { return mt_float8_signed(x & 8u, mt_float8_expand(x & 7u, 1, 1)); }

static inline uint8_t mt_float4_e2m1fn_store(float value)
{
    union mt_bits32 bits;
    bits.f = value;
    const uint32_t magnitude = bits.u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return 8u; /* the type has no NaN */
    return (uint8_t)(((bits.u >> 28) & 8u) | mt_float8_round(magnitude, 1, 1, 7u, 7u));
}

/* The nearest number of each type. */
static inline float mt_float8_e4m3fn_round(float x) { return mt_float8_e4m3fn_load(mt_float8_e4m3fn_store(x)); }
static inline float mt_float8_e5m2_round(float x) { return mt_float8_e5m2_load(mt_float8_e5m2_store(x)); }
static inline float mt_float8_e4m3fnuz_round(float x) { return mt_float8_e4m3fnuz_load(mt_float8_e4m3fnuz_store(x)); }
static inline float mt_float8_e5m2fnuz_round(float x) { return mt_float8_e5m2fnuz_load(mt_float8_e5m2fnuz_store(x)); }
static inline float mt_float4_e2m1fn_round(float x) { return mt_float4_e2m1fn_load(mt_float4_e2m1fn_store(x)); }

#ifdef __cplusplus
}
#endif

#endif
