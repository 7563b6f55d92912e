/* Internal to mtool: applications include mtool.h. */
/* Complex numbers for fast Fourier transforms, with the arithmetic of KISS FFT (Mark Borgerding, BSD-3-Clause), which
 * TensorFlow Lite Micro's Signal library uses.
 *
 * Fixed-point numbers have 15 or 31 fractional bits. Products are rounded to that, ties upwards; a stage with p
 * parts first multiplies by 1/p, the `share`. Sums wrap. */
#ifndef MT_FFT_H
#define MT_FFT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* T: an integer type; U: an unsigned one, at least as wide; WIDE: for products; S: the suffix; BITS: fractional
 * bits. */
#define MT_FFT_FIXED(T, U, WIDE, S, BITS)                                                                \
    struct mt_complex_##S {                                                                              \
        T r, i;                                                                                          \
    };                                                                                                   \
    static inline T mt_fft_rounded_##S(WIDE x)                                                           \
    {                                                                                                    \
        return (T)((x + ((WIDE)1 << (BITS - 1))) >> BITS);                                               \
    }                                                                                                    \
    static inline T mt_fft_times_##S(T a, T b)                                                           \
    {                                                                                                    \
        return mt_fft_rounded_##S((WIDE)a * b);                                                          \
    }                                                                                                    \
    static inline T mt_fft_plus_##S(T a, T b)                                                            \
    {                                                                                                    \
        return (T)((U)a + (U)b);                                                                         \
    }                                                                                                    \
    static inline T mt_fft_minus_##S(T a, T b)                                                           \
    {                                                                                                    \
        return (T)((U)a - (U)b);                                                                         \
    }                                                                                                    \
    /* Half of a sum, and of a difference; 16-bit ones are halved before they are truncated. */          \
    static inline T mt_fft_half_plus_##S(T a, T b)                                                       \
    {                                                                                                    \
        return (T)((int32_t)((U)a + (U)b) >> 1);                                                         \
    }                                                                                                    \
    static inline T mt_fft_half_minus_##S(T a, T b)                                                      \
    {                                                                                                    \
        return (T)((int32_t)((U)a - (U)b) >> 1);                                                         \
    }                                                                                                    \
    static inline struct mt_complex_##S mt_fft_product_##S(struct mt_complex_##S a, struct mt_complex_##S b) \
    {                                                                                                    \
        struct mt_complex_##S c;                                                                         \
        c.r = mt_fft_rounded_##S((WIDE)a.r * b.r - (WIDE)a.i * b.i);                                     \
        c.i = mt_fft_rounded_##S((WIDE)a.r * b.i + (WIDE)a.i * b.r);                                     \
        return c;                                                                                        \
    }

#define MT_FFT_COMPLEX(T, S)                                                                             \
    static inline struct mt_complex_##S mt_fft_sum_##S(struct mt_complex_##S a, struct mt_complex_##S b) \
    {                                                                                                    \
        a.r = mt_fft_plus_##S(a.r, b.r);                                                                 \
        a.i = mt_fft_plus_##S(a.i, b.i);                                                                 \
        return a;                                                                                        \
    }                                                                                                    \
    static inline struct mt_complex_##S mt_fft_difference_##S(struct mt_complex_##S a, struct mt_complex_##S b) \
    {                                                                                                    \
        a.r = mt_fft_minus_##S(a.r, b.r);                                                                \
        a.i = mt_fft_minus_##S(a.i, b.i);                                                                \
        return a;                                                                                        \
    }                                                                                                    \
    static inline struct mt_complex_##S mt_fft_scaled_##S(struct mt_complex_##S a, T by)                 \
    {                                                                                                    \
        a.r = mt_fft_times_##S(a.r, by);                                                                 \
        a.i = mt_fft_times_##S(a.i, by);                                                                 \
        return a;                                                                                        \
    }                                                                                                    \
    static inline struct mt_complex_##S mt_fft_conjugate_##S(struct mt_complex_##S a)                    \
    {                                                                                                    \
        a.i = mt_fft_minus_##S(0, a.i);                                                                  \
        return a;                                                                                        \
    }                                                                                                    \
    static inline struct mt_complex_##S mt_fft_turned_##S(struct mt_complex_##S a) /* by i */            \
    {                                                                                                    \
        struct mt_complex_##S b;                                                                         \
        b.r = mt_fft_minus_##S(0, a.i);                                                                  \
        b.i = a.r;                                                                                       \
        return b;                                                                                        \
    }

MT_FFT_FIXED(int16_t, uint32_t, int32_t, i16, 15)
MT_FFT_FIXED(int32_t, uint32_t, int64_t, i32, 31)

struct mt_complex_f32 {
    float r, i;
};

static inline float mt_fft_times_f32(float a, float b)
{
    return a * b;
}

static inline float mt_fft_plus_f32(float a, float b)
{
    return a + b;
}

static inline float mt_fft_minus_f32(float a, float b)
{
    return a - b;
}

static inline float mt_fft_half_plus_f32(float a, float b)
{
    return (a + b) * 0.5f;
}

static inline float mt_fft_half_minus_f32(float a, float b)
{
    return (a - b) * 0.5f;
}

static inline struct mt_complex_f32 mt_fft_product_f32(struct mt_complex_f32 a, struct mt_complex_f32 b)
{
    struct mt_complex_f32 c;
    c.r = a.r * b.r - a.i * b.i;
    c.i = a.r * b.i + a.i * b.r;
    return c;
}

MT_FFT_COMPLEX(int16_t, i16)
MT_FFT_COMPLEX(int32_t, i32)
MT_FFT_COMPLEX(float, f32)

#ifdef __cplusplus
}
#endif

#endif
