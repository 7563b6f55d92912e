/* Functions of one or two numbers, one for each element type: mt_max_f32, mt_abs_i8, mt_mod_u64, ...
 *
 * Integer arithmetic wraps; division by zero gives 0. NaN in gives NaN out, as in ONNX. */
#ifndef MT_SCALAR_H
#define MT_SCALAR_H

#include <math.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* T: the type. U: an unsigned type at least as wide as int. S: the suffix of the names. */
#define MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                   \
    static inline T mt_max_##S(T a, T b) { return a > b ? a : b; }                                       \
    static inline T mt_min_##S(T a, T b) { return a < b ? a : b; }                                       \
    static inline T mt_pow_##S(T a, T b)                                                                 \
    {                                                                                                    \
        U power = 1, base = (U)a, left = (U)b;                                                           \
        for (; left; left >>= 1, base *= base)                                                           \
            if (left & 1)                                                                                \
                power *= base;                                                                           \
        return (T)power;                                                                                 \
    }

#define MT_NATURAL_FUNCTIONS(T, U, S)                                                                    \
    MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                       \
    static inline T mt_abs_##S(T a) { return a; }                                                        \
    static inline T mt_sign_##S(T a) { return a > 0; }                                                   \
    static inline T mt_div_##S(T a, T b) { return (T)(b == 0 ? 0 : a / b); }                             \
    static inline T mt_mod_##S(T a, T b) { return (T)(b == 0 ? 0 : a % b); }                             \
    static inline T mt_fmod_##S(T a, T b) { return (T)(b == 0 ? 0 : a % b); }                            \
    static inline T mt_shl_##S(T a, T b) { return (T)(b < 8 * sizeof(T) ? (U)a << b : 0); }              \
    static inline T mt_shr_##S(T a, T b) { return (T)(b < 8 * sizeof(T) ? (U)a >> b : 0); }

/* mod has the sign of its divisor (Python), fmod that of its dividend (C). */
#define MT_INTEGER_FUNCTIONS(T, U, S)                                                                    \
    MT_UNSIGNED_FUNCTIONS(T, U, S)                                                                       \
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

#define MT_FLOAT_FUNCTIONS(T, F, S)                                                                      \
    static inline T mt_max_##S(T a, T b) { return a >= b || a != a ? a : b; }                            \
    static inline T mt_min_##S(T a, T b) { return a <= b || a != a ? a : b; }                            \
    static inline T mt_abs_##S(T a) { return fabs##F(a); }                                               \
    static inline T mt_sign_##S(T a) { return a != a ? a : (T)((a > 0) - (a < 0)); }                     \
    static inline T mt_fmod_##S(T a, T b) { return fmod##F(a, b); }                                      \
    static inline T mt_mod_##S(T a, T b)                                                                 \
    {                                                                                                    \
        T rest = fmod##F(a, b);                                                                          \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                                     \
    }                                                                                                    \
    static inline T mt_sigmoid_##S(T a)                                                                  \
    {                                                                                                    \
        return (T)1 / ((T)1 + exp##F(-a));                                                               \
    }                                                                                                    \
    /* log(1 + exp(a)), without overflow; log(1 + e) loses e's last bits, which the quotient gives back. */\
    static inline T mt_softplus_##S(T a)                                                                 \
    {                                                                                                    \
        const T e = exp##F(-fabs##F(a)), sum = (T)1 + e;                                                 \
        const T tail = sum == (T)1 ? e : log##F(sum) * (e / (sum - (T)1));                               \
        return a > 0 ? a + tail : tail;                                                                  \
    }                                                                                                    \
    /* a * tanh(softplus(a)), by one exponential of what is not positive. */                             \
    static inline T mt_mish_##S(T a)                                                                     \
    {                                                                                                    \
        const T e = exp##F(-fabs##F(a));                                                                 \
        const T top = a < 0 ? e * (e + (T)2) : (T)1 + (T)2 * e;                                          \
        return a * (top / (top + (a < 0 ? (T)2 : (T)2 * e * e)));                                        \
    }

MT_NATURAL_FUNCTIONS(uint8_t, uint32_t, u8)
MT_NATURAL_FUNCTIONS(uint16_t, uint32_t, u16)
MT_NATURAL_FUNCTIONS(uint32_t, uint32_t, u32)
MT_NATURAL_FUNCTIONS(uint64_t, uint64_t, u64)
MT_INTEGER_FUNCTIONS(int8_t, uint32_t, i8)
MT_INTEGER_FUNCTIONS(int16_t, uint32_t, i16)
MT_INTEGER_FUNCTIONS(int32_t, uint32_t, i32)
MT_INTEGER_FUNCTIONS(int64_t, uint64_t, i64)
MT_FLOAT_FUNCTIONS(float, f, f32)
MT_FLOAT_FUNCTIONS(double, , f64)

/* The same bits as another type of the same size. */
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
