/* Internal to mtool: applications include mtool.h. */
/* Floating point with the C library's math functions; only the C of models that call them includes it. */
#ifndef MT_FLOAT_H
#define MT_FLOAT_H

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* a*b + c: fused if the hardware has one instruction for it, otherwise rounded twice. */
#ifdef __FP_FAST_FMAF
#define MT_FMA(a, b, c) fmaf((a), (b), (c))
#else
#define MT_FMA(a, b, c) ((a) * (b) + (c))
#endif

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
        return (T)1 / ((T)1 + exp##F(-a));                                                               \
    }                                                                                                    \
    /* log(1 + exp(a)), without overflow; log(1 + e) loses e's last bits, which the quotient restores. */  \
    static inline T mt_softplus_##S(T a)                                                                 \
    {                                                                                                    \
        const T e = exp##F(-fabs##F(a)), sum = (T)1 + e;                                                 \
        const T tail = sum == (T)1 ? e : log##F(sum) * (e / (sum - (T)1));                               \
        return a > 0 ? a + tail : tail;                                                                  \
    }                                                                                                    \
    /* a * tanh(softplus(a)), with one exponential, of a number that is not positive. */                 \
    static inline T mt_mish_##S(T a)                                                                     \
    {                                                                                                    \
        const T e = exp##F(-fabs##F(a));                                                                 \
        const T top = a < 0 ? e * (e + (T)2) : (T)1 + (T)2 * e;                                          \
        return a * (top / (top + (a < 0 ? (T)2 : (T)2 * e * e)));                                        \
    }

MT_LIBM_FUNCTIONS(float, f, f32)
MT_LIBM_FUNCTIONS(double, , f64)

#ifdef __cplusplus
}
#endif

#endif
