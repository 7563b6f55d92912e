/* Internal to mtool: applications include mtool.h. */
/* Floating point with the C library's math functions; only the C of models that call them includes it. */
#ifndef MT_FLOAT_H
#define MT_FLOAT_H

#include <math.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a*b + c: fused if the hardware has one instruction for it, otherwise rounded twice. */
#ifdef __FP_FAST_FMAF
#define MT_FMA(a, b, c) fmaf((a), (b), (c))
#else
#define MT_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Exponentials and logarithms of floats, inline. The largest error, over all floats, is 1.9 and 2.2 units in the last
 * place with tables of 16 rows, where the hardware fuses products, and 1.4 and 0.9 in integers, on 32-bit cores without
 * an FPU. Elsewhere they are the C library's. */
#if defined(__FP_FAST_FMAF)
#define MT_OWN_EXP_LOG

/* exp(x) = 2^(n / 16) exp(r). */
static inline float mt_exp_usual(float x)
{
    static const uint32_t powers[16] = { /* of 2^(k / 16), less k << 19 */
        0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
        0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d,
    };
    const float places = MT_FMA(x, 23.08312f, 12582912.0f), n = places - 12582912.0f; /* rounded to whole numbers */
    const uint32_t k = mt_u32_of_f32(places);
    const float r = MT_FMA(n, 1.1904090e-10f, MT_FMA(n, -0.0433217f, x));
    const float power = mt_f32_of_u32(powers[k & 15] + (k << 19));
    return MT_FMA(power, MT_FMA(r * r, MT_FMA(r, 0.16667038f, 0.5000165f), r), power);
}

/* log(x) = e log(2) - log(c) + log(1 + r), where x = m 2^e and r = c m - 1. */
static inline float mt_log_usual(float x)
{
    static const float parts[16][2] = { /* c, -log(c) */
        {1.3991581f, -0.3358707f}, {1.3400596f, -0.29271412f}, {1.2865453f, -0.25196055f}, {1.236972f, -0.21266644f},
        {1.1908499f, -0.17466725f}, {1.1479026f, -0.13793646f}, {1.1081334f, -0.10267701f}, {1.0713822f, -0.06894956f},
        {1.0363605f, -0.03571506f}, {1.0f, 0.0f}, {0.94808525f, 0.053310856f}, {0.8950551f, 0.11086998f},
        {0.8477693f, 0.16514671f}, {0.8048529f, 0.21709575f}, {0.7666198f, 0.2657643f}, {0.7313842f, 0.31281635f},
    };
    const uint32_t bits = mt_u32_of_f32(x), above = bits - 0x3f330000u;
    const int32_t e = (int32_t)above >> 23;
    const float *const part = parts[above >> 19 & 15];
    const float r = MT_FMA(mt_f32_of_u32(bits - ((uint32_t)e << 23)), part[0], -1.0f);
    const float base = MT_FMA((float)e, 0.6931472f, part[1]);
    return MT_FMA(r * r, MT_FMA(r, MT_FMA(r, -0.2501658f, 0.33347964f), -0.49999997f), base + r);
}

#elif defined(__GNUC__) && \
        ((defined(__ARM_ARCH) && !defined(__ARM_FP)) || (defined(__riscv) && !defined(__riscv_flen)))
#define MT_OWN_EXP_LOG

/* exp(x) = 2^n 2^f; f has 32 fractional bits, the polynomial 30. */
static inline float mt_exp_usual(float x)
{
    static const uint32_t factors[6] = {1335701, 10392576, 59574785, 257944823, 744260907, 1073741826};
    const uint32_t bits = mt_u32_of_f32(x), shift = 149u - (bits >> 23 & 255);
    const int64_t size = (int64_t)((uint64_t)((bits & 0x7fffff) | 0x800000) * 3098164009u >> (shift < 63 ? shift : 63));
    const int64_t place = bits >> 31 ? -size : size;
    const uint32_t f = (uint32_t)place;
    uint32_t sum = 233026;
    for (int n = 0; n < 6; ++n)
        sum = (uint32_t)((uint64_t)sum * f >> 32) + factors[n];
    return mt_f32_of_u32(((uint32_t)((int32_t)(place >> 32) + 126) << 23) + ((sum + 64) >> 7));
}

/* log(x) = e log(2) + f P(f), where x = (1 + f) 2^e; f has 32 fractional bits, the polynomial 30. */
static inline float mt_log_usual(float x)
{
    static const int32_t factors[9] = {139792056, -141865595, 152049591, -178352190, 214782796, -268452324, 357913609,
                                       -536870787, 1073741825};
    const uint32_t bits = mt_u32_of_f32(x), m = (bits & 0x7fffff) | 0x800000, is_high = m > 0xb504f3;
    const int32_t f = (int32_t)(m << (9 - is_high)), e = (int32_t)(bits >> 23) - 127 + (int32_t)is_high;
    int32_t sum = -84082715;
    for (int n = 0; n < 9; ++n)
        sum = (int32_t)((int64_t)sum * f >> 32) + factors[n];
    const int64_t result = ((int64_t)f * sum >> 7) + (int64_t)((uint64_t)((int64_t)e * 1488522236) << 24); /* 55 bits */
    uint64_t size = (uint64_t)(result < 0 ? -result : result);
    uint32_t exponent = 127u - 55 + 63 - 1;
    if (!size)
        return 0;
    if (!(size >> 32)) {
        size <<= 32;
        exponent -= 32;
    }
    const int places = __builtin_clz((unsigned)(size >> 32));
    const uint32_t high = (uint32_t)(size << places >> 32);
    const uint32_t rounded = ((exponent - (uint32_t)places) << 23) + (high >> 8) + (high >> 7 & 1);
    return mt_f32_of_u32(rounded | (result < 0 ? 0x80000000u : 0));
}

#endif

#ifdef MT_OWN_EXP_LOG

static MT_COLD float mt_exp_seldom(float x)
{
    if (x > 89)
        return INFINITY;
    if (x > 0)
        return mt_exp_usual(x - 2) * 7.389056f;
    return x < -104 ? 0 : x < 0 ? mt_exp_usual(x + 44) * 7.7811323e-20f : x;
}

static MT_COLD float mt_log_seldom(float x)
{
    if (x > 0)
        return x < 1 ? mt_log_usual(x * 8388608.0f) - 15.942385f : x;
    return x == 0 ? -INFINITY : NAN;
}

static inline float mt_exp_f32(float x)
{
    return MT_SELDOM((mt_u32_of_f32(x) & 0x7fffffff) > 0x42ae0000) ? mt_exp_seldom(x) : mt_exp_usual(x);
}

static inline float mt_log_f32(float x)
{
    return MT_SELDOM(mt_u32_of_f32(x) - 0x00800000 >= 0x7f000000) ? mt_log_seldom(x) : mt_log_usual(x);
}

#else
#define mt_exp_f32 expf
#define mt_log_f32 logf
#endif
#define mt_exp_f64 exp
#define mt_log_f64 log

#define MT_LIBM_FUNCTIONS(T, F, S)                                                                      \
    static inline T mt_abs_##S(T a) { return fabs##F(a); }                                               \
    static inline T mt_fmod_##S(T a, T b) { return fmod##F(a, b); }                                      \
    static inline T mt_mod_##S(T a, T b)                                                                 \
    {                                                                                                    \
        T rest = fmod##F(a, b);                                                                          \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                                     \
    }                                                                                                    \
    static inline T mt_sigmoid_##S(T a)                                                                  \
    {                                                                                                    \
        return (T)1 / ((T)1 + mt_exp_##S(-a));                                                               \
    }                                                                                                    \
    /* log(1 + exp(a)), without overflow; log(1 + e) loses e's last bits, which the quotient restores. */  \
    static inline T mt_softplus_##S(T a)                                                                 \
    {                                                                                                    \
        const T e = mt_exp_##S(-fabs##F(a)), sum = (T)1 + e;                                                 \
        const T tail = sum == (T)1 ? e : mt_log_##S(sum) * (e / (sum - (T)1));                               \
        return a > 0 ? a + tail : tail;                                                                  \
    }                                                                                                    \
    /* a * tanh(softplus(a)), with one exponential, of a number that is not positive. */                 \
    static inline T mt_mish_##S(T a)                                                                     \
    {                                                                                                    \
        const T e = mt_exp_##S(-fabs##F(a));                                                                 \
        const T top = a < 0 ? e * (e + (T)2) : (T)1 + (T)2 * e;                                          \
        return a * (top / (top + (a < 0 ? (T)2 : (T)2 * e * e)));                                        \
    }

MT_LIBM_FUNCTIONS(float, f, f32)
MT_LIBM_FUNCTIONS(double, , f64)

#ifdef __cplusplus
}
#endif

#endif
