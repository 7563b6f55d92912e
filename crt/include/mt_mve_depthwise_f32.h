/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of float32 with Helium: four lanes of channels. See mt_mve_f32.h. */
#ifndef MT_MVE_DEPTHWISE_F32_H
#define MT_MVE_DEPTHWISE_F32_H

#include "mt_mve_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Four channels. Loads and sums stay in the written order, as there are only eight registers. */
typedef float32x4_t mt_f32x4;

/* `bytes`: a constant of up to 508. */
MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_load(const float *from, int32_t bytes)
{
    mt_f32x4 value;
    __asm__ volatile("vldrw.32 %q0, [%1, %2]" : "=w"(value) : "r"(from), "i"(bytes) : "memory");
    return value;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_add_product(mt_f32x4 sum, mt_f32x4 a, mt_f32x4 b)
{
    __asm__ volatile("vfma.f32 %q0, %q1, %q2" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_zero(void)
{
    mt_f32x4 value;
    __asm__ volatile("vmov.i32 %q0, #0" : "=w"(value));
    return value;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_relu(mt_f32x4 value, mt_f32x4 zero)
{
    __asm__ volatile("vmax.s32 %q0, %q0, %q1" : "+w"(value) : "w"(zero));
    return value;
}

MT_MVE_F32_INLINE void mt_f32x4_store(float *to, mt_f32x4 value)
{
    vstrwq_f32(to, value);
}

/* The first `lanes` of four. */
MT_MVE_F32_INLINE void mt_f32x4_store_lanes(float *to, mt_f32x4 value, int32_t lanes)
{
    vstrwq_p_f32(to, value, vctp32q((uint32_t)lanes));
}

/* A row of zero vectors. */
MT_MVE_F32_INLINE void mt_mve_f32_blank(float *row, int32_t vectors)
{
    for (; vectors; --vectors, row += 4)
        vstrwq_f32(row, vdupq_n_f32(0.0f));
}

/* Up to four channels of a row of pixels, `step` floats apart. */
MT_MVE_F32_INLINE void mt_mve_f32_lanes(float *row, const float *x, int32_t pixels, int32_t step, int32_t lanes)
{
    const mve_pred16_t wanted = vctp32q((uint32_t)lanes);
    if (lanes >= 4)
        for (; pixels; --pixels, row += 4, x += step)
            vstrwq_f32(row, vldrwq_f32(x));
    else
        for (; pixels; --pixels, row += 4, x += step)
            vstrwq_f32(row, vldrwq_z_f32(x, wanted));
}

#else /* portable version; a sanitized build would have too many calls to inline them in an operator */

#if defined(__GNUC__)
typedef float mt_f32x4 __attribute__((vector_size(16)));
#define MT_MVE_F32_LANE(value, i) (value)[i]
#else
typedef struct {
    float lane[4];
} mt_f32x4;
#define MT_MVE_F32_LANE(value, i) (value).lane[i]
#endif

MT_OPERATOR mt_f32x4 mt_f32x4_load(const float *from, int32_t bytes)
{
    mt_f32x4 value;
    memcpy(&value, from + bytes / 4, sizeof(value));
    return value;
}

MT_OPERATOR mt_f32x4 mt_f32x4_add_product(mt_f32x4 sum, mt_f32x4 a, mt_f32x4 b)
{
    for (int32_t i = 0; i < 4; ++i)
        MT_MVE_F32_LANE(sum, i) = fmaf(MT_MVE_F32_LANE(a, i), MT_MVE_F32_LANE(b, i), MT_MVE_F32_LANE(sum, i));
    return sum;
}

MT_OPERATOR mt_f32x4 mt_f32x4_zero(void)
{
    mt_f32x4 value;
    memset(&value, 0, sizeof(value));
    return value;
}

MT_OPERATOR mt_f32x4 mt_f32x4_relu(mt_f32x4 value, mt_f32x4 zero)
{
    for (int32_t i = 0; i < 4; ++i)
        MT_MVE_F32_LANE(value, i) = mt_mve_f32_at_least(MT_MVE_F32_LANE(value, i), 0);
    (void)zero;
    return value;
}

MT_OPERATOR void mt_f32x4_store(float *to, mt_f32x4 value)
{
    memcpy(to, &value, sizeof(value));
}

MT_OPERATOR void mt_f32x4_store_lanes(float *to, mt_f32x4 value, int32_t lanes)
{
    memcpy(to, &value, (size_t)lanes * sizeof(*to));
}

MT_MVE_F32_INLINE void mt_mve_f32_blank(float *row, int32_t vectors)
{
    memset(row, 0, 4 * (size_t)vectors * sizeof(*row));
}

MT_MVE_F32_INLINE void mt_mve_f32_lanes(float *row, const float *x, int32_t pixels, int32_t step, int32_t lanes)
{
    for (; pixels; --pixels, row += 4, x += step)
        memcpy(row, x, (size_t)lanes * sizeof(*row));
}

#endif

#ifdef __cplusplus
}
#endif

#endif
