/* Internal to mtool: applications include mtool.h. */
/* Functions of one or two numbers, for each element type: mt_max_f32, mt_abs_i8, mt_mod_u64, ...
 *
 * Integer arithmetic wraps; division by zero gives 0. NaN gives NaN, as in ONNX. What calls the C library's math
 * functions is in mt_float.h. */
#ifndef MT_SCALAR_H
#define MT_SCALAR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* T: the type. U: an unsigned type at least as wide as int. S: the suffix of the names. */
#define MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                   \
    static inline T mt_max_##S(T a, T b) { return a > b ? a : b; }                                       \
    static inline T mt_min_##S(T a, T b) { return a < b ? a : b; }                                       \
    static inline U mt_power_##S(U base, U left)                                                         \
    {                                                                                                    \
        U power = 1;                                                                                     \
        for (; left; left >>= 1, base *= base)                                                           \
            if (left & 1)                                                                                \
                power *= base;                                                                           \
        return power;                                                                                    \
    }

#define MT_NATURAL_FUNCTIONS(T, U, S)                                                                    \
    MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                       \
    static inline T mt_pow_##S(T a, T b) { return (T)mt_power_##S((U)a, (U)b); }                         \
    static inline T mt_abs_##S(T a) { return a; }                                                        \
    static inline T mt_sign_##S(T a) { return a > 0; }                                                   \
    static inline T mt_div_##S(T a, T b) { return (T)(b == 0 ? 0 : a / b); }                             \
    static inline T mt_mod_##S(T a, T b) { return (T)(b == 0 ? 0 : a % b); }                             \
    static inline T mt_fmod_##S(T a, T b) { return (T)(b == 0 ? 0 : a % b); }                            \
    static inline T mt_shl_##S(T a, T b) { return (T)(b < 8 * sizeof(T) ? (U)a << b : 0); }              \
    static inline T mt_shr_##S(T a, T b) { return (T)(b < 8 * sizeof(T) ? (U)a >> b : 0); }

/* mod has the sign of the divisor (as in Python), fmod that of the dividend (as in C). */
#define MT_INTEGER_FUNCTIONS(T, U, S)                                                                    \
    MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                       \
    /* A negative exponent gives a fraction, except for the bases 1 and -1: truncated, it is 0. */        \
    static inline T mt_pow_##S(T a, T b)                                                                 \
    {                                                                                                    \
        if (b < 0 && a != 1 && a != -1)                                                                  \
            return 0;                                                                                    \
        return (T)mt_power_##S((U)a, (U)b);                                                              \
    }                                                                                                    \
    static inline T mt_abs_##S(T a) { return (T)(a < 0 ? 0u - (U)a : (U)a); }                            \
    static inline T mt_sign_##S(T a) { return (T)((a > 0) - (a < 0)); }                                  \
    static inline T mt_div_##S(T a, T b) { return (T)(b == 0 ? 0u : b == -1 ? 0u - (U)a : (U)(a / b)); } \
    static inline T mt_fmod_##S(T a, T b) { return (T)(b == 0 || b == -1 ? 0 : a % b); }                 \
    static inline T mt_shl_##S(T a, T b) { return (T)((U)b < 8 * sizeof(T) ? (U)a << b : 0); }           \
    static inline T mt_shr_##S(T a, T b) { return (T)(a >> ((U)b < 8 * sizeof(T) ? b : 8 * (T)sizeof(T) - 1)); }\
    static inline T mt_mod_##S(T a, T b)                                                                 \
    {                                                                                                    \
        T rest = mt_fmod_##S(a, b);                                                                      \
        return (T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);                                \
    }

#define MT_FLOAT_FUNCTIONS(T, S)                                                                         \
    static inline T mt_max_##S(T a, T b) { return a >= b || a != a ? a : b; }                            \
    static inline T mt_min_##S(T a, T b) { return a <= b || a != a ? a : b; }                            \
    static inline T mt_sign_##S(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }

MT_NATURAL_FUNCTIONS(uint8_t, uint32_t, u8)
MT_NATURAL_FUNCTIONS(uint16_t, uint32_t, u16)
MT_NATURAL_FUNCTIONS(uint32_t, uint32_t, u32)
MT_NATURAL_FUNCTIONS(uint64_t, uint64_t, u64)
MT_INTEGER_FUNCTIONS(int8_t, uint32_t, i8)
MT_INTEGER_FUNCTIONS(int16_t, uint32_t, i16)
MT_INTEGER_FUNCTIONS(int32_t, uint32_t, i32)
MT_INTEGER_FUNCTIONS(int64_t, uint64_t, i64)
MT_FLOAT_FUNCTIONS(float, f32)
MT_FLOAT_FUNCTIONS(double, f64)

/* A float as an integer, rounded towards zero. Where C leaves this undefined (NaN, out of range), it is the least
 * number of the signed type of that size, as on x86; an unsigned type also converts negative numbers within that
 * signed type. */
#define MT_INTEGER_FROM(S, F, FS, LEAST)                                                                 \
    static inline int##S##_t mt_i##S##_from_##FS(F a)                                                    \
    {                                                                                                    \
        return a >= (F)LEAST && a < -(F)LEAST ? (int##S##_t)a : INT##S##_MIN;                            \
    }                                                                                                    \
    static inline uint##S##_t mt_u##S##_from_##FS(F a)                                                   \
    {                                                                                                    \
        return a > (F)-1 && a < -2 * (F)LEAST ? (uint##S##_t)a : (uint##S##_t)mt_i##S##_from_##FS(a);          \
    }

MT_INTEGER_FROM(32, float, f32, -2147483648.0)
MT_INTEGER_FROM(64, float, f32, -9223372036854775808.0)
MT_INTEGER_FROM(32, double, f64, -2147483648.0)
MT_INTEGER_FROM(64, double, f64, -9223372036854775808.0)

/* The same bits, as another type of the same size. */
static inline float mt_f32_of_u32(uint32_t bits)
{
    union {
        uint32_t u;
        float f;
    } both;
    both.u = bits;
    return both.f;
}

static inline uint32_t mt_u32_of_f32(float value)
{
    union {
        uint32_t u;
        float f;
    } both;
    both.f = value;
    return both.u;
}

static inline double mt_f64_of_u64(uint64_t bits)
{
    union {
        uint64_t u;
        double f;
    } both;
    both.u = bits;
    return both.f;
}

static inline uint64_t mt_u64_of_f64(double value)
{
    union {
        uint64_t u;
        double f;
    } both;
    both.f = value;
    return both.u;
}

#ifdef __cplusplus
}
#endif

#endif
