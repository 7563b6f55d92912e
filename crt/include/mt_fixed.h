/* Internal to mtool: applications include mtool.h. */
/* gemmlowp's fixed-point arithmetic, as TFLite's softmax uses it: int32 numbers with n integer bits.
 *
 * Source: gemmlowp/fixedpoint/fixedpoint.h. Portable C99; 64-bit products. */
#ifndef MT_FIXED_H
#define MT_FIXED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a * b / 2^31, rounded, ties up. */
static inline int32_t mt_fixed_product(int32_t a, int32_t b)
{
    return (int32_t)(((int64_t)a * b + ((int64_t)1 << 30)) >> 31);
}

/* x / 2^places, rounded, ties away from zero; 0 for more than 31 places. */
static inline int32_t mt_fixed_divide(int32_t x, int32_t places)
{
    if (places > 31)
        return 0;
    const int32_t mask = (int32_t)(((uint32_t)1 << places) - 1u);
    return (x >> places) + ((x & mask) > (mask >> 1) + (x < 0));
}

/* x * 2^places, saturated. */
static inline int32_t mt_fixed_multiply(int32_t x, int32_t places)
{
    const int64_t wide = (int64_t)x * ((int64_t)1 << places);
    return wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : (int32_t)wide;
}

/* Leading zeros of a sum other than 0. */
static inline int32_t mt_fixed_leading_zeros(uint32_t sum)
{
    int32_t zeros = 0;
    for (; !(sum & UINT32_C(0x80000000)); sum <<= 1)
        ++zeros;
    return zeros;
}

/* 1 / (1 + x) for x with 31 fractional bits, 0 <= x < 1: three steps of Newton-Raphson. */
static inline int32_t mt_fixed_reciprocal(int32_t x)
{
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) >> 1);
    int32_t y = 1515870810 + mt_fixed_product(half, -1010580540); /* 48/17 - 32/17 x, with two integer bits */
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = ((int32_t)1 << 29) - mt_fixed_product(half, y);
        y += mt_fixed_multiply(mt_fixed_product(y, error), 2);
    }
    return mt_fixed_multiply(y, 1);
}

#ifdef __cplusplus
}
#endif

#endif
