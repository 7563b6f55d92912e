/* Internal to mtool: applications include mtool.h. */
/* Quotients, inverse roots and logarithms in gemmlowp's fixed point, as TFLite's reference kernels compute them.
 *
 * Source: tensorflow/lite/kernels/internal/common.h. Portable C99; 64-bit products.
 */
#ifndef MT_FIXED_FUNCTIONS_H
#define MT_FIXED_FUNCTIONS_H

#include "mt_fixed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x * by / 2^31 * 2^exponent, rounded twice; 0 <= by. */
static inline int32_t mt_fixed_scale(int32_t x, int32_t by, int32_t exponent)
{
    if (exponent > 0)
        return mt_fixed_product((int32_t)((uint32_t)x << exponent), by);
    return mt_fixed_divide(mt_fixed_product(x, by), -exponent);
}

/* a / b * by / 2^31 * 2^exponent, rounded at each step; 0 / 0 is 0, and other divisions by 0 saturate. */
static inline int32_t mt_fixed_quotient(int32_t a, int32_t b, int32_t by, int32_t exponent)
{
    if (b == 0)
        return a > 0 ? INT32_MAX / 2 : a < 0 ? -(INT32_MAX / 2) : 0;
    a = b < 0 ? -a : a;
    b = b < 0 ? -b : b;
    const int32_t zeros = mt_fixed_leading_zeros((uint32_t)b);
    const int32_t inverse = mt_fixed_reciprocal((int32_t)(((uint32_t)b << zeros) - UINT32_C(0x80000000)));
    const int32_t room = a == 0 || a == -1 ? 31 : mt_fixed_leading_zeros((uint32_t)(a < 0 ? ~a : a)) - 1;
    const int32_t quotient = mt_fixed_product((int32_t)((uint32_t)a << room), inverse);
    return mt_fixed_divide(mt_fixed_product(quotient, by), 31 - zeros + room - exponent);
}

/* 1 / sqrt(x) as a multiplier with 31 fractional bits and an exponent of 2: five steps of Newton-Raphson. */
static inline int32_t mt_fixed_inverse_root(int32_t x, int32_t *exponent)
{
    *exponent = 0;
    if (x <= 1)
        return INT32_MAX;
    int32_t shift = 11;
    for (; x >= (int32_t)1 << 29; x /= 4)
        ++shift;
    const int32_t pairs = (mt_fixed_leading_zeros((uint32_t)x) - 1) / 2 - 1;
    shift -= pairs;
    const int32_t half = ((int32_t)((uint32_t)x << (2 * pairs) >> 1) + 1) >> 1;
    int32_t y = (int32_t)1 << 28; /* three integer bits */
    for (int32_t i = 0; i < 5; ++i) {
        const int32_t cube = mt_fixed_multiply(mt_fixed_product(mt_fixed_product(y, y), y), 6);
        y = mt_fixed_multiply(mt_fixed_product(((int32_t)3 << 27), y) - mt_fixed_product(half, cube), 3);
    }
    y = mt_fixed_product(y, 1518500250); /* sqrt(1/2) */
    if (shift < 0)
        return (int32_t)((uint32_t)y << -shift);
    *exponent = -shift;
    return y;
}

/* log(x) for x >= 1 with 12 integer bits; the result has 5. */
static inline int32_t mt_fixed_log(int32_t x)
{
    const int32_t root = 1518500250, fourth_root = 1805811301; /* of 1/2 */
    const int32_t quarter = (int32_t)1 << 23;                  /* six integer bits */
    const int32_t zeros = mt_fixed_leading_zeros((uint32_t)x);
    const int32_t near = mt_fixed_product((int32_t)((uint32_t)x << (zeros - 1)), root);
    const int32_t room = mt_fixed_leading_zeros((uint32_t)mt_fixed_product(x, root)) - 1;
    const int32_t first = mt_fixed_multiply(near, 1), second = mt_fixed_multiply(x, room);
    const int32_t first_power = (12 - zeros) * ((int32_t)1 << 25) + quarter;
    const int32_t second_power = (12 - room) * ((int32_t)1 << 25) - quarter;
    const int32_t r = first < second ? first : second;
    const int32_t power = first_power > second_power ? first_power : second_power;
    const int32_t p = (int32_t)(((int64_t)r + fourth_root + 1) / 2);
    const int32_t q = 2 * (r - fourth_root);
    const int32_t square = mt_fixed_product(q, q);
    const int32_t numerator = mt_fixed_product(q, r) + mt_fixed_product(mt_fixed_product(q, square), 117049297);
    const int32_t slope = 1057819769 + q + mt_fixed_product(127690142, square);
    const int32_t inverse = mt_fixed_reciprocal(mt_fixed_product(p, slope) + mt_fixed_product(638450708, q));
    const int32_t rest = mt_fixed_product(mt_fixed_divide(numerator, 6), inverse);
    return mt_fixed_multiply(mt_fixed_product(power, 1488522236) + rest, 1); /* log(2) */
}

#ifdef __cplusplus
}
#endif

#endif
