/* Internal to mtool: applications include mtool.h. */
/* The functions of mt_fft.h for vectors of complex numbers, with Helium: four of 16-bit integers, with the same bits, or
 * two of floats, with fused products. Plain C where mt_mve.h is.
 *
 * `mt_fft_get` and `mt_fft_put` access every `stride`-th number from a place on; a negative stride goes backwards, and
 * with 0 all numbers of the vector are the same. */
#ifndef MT_MVE_FFT_H
#define MT_MVE_FFT_H

#include "mt_fft.h"
#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

typedef int16x8_t mt_fft_mve_i16;
typedef float32x4_t mt_fft_mve_f32;

#define MT_MVE_FFT(NAME, S, EXPRESSION) \
    MT_MVE_INLINE mt_fft_mve_##S mt_fft_##NAME##_mve_##S(mt_fft_mve_##S a, mt_fft_mve_##S b) \
    {                                   \
        return EXPRESSION;              \
    }

MT_MVE_FFT(sum, i16, vaddq_s16(a, b))
MT_MVE_FFT(difference, i16, vsubq_s16(a, b))
MT_MVE_FFT(sum_turned, i16, vcaddq_rot90_s16(a, b))
MT_MVE_FFT(difference_turned, i16, vcaddq_rot270_s16(a, b))
MT_MVE_FFT(half_sum, i16, vhaddq_s16(a, b))
/* The imaginary parts of one number, and the real ones of another; GCC 12 gets constant predicates wrong. */
MT_MVE_FFT(parts, i16, vmovnbq_s32(a, vreinterpretq_s32_s16(b)))
MT_MVE_FFT(half_mirrored, i16, mt_fft_parts_mve_i16(vhsubq_s16(b, a), vhsubq_s16(a, b)))
/* The product of a number whose parts have 15 bits, as after a share: VQRDMLSDH does not saturate. */
MT_MVE_FFT(small_product, i16, vqrdmladhxq_s16(vqrdmlsdhq_s16(a, a, b), a, b))

MT_MVE_INLINE int16x8_t mt_fft_product_mve_i16(int16x8_t a, int16x8_t b)
{
    const int16x8_t c = vrev32q_s16(b);
    const int32x4_t r = vsubq_s32(vmullbq_int_s16(a, b), vmulltq_int_s16(a, b));
    const int32x4_t i = vaddq_s32(vmullbq_int_s16(a, c), vmulltq_int_s16(a, c));
    return vrshrntq_n_s32(vrshrnbq_n_s32(a, r, 15), i, 15);
}

MT_MVE_INLINE int16x8_t mt_fft_shared_mve_i16(int16x8_t a, int16_t by)
{
    return vqrdmulhq_n_s16(a, by);
}

MT_MVE_INLINE int16x8_t mt_fft_conjugate_mve_i16(int16x8_t a)
{
    return mt_fft_parts_mve_i16(vnegq_s16(a), a);
}

MT_MVE_FFT(sum, f32, vaddq_f32(a, b))
MT_MVE_FFT(difference, f32, vsubq_f32(a, b))
MT_MVE_FFT(sum_turned, f32, vcaddq_rot90_f32(a, b))
MT_MVE_FFT(difference_turned, f32, vcaddq_rot270_f32(a, b))
MT_MVE_FFT(half_sum, f32, vmulq_n_f32(vaddq_f32(a, b), 0.5f))
MT_MVE_FFT(half_mirrored, f32, vmulq_f32(vsubq_f32(a, b), ((float32x4_t){0.5f, -0.5f, 0.5f, -0.5f})))
MT_MVE_FFT(product, f32, vcmlaq_rot90_f32(vcmulq_f32(a, b), a, b))
MT_MVE_FFT(small_product, f32, mt_fft_product_mve_f32(a, b))
MT_MVE_FFT(windowed, f32, vmulq_f32(a, b))

MT_MVE_INLINE float32x4_t mt_fft_conjugate_mve_f32(float32x4_t a)
{
    return vmulq_f32(a, ((float32x4_t){1, -1, 1, -1}));
}

/* The parts' distances from the lowest place. */
MT_MVE_INLINE uint16x8_t mt_fft_places_i16(int32_t stride)
{
    const int32_t s = 2 * (stride < 0 ? -stride : stride);
#define MT_MVE_FFT_PAIR(n) (uint16_t)(n), (uint16_t)((n) + 1)
    if (stride < 0)
        return (uint16x8_t){MT_MVE_FFT_PAIR(3 * s), MT_MVE_FFT_PAIR(2 * s), MT_MVE_FFT_PAIR(s), 0, 1};
    return (uint16x8_t){0, 1, MT_MVE_FFT_PAIR(s), MT_MVE_FFT_PAIR(2 * s), MT_MVE_FFT_PAIR(3 * s)};
}

MT_MVE_INLINE uint32x4_t mt_fft_places_f32(int32_t stride)
{
    const uint32_t s = (uint32_t)(2 * (stride < 0 ? -stride : stride));
    return stride < 0 ? (uint32x4_t){s, s + 1, 0, 1} : (uint32x4_t){0, 1, s, s + 1};
}

#define MT_MVE_FFT_ACCESS(S, T, LANES, LOAD, STORE, GATHER, SCATTER)                                      \
    MT_MVE_INLINE mt_fft_mve_##S mt_fft_get_mve_##S(const struct mt_complex_##S *a, int32_t stride)       \
    {                                                                                                     \
        const T *const low = &a[stride < 0 ? stride * (LANES - 1) : 0].r;                                 \
        return stride == 1 ? LOAD(low) : GATHER(low, mt_fft_places_##S(stride));                          \
    }                                                                                                     \
    MT_MVE_INLINE void mt_fft_put_mve_##S(struct mt_complex_##S *a, int32_t stride, mt_fft_mve_##S value) \
    {                                                                                                     \
        T *const low = &a[stride < 0 ? stride * (LANES - 1) : 0].r;                                       \
        if (stride == 1)                                                                                  \
            STORE(low, value);                                                                            \
        else                                                                                              \
            SCATTER(low, mt_fft_places_##S(stride), value);                                               \
    }

MT_MVE_FFT_ACCESS(i16, int16_t, 4, vldrhq_s16, vstrhq_s16, vldrhq_gather_shifted_offset_s16,
                  vstrhq_scatter_shifted_offset_s16)
MT_MVE_FFT_ACCESS(f32, float, 2, vldrwq_f32, vstrwq_f32, vldrwq_gather_shifted_offset_f32,
                  vstrwq_scatter_shifted_offset_f32)

#else

#define MT_MVE_FFT(NAME, S, LANES)                                                                               \
    static inline struct mt_fft_mve_##S mt_fft_##NAME##_mve_##S(struct mt_fft_mve_##S a, struct mt_fft_mve_##S b) \
    {                                                                                                            \
        for (int n = 0; n < LANES; ++n)                                                                          \
            a.lane[n] = mt_fft_##NAME##_##S(a.lane[n], b.lane[n]);                                               \
        return a;                                                                                                \
    }
#define MT_MVE_FFT_ALL(S, LANES)                                                                                 \
    struct mt_fft_mve_##S {                                                                                      \
        mt_fft_##S lane[LANES];                                                                                  \
    };                                                                                                           \
    MT_MVE_FFT(sum, S, LANES)                                                                                    \
    MT_MVE_FFT(difference, S, LANES)                                                                             \
    MT_MVE_FFT(sum_turned, S, LANES)                                                                             \
    MT_MVE_FFT(difference_turned, S, LANES)                                                                      \
    MT_MVE_FFT(half_sum, S, LANES)                                                                               \
    MT_MVE_FFT(half_mirrored, S, LANES)                                                                          \
    MT_MVE_FFT(product, S, LANES)                                                                                \
    static inline struct mt_fft_mve_##S mt_fft_conjugate_mve_##S(struct mt_fft_mve_##S a)                        \
    {                                                                                                            \
        for (int n = 0; n < LANES; ++n)                                                                          \
            a.lane[n] = mt_fft_conjugate_##S(a.lane[n]);                                                         \
        return a;                                                                                                \
    }                                                                                                            \
    static inline struct mt_fft_mve_##S mt_fft_get_mve_##S(const struct mt_complex_##S *a, int32_t stride)       \
    {                                                                                                            \
        struct mt_fft_mve_##S value = {{{0, 0}}};                                                                \
        for (int n = 0; n < LANES; ++n)                                                                          \
            value.lane[n] = mt_fft_get_##S(&a[n * stride]);                                                      \
        return value;                                                                                            \
    }                                                                                                            \
    static inline void mt_fft_put_mve_##S(struct mt_complex_##S *a, int32_t stride, struct mt_fft_mve_##S value) \
    {                                                                                                            \
        for (int n = 0; n < LANES; ++n)                                                                          \
            mt_fft_put_##S(&a[n * stride], value.lane[n]);                                                       \
    }

MT_MVE_FFT_ALL(i16, 4)
MT_MVE_FFT_ALL(f32, 2)
typedef struct mt_fft_mve_i16 mt_fft_mve_i16;
typedef struct mt_fft_mve_f32 mt_fft_mve_f32;
#define mt_fft_small_product_mve_i16 mt_fft_product_mve_i16
#define mt_fft_small_product_mve_f32 mt_fft_product_mve_f32

static inline mt_fft_mve_i16 mt_fft_shared_mve_i16(mt_fft_mve_i16 a, int16_t by)
{
    for (int n = 0; n < 4; ++n)
        a.lane[n] = mt_fft_shared_i16(a.lane[n], by);
    return a;
}

static inline mt_fft_mve_f32 mt_fft_windowed_mve_f32(mt_fft_mve_f32 a, mt_fft_mve_f32 b)
{
    for (int n = 0; n < 2; ++n) {
        a.lane[n].r *= b.lane[n].r;
        a.lane[n].i *= b.lane[n].i;
    }
    return a;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
