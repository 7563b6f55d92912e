/* Internal to mtool: applications include mtool.h. */
/* gemmlowp's logistic function and hyperbolic tangent in 16-bit fixed point, as TFLite's integer LSTM uses them.
 *
 * An argument has `whole` integer bits of its 15 bits; a result has none, so 1 is 32767.
 * Source: gemmlowp/fixedpoint/fixedpoint.h. Portable C99; 32-bit products. */
#ifndef MT_FIXED16_H
#define MT_FIXED16_H

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a * b / 2^15, rounded, ties up: `half` is 2^14. */
static inline int32_t mt_fixed16_product(int32_t a, int32_t b, int32_t half)
{
    return (a * b + half) >> 15;
}

/* 4 / (1 + exp(x)) with two integer bits, for x < 0 with `whole` integer bits, at most 7.
 *
 * The lowest 13 bits stand for -1/4 to 0, for which there is a series; each of the others, if it is 0, for a factor.
 * Then three steps of Newton-Raphson find the quotient. What gemmlowp saturates in between is never out of range. */
static inline int32_t mt_fixed16_share(int32_t x, int32_t whole)
{
    int32_t half = 1 << 14;
#if defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2
    __asm__("" : "+r"(half)); /* in a register: MLA instead of MUL and ADD */
#endif
    const int32_t bits = x * (1 << whole);
    const int32_t a = (bits & ((1 << 13) - 1)) - (1 << 12); /* from -1/8 to 1/8: the series around -1/8 */
    const int32_t a2 = mt_fixed16_product(a, a, half);
    const int32_t a3 = mt_fixed16_product(a2, a, half);
    const int32_t a4 = (a2 * a2 + 81920) >> 17; /* a quarter, rounded twice */
    const int32_t series = (a2 + mt_fixed16_product(a4 + a3, 10923, half) + 1) >> 1;
    int32_t power = 28918 + mt_fixed16_product(a + series, 28918, half);
#define MT_FIXED16_FACTOR(n, factor)                        \
    if (n < whole + 2 && !(bits & ((int32_t)1 << (13 + n)))) \
    power = mt_fixed16_product(power, factor, half)
    MT_FIXED16_FACTOR(0, 25520); /* exp(-1/4) */
    MT_FIXED16_FACTOR(1, 19875);
    MT_FIXED16_FACTOR(2, 12055);
    MT_FIXED16_FACTOR(3, 4435);
    MT_FIXED16_FACTOR(4, 600);
    MT_FIXED16_FACTOR(5, 11);
#undef MT_FIXED16_FACTOR
    if (whole > 4 && bits < -((int32_t)1 << 19)) /* below -16 */
        power = 0;
    const int32_t divisor = half + (power >> 1);
    int32_t y = 23130 + mt_fixed16_product(divisor, -15420, half); /* 48/17 - 32/17 x */
    MT_UNROLL(3)
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = (1 << 13) - mt_fixed16_product(divisor, y, half);
        y += mt_fixed16_product(y, error, half) * 4;
    }
    return y;
}

/* 1 / (1 + exp(-x)), for x with three integer bits. */
static inline int16_t mt_fixed16_logistic(int32_t x)
{
    if (x == 0)
        return 1 << 14;
    const int32_t sign = x >> 31;
    const int32_t result = mt_clamp(mt_fixed16_share(sign - (x ^ sign), 3) * 2, INT16_MIN, INT16_MAX);
    return (int16_t)(result ^ (int32_t)((uint32_t)sign >> 17));
}

/* tanh(x), for x with `whole` integer bits, from 0 to 6. */
static inline int16_t mt_fixed16_tanh(int32_t x, int32_t whole)
{
    if (x == 0)
        return 0;
    const int32_t sign = x >> 31;
    const int32_t share = mt_fixed16_share(sign - (x ^ sign), whole + 1);
    const int32_t result = mt_clamp((share - (1 << 13)) * 4, INT16_MIN, INT16_MAX);
    return (int16_t)((result ^ sign) - sign);
}

#ifdef __cplusplus
}
#endif

#endif
