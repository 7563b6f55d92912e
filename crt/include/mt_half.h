/* Internal to mtool: applications include mtool.h. */
/* float16 and bfloat16: stored as their 16 bits, computed in float32. Rounding is to nearest, ties to even; values
 * that are too large become infinity; NaN stays NaN. */
#ifndef MT_HALF_H
#define MT_HALF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

union mt_bits32 {
    float f;
    uint32_t u;
};

static inline float mt_bf16_load(uint16_t half)
{
    union mt_bits32 bits;
    bits.u = (uint32_t)half << 16;
    return bits.f;
}

static inline uint16_t mt_bf16_store(float value)
{
    union mt_bits32 bits;
    bits.f = value;
    if ((bits.u & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)((bits.u >> 16) | 0x40u);
    return (uint16_t)((bits.u + 0x7FFFu + ((bits.u >> 16) & 1u)) >> 16);
}

#if defined(__FLT16_MAX__) && !defined(__cplusplus)

/* The compiler has the type, and perhaps the processor has the instructions. */
__extension__ typedef _Float16 mt_float16;

union mt_bits16 {
    mt_float16 f;
    uint16_t u;
};

static inline float mt_f16_load(uint16_t half)
{
    union mt_bits16 bits;
    bits.u = half;
    return (float)bits.f;
}

static inline uint16_t mt_f16_store(float value)
{
    union mt_bits16 bits;
    bits.f = (mt_float16)value;
    return bits.u;
}

#else

static inline float mt_f16_load(uint16_t half)
{
    union mt_bits32 bits;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7FFFu;
    if (magnitude >= 0x7C00u) { /* infinity, NaN */
        bits.u = sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13);
    } else if (magnitude >= 0x400u) {
        bits.u = sign | ((magnitude << 13) + 0x38000000u);
    } else { /* subnormal: magnitude * 2^-24 */
        bits.f = (float)magnitude * 5.9604644775390625e-8f;
        bits.u |= sign;
    }
    return bits.f;
}

static inline uint16_t mt_f16_store(float value)
{
    union mt_bits32 bits;
    uint32_t sign, magnitude;
    bits.f = value;
    sign = (bits.u >> 16) & 0x8000u;
    magnitude = bits.u & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the rounded bits */
        bits.u = magnitude;
        bits.f += 0.5f;
        return (uint16_t)(sign | (bits.u - 0x3F000000u));
    }
    magnitude += 0xFFFu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

#endif

static inline float mt_f16_round(float value) { return mt_f16_load(mt_f16_store(value)); }
static inline float mt_bf16_round(float value) { return mt_bf16_load(mt_bf16_store(value)); }

#ifdef __cplusplus
}
#endif

#endif
