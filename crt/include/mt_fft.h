/* Internal to mtool: applications include mtool.h. */
/* Complex numbers for fast Fourier transforms, with the arithmetic of KISS FFT (Mark Borgerding, BSD-3-Clause), which
 * TensorFlow Lite Micro's Signal library uses.
 *
 * Fixed-point numbers have 15 or 31 fractional bits. Products are rounded to that, ties upwards; a stage with p
 * parts first multiplies by 1/p, the `share`. Sums wrap.
 *
 * mt_fft_S is a number in registers, struct mt_complex_S one in memory. Without SIMD32, 16 bits are an int in
 * registers, which wraps when it is stored, before it is a factor of a `product`, and behind that. */
#ifndef MT_FFT_H
#define MT_FFT_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_FFT_SAME(T, S)                                                                                \
    struct mt_complex_##S {                                                                              \
        T r, i;                                                                                          \
    };                                                                                                   \
    typedef struct mt_complex_##S mt_fft_##S;                                                            \
    static inline mt_fft_##S mt_fft_get_##S(const struct mt_complex_##S *from)                           \
    {                                                                                                    \
        return *from;                                                                                    \
    }                                                                                                    \
    static inline void mt_fft_put_##S(struct mt_complex_##S *to, mt_fft_##S a)                           \
    {                                                                                                    \
        *to = a;                                                                                         \
    }

/* T: an integer type; U: an unsigned one, at least as wide; WIDE: for products; S: the suffix; BITS: fractional
 * bits. */
#define MT_FFT_FIXED(T, U, WIDE, S, BITS)                                                                \
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
    }

/* M: the type of parts, which wrap to it. */
#define MT_FFT_PRODUCT(NAME, M, WIDE, S)                                                                 \
    static inline mt_fft_##S mt_fft_##NAME##_##S(mt_fft_##S a, mt_fft_##S b)                             \
    {                                                                                                    \
        mt_fft_##S c;                                                                                    \
        c.r = (M)mt_fft_rounded_##S((WIDE)a.r * b.r - (WIDE)a.i * b.i);                                  \
        c.i = (M)mt_fft_rounded_##S((WIDE)a.r * b.i + (WIDE)a.i * b.r);                                  \
        return c;                                                                                        \
    }

#define MT_FFT_COMPLEX(T, M, S)                                                                          \
    static inline mt_fft_##S mt_fft_sum_##S(mt_fft_##S a, mt_fft_##S b)                                  \
    {                                                                                                    \
        a.r = mt_fft_plus_##S(a.r, b.r);                                                                 \
        a.i = mt_fft_plus_##S(a.i, b.i);                                                                 \
        return a;                                                                                        \
    }                                                                                                    \
    static inline mt_fft_##S mt_fft_difference_##S(mt_fft_##S a, mt_fft_##S b)                           \
    {                                                                                                    \
        a.r = mt_fft_minus_##S(a.r, b.r);                                                                \
        a.i = mt_fft_minus_##S(a.i, b.i);                                                                \
        return a;                                                                                        \
    }                                                                                                    \
    static inline mt_fft_##S mt_fft_scaled_##S(mt_fft_##S a, T by)                                       \
    {                                                                                                    \
        a.r = mt_fft_times_##S(a.r, by);                                                                 \
        a.i = mt_fft_times_##S(a.i, by);                                                                 \
        return a;                                                                                        \
    }                                                                                                    \
    static inline mt_fft_##S mt_fft_conjugate_##S(mt_fft_##S a)                                          \
    {                                                                                                    \
        a.i = (M)mt_fft_minus_##S(0, a.i);                                                               \
        return a;                                                                                        \
    }                                                                                                    \
    /* a + i b, and a - i b. */                                                                          \
    static inline mt_fft_##S mt_fft_sum_turned_##S(mt_fft_##S a, mt_fft_##S b)                           \
    {                                                                                                    \
        a.r = mt_fft_minus_##S(a.r, b.i);                                                                \
        a.i = mt_fft_plus_##S(a.i, b.r);                                                                 \
        return a;                                                                                        \
    }                                                                                                    \
    static inline mt_fft_##S mt_fft_difference_turned_##S(mt_fft_##S a, mt_fft_##S b)                    \
    {                                                                                                    \
        a.r = mt_fft_plus_##S(a.r, b.i);                                                                 \
        a.i = mt_fft_minus_##S(a.i, b.r);                                                                \
        return a;                                                                                        \
    }                                                                                                    \
    /* (a + b) / 2, and the conjugate of (a - b) / 2. */                                                 \
    static inline mt_fft_##S mt_fft_half_sum_##S(mt_fft_##S a, mt_fft_##S b)                             \
    {                                                                                                    \
        a.r = mt_fft_half_plus_##S(a.r, b.r);                                                            \
        a.i = mt_fft_half_plus_##S(a.i, b.i);                                                            \
        return a;                                                                                        \
    }                                                                                                    \
    static inline mt_fft_##S mt_fft_half_mirrored_##S(mt_fft_##S a, mt_fft_##S b)                        \
    {                                                                                                    \
        a.r = mt_fft_half_minus_##S(a.r, b.r);                                                           \
        a.i = mt_fft_half_minus_##S(b.i, a.i);                                                           \
        return a;                                                                                        \
    }

MT_FFT_SAME(int32_t, i32)
MT_FFT_FIXED(int32_t, uint32_t, int64_t, i32, 31)
MT_FFT_PRODUCT(product, int32_t, int64_t, i32)
#define mt_fft_small_product_i32 mt_fft_product_i32
#define mt_fft_shared_i32 mt_fft_scaled_i32
MT_FFT_COMPLEX(int32_t, int32_t, i32)

MT_FFT_SAME(float, f32)

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

static inline mt_fft_f32 mt_fft_product_f32(mt_fft_f32 a, mt_fft_f32 b)
{
    mt_fft_f32 c;
    c.r = a.r * b.r - a.i * b.i;
    c.i = a.r * b.i + a.i * b.r;
    return c;
}

#define mt_fft_small_product_f32 mt_fft_product_f32
MT_FFT_COMPLEX(float, float, f32)

#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP) && !defined(MT_PORTABLE)

/* SIMD32: a number is a word, the imaginary part above the real one. */
MT_FFT_SAME(int16_t, i16)
MT_FFT_FIXED(int16_t, uint32_t, int32_t, i16, 15)
#define mt_fft_small_product_i16 mt_fft_product_i16

static inline uint32_t mt_fft_word(mt_fft_i16 a)
{
    uint32_t word;
    memcpy(&word, &a, sizeof(word));
    return word;
}

static inline mt_fft_i16 mt_fft_of_word(uint32_t word)
{
    mt_fft_i16 a;
    memcpy(&a, &word, sizeof(word));
    return a;
}

#define MT_FFT_SIMD(NAME, INSTRUCTION)                                                                  \
    static inline mt_fft_i16 mt_fft_##NAME##_i16(mt_fft_i16 a, mt_fft_i16 b) \
    {                                                                                                   \
        uint32_t c;                                                                                     \
        __asm__(INSTRUCTION " %0, %1, %2" : "=r"(c) : "r"(mt_fft_word(a)), "r"(mt_fft_word(b)));        \
        return mt_fft_of_word(c);                                                                       \
    }

MT_FFT_SIMD(sum, "sadd16")
MT_FFT_SIMD(difference, "ssub16")
MT_FFT_SIMD(sum_turned, "sasx")
MT_FFT_SIMD(difference_turned, "ssax")
MT_FFT_SIMD(half_sum, "shadd16")
MT_FFT_SIMD(half_difference, "shsub16")

/* The upper half of one number, and the lower half of another. */
static inline mt_fft_i16 mt_fft_halves(mt_fft_i16 upper, mt_fft_i16 lower)
{
    uint32_t c;
    __asm__("pkhtb %0, %1, %2" : "=r"(c) : "r"(mt_fft_word(upper)), "r"(mt_fft_word(lower)));
    return mt_fft_of_word(c);
}

static inline mt_fft_i16 mt_fft_half_mirrored_i16(mt_fft_i16 a, mt_fft_i16 b)
{
    return mt_fft_halves(mt_fft_half_difference_i16(b, a), mt_fft_half_difference_i16(a, b));
}

static inline mt_fft_i16 mt_fft_conjugate_i16(mt_fft_i16 a)
{
    return mt_fft_halves(mt_fft_difference_i16(mt_fft_of_word(0), a), a);
}

static inline mt_fft_i16 mt_fft_product_i16(mt_fft_i16 a, mt_fft_i16 b)
{
    const uint32_t x = mt_fft_word(a), y = mt_fft_word(b), half = (uint32_t)1 << 14;
    uint32_t r, i, c;
    __asm__("smlsd %0, %1, %2, %3" : "=r"(r) : "r"(x), "r"(y), "r"(half));
    __asm__("smladx %0, %1, %2, %3" : "=r"(i) : "r"(x), "r"(y), "r"(half));
    __asm__("pkhtb %0, %1, %2, asr #15" : "=r"(c) : "r"(i << 1), "r"(r));
    return mt_fft_of_word(c);
}

static inline mt_fft_i16 mt_fft_scaled_i16(mt_fft_i16 a, int16_t by)
{
    const uint32_t x = mt_fft_word(a), y = (uint32_t)(int32_t)by, half = (uint32_t)1 << 14;
    uint32_t r, i, c;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(r) : "r"(x), "r"(y), "r"(half));
    __asm__("smlatb %0, %1, %2, %3" : "=r"(i) : "r"(x), "r"(y), "r"(half));
    __asm__("pkhtb %0, %1, %2, asr #15" : "=r"(c) : "r"(i << 1), "r"(r));
    return mt_fft_of_word(c);
}

/* The same with a share: twice it has 16 bits too. */
static inline mt_fft_i16 mt_fft_shared_i16(mt_fft_i16 a, int16_t by)
{
    const uint32_t x = mt_fft_word(a), y = 2 * (uint32_t)by, half = (uint32_t)1 << 15;
    uint32_t r, i, c;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(r) : "r"(x), "r"(y), "r"(half));
    __asm__("smlatb %0, %1, %2, %3" : "=r"(i) : "r"(x), "r"(y), "r"(half));
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(c) : "r"(i), "r"(r));
    return mt_fft_of_word(c);
}

#else

struct mt_complex_i16 {
    int16_t r, i;
};
typedef struct {
    int r, i;
} mt_fft_i16;

static inline mt_fft_i16 mt_fft_get_i16(const struct mt_complex_i16 *from)
{
    const mt_fft_i16 a = { from->r, from->i };
    return a;
}

static inline void mt_fft_put_i16(struct mt_complex_i16 *to, mt_fft_i16 a)
{
    to->r = (int16_t)a.r;
    to->i = (int16_t)a.i;
}

MT_FFT_FIXED(int, uint32_t, int32_t, i16, 15)
MT_FFT_PRODUCT(product, int16_t, int32_t, i16)
MT_FFT_PRODUCT(small_product, int, int32_t, i16)
#define mt_fft_shared_i16 mt_fft_scaled_i16
MT_FFT_COMPLEX(int, int16_t, i16)

#endif

#ifdef __cplusplus
}
#endif

#endif
