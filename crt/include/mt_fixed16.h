/* Internal to mtool: applications include mtool.h. */
/* gemmlowp's logistic function and hyperbolic tangent in 16-bit fixed point, as TFLite's integer LSTM uses them.
 *
 * An argument has `whole` integer bits of its 15 bits; a result has none, so 1 is 32767.
 * Source: gemmlowp/fixedpoint/fixedpoint.h. Portable C99; 32-bit products. */
#ifndef MT_FIXED16_H
#define MT_FIXED16_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a * b / 2^15, rounded, ties up; a and b are not both -32768. */
static inline int32_t mt_fixed16_product(int32_t a, int32_t b)
{
    return (a * b + (1 << 14)) >> 15;
}

static inline int32_t mt_fixed16_saturated(int32_t x)
{
    return x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x;
}

/* x / 2^places, rounded, ties away from zero. */
static inline int32_t mt_fixed16_divide(int32_t x, int32_t places)
{
    const int32_t mask = (1 << places) - 1;
    return (x >> places) + ((x & mask) > (mask >> 1) + (x < 0));
}

/* exp(x) for x <= 0, with `whole` integer bits, at most 7. */
static inline int32_t mt_fixed16_exp(int32_t x, int32_t whole)
{
    static const int16_t factors[] = {25520, 19875, 12055, 4435, 600, 11, 0}; /* exp(-2^n), n = -2 to 4 */
    const int32_t places = 15 - whole;
    if (x == 0)
        return INT16_MAX;
    if (whole > 5 && x < -(32 * (1 << places)))
        return 0;
    const int32_t quarter = 1 << (places - 2);
    const int32_t rest = (x & (quarter - 1)) - quarter;
    const int32_t a = rest * (1 << whole) + (1 << 12); /* from -1/8 to 1/8: the series around -1/8 */
    const int32_t a2 = mt_fixed16_product(a, a);
    const int32_t a3 = mt_fixed16_product(a2, a);
    const int32_t a4 = mt_fixed16_product(a2, a2);
    const int32_t series = mt_fixed16_divide(mt_fixed16_product(mt_fixed16_divide(a4, 2) + a3, 10923) + a2, 1);
    int32_t result = mt_fixed16_saturated(28918 + mt_fixed16_product(28918, a + series));
    const int32_t left = rest - x;
    for (int32_t n = 0; n < whole + 2 && n < 7; ++n)
        if (left >> (places - 2 + n) & 1)
            result = mt_fixed16_product(result, factors[n]);
    return result;
}

/* 4 / (1 + x) for 0 <= x < 1, with two integer bits: three steps of Newton-Raphson. */
static inline int32_t mt_fixed16_quotient(int32_t x)
{
    const int32_t half = (x + INT16_MAX + 1) >> 1;
    int32_t y = 23130 + mt_fixed16_product(half, -15420); /* 48/17 - 32/17 x */
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = (1 << 13) - mt_fixed16_product(half, y);
        y += mt_fixed16_saturated(mt_fixed16_product(y, error) * 4);
    }
    return y;
}

/* 1 / (1 + exp(-x)), for x with three integer bits. */
static inline int16_t mt_fixed16_logistic(int32_t x)
{
    if (x == 0)
        return 1 << 14;
    const int32_t result = mt_fixed16_saturated(mt_fixed16_quotient(mt_fixed16_exp(x < 0 ? x : -x, 3)) * 2);
    return (int16_t)(x > 0 ? result : INT16_MAX - result);
}

/* tanh(x), for x with `whole` integer bits, from 0 to 6. */
static inline int16_t mt_fixed16_tanh(int32_t x, int32_t whole)
{
    if (x == 0)
        return 0;
    const int32_t quotient = mt_fixed16_quotient(mt_fixed16_exp(x < 0 ? x : -x, whole + 1));
    const int32_t result = mt_fixed16_saturated((quotient - (1 << 13)) * 4);
    return (int16_t)(x > 0 ? result : -result);
}

#ifdef __cplusplus
}
#endif

#endif
