/* Internal to mtool: applications include mtool.h. */
/* Loops over expressions with Helium: four numbers at a time as int32 or float, or 8 or 16 elements that are moved or
 * looked up in a table.
 *
 * Each function stands beside the scalar expression that it equals in each lane, bit for bit, except for denormal
 * floats, which Helium flushes to zero. Where mt_mve.h is plain C, the scalar expressions are compiled. `n` is the
 * number of lanes that are in use: the others are not loaded or stored. */
#ifndef MT_MVE_LOOP_H
#define MT_MVE_LOOP_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

typedef int32x4_t mt_mve_i32x4;
typedef float32x4_t mt_mve_f32x4;
typedef mve_pred16_t mt_mve_b32x4;
typedef int16x8_t mt_mve_i16x8;
typedef uint16x8_t mt_mve_u16x8;
typedef uint8x16_t mt_mve_u8x16;

#define MT_FIRST_4(n) vctp32q((uint32_t)(n))
#define MT_FIRST_8(n) vctp16q((uint32_t)(n))
#define MT_FIRST_16(n) vctp8q((uint32_t)(n))
#define MT_SAME(x) (x)
#define MT_LANES(name, R, arguments, count, vector, scalar) \
    MT_MVE_INLINE R mt_mve_##name arguments                 \
    {                                                       \
        return vector;                                      \
    }
#define MT_LOAD(name, T, R, count, as, load, kind)                                       \
    MT_MVE_INLINE R mt_mve_##name(const T *p, int32_t n)                                 \
    {                                                                                    \
        return as(n >= (count) ? load##_##kind(p) : load##_z_##kind(p, MT_FIRST_##count(n))); \
    }
#define MT_GATHER(name, T, R, O, count, as, load, kind, offsets)                         \
    MT_MVE_INLINE R mt_mve_##name(const T *p, O at, int32_t n)                           \
    {                                                                                    \
        return as(n >= (count) ? load##_##kind(p, offsets(at))                           \
                               : load##_z_##kind(p, offsets(at), MT_FIRST_##count(n)));  \
    }
#define MT_STORE(name, T, V, count, store, kind)                     \
    MT_MVE_INLINE void mt_mve_##name(T *p, V value, int32_t n)       \
    {                                                                \
        if (n >= (count))                                            \
            store##_##kind(p, value);                                \
        else                                                         \
            store##_p_##kind(p, value, MT_FIRST_##count(n));         \
    }
#define MT_SCATTER(name, T, V, O, count, store, kind, offsets)            \
    MT_MVE_INLINE void mt_mve_##name(T *p, O at, V value, int32_t n)      \
    {                                                                     \
        if (n >= (count))                                                 \
            store##_##kind(p, offsets(at), value);                        \
        else                                                              \
            store##_p_##kind(p, offsets(at), value, MT_FIRST_##count(n)); \
    }

#else

typedef struct mt_mve_i32x4 {
    int32_t x[4];
} mt_mve_i32x4;
typedef struct mt_mve_f32x4 {
    float x[4];
} mt_mve_f32x4;
typedef struct mt_mve_b32x4 {
    int32_t x[4];
} mt_mve_b32x4;
typedef struct mt_mve_i16x8 {
    int16_t x[8];
} mt_mve_i16x8;
typedef struct mt_mve_u16x8 {
    uint16_t x[8];
} mt_mve_u16x8;
typedef struct mt_mve_u8x16 {
    uint8_t x[16];
} mt_mve_u8x16;

#define MT_LANES(name, R, arguments, count, vector, scalar) \
    MT_MVE_INLINE R mt_mve_##name arguments                 \
    {                                                       \
        R made = {{0}};                                     \
        for (int32_t l = 0; l < (count); ++l)               \
            made.x[l] = scalar;                             \
        return made;                                        \
    }
#define MT_LOAD(name, T, R, count, as, load, kind)           \
    MT_MVE_INLINE R mt_mve_##name(const T *p, int32_t n)     \
    {                                                        \
        R made = {{0}};                                      \
        for (int32_t l = 0; l < (count) && l < n; ++l)       \
            made.x[l] = p[l];                                \
        return made;                                         \
    }
#define MT_GATHER(name, T, R, O, count, as, load, kind, offsets) \
    MT_MVE_INLINE R mt_mve_##name(const T *p, O at, int32_t n)   \
    {                                                            \
        R made = {{0}};                                          \
        for (int32_t l = 0; l < (count) && l < n; ++l)           \
            made.x[l] = p[at.x[l]];                              \
        return made;                                             \
    }
#define MT_STORE(name, T, V, count, store, kind)                     \
    MT_MVE_INLINE void mt_mve_##name(T *p, V value, int32_t n)       \
    {                                                                \
        for (int32_t l = 0; l < (count) && l < n; ++l)               \
            p[l] = (T)value.x[l];                                    \
    }
#define MT_SCATTER(name, T, V, O, count, store, kind, offsets)       \
    MT_MVE_INLINE void mt_mve_##name(T *p, O at, V value, int32_t n) \
    {                                                                \
        for (int32_t l = 0; l < (count) && l < n; ++l)               \
            p[at.x[l]] = (T)value.x[l];                              \
    }

#endif

/* Elements as int32 or float, next to each other or at offsets that are not negative. */
MT_LOAD(load_i8, int8_t, mt_mve_i32x4, 4, MT_SAME, vldrbq, s32)
MT_LOAD(load_u8, uint8_t, mt_mve_i32x4, 4, vreinterpretq_s32_u32, vldrbq, u32)
MT_LOAD(load_i16, int16_t, mt_mve_i32x4, 4, MT_SAME, vldrhq, s32)
MT_LOAD(load_i32, int32_t, mt_mve_i32x4, 4, MT_SAME, vldrwq, s32)
MT_LOAD(load_f32, float, mt_mve_f32x4, 4, MT_SAME, vldrwq, f32)
MT_GATHER(gather_i8, int8_t, mt_mve_i32x4, mt_mve_i32x4, 4, MT_SAME, vldrbq_gather_offset, s32, vreinterpretq_u32_s32)
MT_GATHER(gather_u8, uint8_t, mt_mve_i32x4, mt_mve_i32x4, 4, vreinterpretq_s32_u32, vldrbq_gather_offset, u32,
          vreinterpretq_u32_s32)
MT_GATHER(gather_i16, int16_t, mt_mve_i32x4, mt_mve_i32x4, 4, MT_SAME, vldrhq_gather_shifted_offset, s32,
          vreinterpretq_u32_s32)
MT_GATHER(gather_i32, int32_t, mt_mve_i32x4, mt_mve_i32x4, 4, MT_SAME, vldrwq_gather_shifted_offset, s32,
          vreinterpretq_u32_s32)
MT_GATHER(gather_f32, float, mt_mve_f32x4, mt_mve_i32x4, 4, MT_SAME, vldrwq_gather_shifted_offset, f32,
          vreinterpretq_u32_s32)
MT_STORE(store_i8, int8_t, mt_mve_i32x4, 4, vstrbq, s32)
MT_STORE(store_i16, int16_t, mt_mve_i32x4, 4, vstrhq, s32)
MT_STORE(store_i32, int32_t, mt_mve_i32x4, 4, vstrwq, s32)
MT_STORE(store_f32, float, mt_mve_f32x4, 4, vstrwq, f32)
MT_SCATTER(scatter_i8, int8_t, mt_mve_i32x4, mt_mve_i32x4, 4, vstrbq_scatter_offset, s32, vreinterpretq_u32_s32)
MT_SCATTER(scatter_f32, float, mt_mve_f32x4, mt_mve_i32x4, 4, vstrwq_scatter_shifted_offset, f32,
           vreinterpretq_u32_s32)

/* Numbers that are equal in all lanes, and the first lanes' numbers. */
MT_LANES(all_i32, mt_mve_i32x4, (int32_t a), 4, vdupq_n_s32(a), a)
MT_LANES(all_f32, mt_mve_f32x4, (float a), 4, vdupq_n_f32(a), a)
MT_LANES(steps_i32, mt_mve_i32x4, (int32_t factor), 4,
         vmulq_n_s32(vreinterpretq_s32_u32(vidupq_n_u32(0, 1)), factor), l *factor)

/* int32, which wraps. */
#define MT_WRAP(a, op, b) ((int32_t)((uint32_t)(a) op (uint32_t)(b)))
MT_LANES(add_i32, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b), 4, vaddq_s32(a, b), MT_WRAP(a.x[l], +, b.x[l]))
MT_LANES(sub_i32, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b), 4, vsubq_s32(a, b), MT_WRAP(a.x[l], -, b.x[l]))
MT_LANES(mul_i32, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b), 4, vmulq_s32(a, b), MT_WRAP(a.x[l], *, b.x[l]))
MT_LANES(add_n_i32, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t b), 4, vaddq_n_s32(a, b), MT_WRAP(a.x[l], +, b))
MT_LANES(sub_n_i32, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t b), 4, vsubq_n_s32(a, b), MT_WRAP(a.x[l], -, b))
MT_LANES(mul_n_i32, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t b), 4, vmulq_n_s32(a, b), MT_WRAP(a.x[l], *, b))
MT_LANES(max_i32, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b), 4, vmaxq_s32(a, b), a.x[l] > b.x[l] ? a.x[l] : b.x[l])
MT_LANES(min_i32, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b), 4, vminq_s32(a, b), a.x[l] < b.x[l] ? a.x[l] : b.x[l])
/* The low 8 or 16 bits with their sign, or without. */
MT_LANES(as_i8, mt_mve_i32x4, (mt_mve_i32x4 a), 4, vmovlbq_s16(vmovlbq_s8(vreinterpretq_s8_s32(a))), (int8_t)a.x[l])
MT_LANES(as_i16, mt_mve_i32x4, (mt_mve_i32x4 a), 4, vmovlbq_s16(vreinterpretq_s16_s32(a)), (int16_t)a.x[l])
MT_LANES(as_u8, mt_mve_i32x4, (mt_mve_i32x4 a), 4, vandq_s32(a, vdupq_n_s32(255)), (uint8_t)a.x[l])
MT_LANES(clamp, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t low, int32_t high), 4,
         vminq_s32(vmaxq_s32(a, vdupq_n_s32(low)), vdupq_n_s32(high)), mt_clamp(a.x[l], low, high))
/* a / 2^shift, rounded down; shift is 1 to 31. */
MT_LANES(shift, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t shift), 4, vshlq_r_s32(a, -shift), a.x[l] >> shift)

/* The high word of a product, within the limits of mt_high_product. */
MT_LANES(high_product, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t b), 4, vmulhq_s32(a, vdupq_n_s32(b)),
         mt_high_product(a.x[l], b))

/* mt_rescale, mt_rescale_twice, and mt_mean of a power of two numbers. */
#ifdef MT_MVE_ASM
MT_MVE_INLINE mt_mve_i32x4 mt_mve_away(mt_mve_i32x4 a)
{
    return vaddq_s32(a, vshrq_n_s32(a, 31));
}
#endif
MT_LANES(rescale, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 multiplier, mt_mve_i32x4 shift), 4,
         vrshlq_s32(vmulhq_s32(a, multiplier), vnegq_s32(shift)),
         shift.x[l] ? mt_rescale(a.x[l], multiplier.x[l], shift.x[l]) : 0) /* 0: a lane that is not in use */
MT_LANES(rescale_twice, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 multiplier, mt_mve_i32x4 shift), 4,
         vrshlq_s32(mt_mve_away(vqrdmulhq_s32(a, multiplier)), vmvnq_s32(shift)),
         mt_rescale_twice(a.x[l], multiplier.x[l], shift.x[l]))
MT_LANES(mean, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t count), 4,
         vrshlq_n_s32(mt_mve_away(a), -__builtin_ctz((uint32_t)count)), mt_mean(a.x[l], count))

/* mt_clamp((a * left + b * right + offset) >> shift, low, high). */
MT_LANES(weighted, mt_mve_i32x4, (mt_mve_i32x4 a, mt_mve_i32x4 b, int32_t left, int32_t right, int32_t offset), 4,
         vaddq_n_s32(vmlaq_n_s32(vmulq_n_s32(a, left), b, right), offset), a.x[l] * left + b.x[l] * right + offset)
MT_LANES(scaled_pair, mt_mve_i32x4,
         (mt_mve_i32x4 a, mt_mve_i32x4 b, int32_t left, int32_t right, int32_t offset, int32_t shift, int32_t low,
          int32_t high),
         4, mt_mve_clamp(mt_mve_shift(mt_mve_weighted(a, b, left, right, offset), shift), low, high),
         mt_clamp((a.x[l] * left + b.x[l] * right + offset) >> shift, low, high))

/* Floats. mt_mve_max_f32 and mt_mve_min_f32 are those of mt_scalar.h. Helium's LT and LE hold for NaN; GT and GE do
 * not. */
MT_LANES(float, mt_mve_f32x4, (mt_mve_i32x4 a), 4, vcvtq_f32_s32(a), (float)a.x[l])
MT_LANES(add_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4, vaddq_f32(a, b), a.x[l] + b.x[l])
MT_LANES(sub_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4, vsubq_f32(a, b), a.x[l] - b.x[l])
MT_LANES(mul_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4, vmulq_f32(a, b), a.x[l] * b.x[l])
MT_LANES(add_n_f32, mt_mve_f32x4, (mt_mve_f32x4 a, float b), 4, vaddq_n_f32(a, b), a.x[l] + b)
MT_LANES(sub_n_f32, mt_mve_f32x4, (mt_mve_f32x4 a, float b), 4, vsubq_n_f32(a, b), a.x[l] - b)
MT_LANES(mul_n_f32, mt_mve_f32x4, (mt_mve_f32x4 a, float b), 4, vmulq_n_f32(a, b), a.x[l] * b)
#ifdef MT_MVE_ASM
/* The lanes of q0 are s0 to s3. */
MT_MVE_INLINE mt_mve_f32x4 mt_mve_div_f32(mt_mve_f32x4 a, mt_mve_f32x4 b)
{
    register mt_mve_f32x4 x __asm__("q0") = a;
    register mt_mve_f32x4 y __asm__("q1") = b;
    __asm__("vdiv.f32 s0, s0, s4\n\tvdiv.f32 s1, s1, s5\n\tvdiv.f32 s2, s2, s6\n\tvdiv.f32 s3, s3, s7"
            : "+w"(x)
            : "w"(y));
    return x;
}
MT_MVE_INLINE mt_mve_f32x4 mt_mve_div_n_f32(mt_mve_f32x4 a, float b)
{
    register mt_mve_f32x4 x __asm__("q0") = a;
    register float y __asm__("s4") = b;
    __asm__("vdiv.f32 s0, s0, s4\n\tvdiv.f32 s1, s1, s4\n\tvdiv.f32 s2, s2, s4\n\tvdiv.f32 s3, s3, s4"
            : "+w"(x)
            : "t"(y));
    return x;
}
MT_MVE_INLINE mt_mve_f32x4 mt_mve_sqrt_f32(mt_mve_f32x4 a)
{
    register mt_mve_f32x4 x __asm__("q0") = a;
    __asm__("vsqrt.f32 s0, s0\n\tvsqrt.f32 s1, s1\n\tvsqrt.f32 s2, s2\n\tvsqrt.f32 s3, s3" : "+w"(x));
    return x;
}
#else
MT_LANES(div_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4, 0, a.x[l] / b.x[l])
MT_LANES(div_n_f32, mt_mve_f32x4, (mt_mve_f32x4 a, float b), 4, 0, a.x[l] / b)
MT_MVE_INLINE mt_mve_f32x4 mt_mve_four(float a, float b, float c, float d)
{
    const mt_mve_f32x4 made = {{a, b, c, d}};
    return made;
}
/* a macro, so that only those who use it need math.h */
#define mt_mve_sqrt_f32(a) mt_mve_four(sqrtf((a).x[0]), sqrtf((a).x[1]), sqrtf((a).x[2]), sqrtf((a).x[3]))
#endif
MT_LANES(neg_f32, mt_mve_f32x4, (mt_mve_f32x4 a), 4, vnegq_f32(a), -a.x[l])
MT_LANES(max_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4,
         vpselq_f32(a, b, vcmpgeq_f32(a, b) | vcmpneq_f32(a, a)), mt_max_f32(a.x[l], b.x[l]))
MT_LANES(min_f32, mt_mve_f32x4, (mt_mve_f32x4 a, mt_mve_f32x4 b), 4,
         vpselq_f32(a, b, vcmpgeq_f32(b, a) | vcmpneq_f32(a, a)), mt_min_f32(a.x[l], b.x[l]))

/* mt_quantize with constants that are proved to give its results: the float is limited to `least` and `most`, and
 * times `factor` + `rest` is on the same side of each half as the quotient. Plain C divides. */
#ifdef MT_MVE_ASM
#define MT_NEAREST(a, factor, rest, least, most) \
    vcvtnq_s32_f32(mt_mve_times(vminnmq_f32(vmaxnmq_f32(a, vdupq_n_f32(least)), vdupq_n_f32(most)), factor, rest))
MT_MVE_INLINE mt_mve_f32x4 mt_mve_times(mt_mve_f32x4 a, float factor, float rest)
{
    return rest == 0.0f ? vmulq_n_f32(a, factor) : vfmaq_n_f32(vmulq_n_f32(a, rest), a, factor);
}
#endif
MT_LANES(quantize, mt_mve_i32x4,
         (mt_mve_f32x4 a, float scale, int32_t zero_point, int32_t low, int32_t high, float least, float most,
          float factor, float rest),
         4, ((void)scale, (void)low, (void)high, vaddq_n_s32(MT_NEAREST(a, factor, rest, least, most), zero_point)),
         ((void)least, (void)most, (void)factor, (void)rest, mt_quantize(a.x[l], scale, zero_point, low, high)))

/* Eight numbers of 16 bits: the even and the odd ones as int32, and joined again, the low or the high words of int32 or
 * numbers that are limited to 16 bits. mt_mve_nearest is mt_quantize without limits, of floats within 16 bits of scales. */
#ifdef MT_MVE_ASM
#define MT_MVE_ADVANCE(p) (p) += 8; __asm__("" : "+r"(p)) /* otherwise GCC adds an index to each address */
#else
#define MT_MVE_ADVANCE(p) (p) += 8
#endif
#define MT_OF_BOTH ((l & 1 ? odd : even).x[l >> 1])
MT_LOAD(load8_i8, int8_t, mt_mve_i16x8, 8, MT_SAME, vldrbq, s16)
MT_STORE(store8_i8, int8_t, mt_mve_i16x8, 8, vstrbq, s16)
MT_LANES(even, mt_mve_i32x4, (mt_mve_i16x8 a), 4, vmovlbq_s16(a), a.x[2 * l])
MT_LANES(odd, mt_mve_i32x4, (mt_mve_i16x8 a), 4, vmovltq_s16(a), a.x[2 * l + 1])
MT_LANES(both, mt_mve_i16x8, (mt_mve_i32x4 even, mt_mve_i32x4 odd), 8,
         vmovntq_s32(vreinterpretq_s16_s32(even), odd), (int16_t)MT_OF_BOTH)
MT_LANES(both_high, mt_mve_i16x8, (mt_mve_i32x4 even, mt_mve_i32x4 odd), 8,
         vshrnbq_n_s32(vreinterpretq_s16_s32(odd), even, 16), (int16_t)(MT_OF_BOTH >> 16))
MT_LANES(both_limited, mt_mve_i16x8, (mt_mve_i32x4 even, mt_mve_i32x4 odd), 8,
         vqmovntq_s32(vqmovnbq_s32(vuninitializedq_s16(), even), odd),
         (int16_t)mt_clamp(MT_OF_BOTH, INT16_MIN, INT16_MAX))
MT_LANES(sub8_n, mt_mve_i16x8, (mt_mve_i16x8 a, int32_t b), 8, vsubq_n_s16(a, (int16_t)b), (int16_t)(a.x[l] - b))
MT_LANES(add8_n, mt_mve_i16x8, (mt_mve_i16x8 a, int32_t b), 8, vaddq_n_s16(a, (int16_t)b), (int16_t)(a.x[l] + b))
MT_LANES(shift8, mt_mve_i16x8, (mt_mve_i16x8 a, int32_t shift), 8, vshlq_r_s16(a, -shift), (int16_t)(a.x[l] >> shift))
MT_LANES(clamp8, mt_mve_i16x8, (mt_mve_i16x8 a, int32_t low, int32_t high), 8,
         low == -128 && high == 127
             ? vreinterpretq_s16_s8(vqmovnbq_s16(vuninitializedq_s8(), a)) /* in the low bytes, which are stored */
             : vminq_s16(vmaxq_s16(a, vdupq_n_s16((int16_t)low)), vdupq_n_s16((int16_t)high)),
         (int16_t)mt_clamp(a.x[l], low, high))
MT_LANES(nearest, mt_mve_i32x4, (mt_mve_f32x4 a, float scale, float factor, float rest), 4,
         ((void)scale, vcvtnq_s32_f32(mt_mve_times(a, factor, rest))),
         ((void)factor, (void)rest, mt_quantize(a.x[l], scale, 0, INT16_MIN, INT16_MAX)))

/* mt_requantize_wide. */
MT_LANES(requantize, mt_mve_i32x4, (mt_mve_i32x4 a, float scale, int32_t zero_point, int32_t low, int32_t high), 4,
         vaddq_n_s32(vcvtnq_s32_f32(vminnmq_f32(vmaxnmq_f32(vmulq_n_f32(vcvtq_f32_s32(a), scale),
                                                            vdupq_n_f32((float)(low - zero_point))),
                                                vdupq_n_f32((float)(high - zero_point)))),
                     zero_point),
         mt_requantize_wide(a.x[l], scale, zero_point, low, high))

/* mt_add_f32 and mt_total_f32: sums of floats and their rounding errors. */
MT_MVE_INLINE void mt_mve_add_part(mt_mve_f32x4 *sum, mt_mve_f32x4 *rest, mt_mve_f32x4 part)
{
    const mt_mve_f32x4 next = mt_mve_add_f32(*sum, part);
    *rest = mt_mve_add_f32(*rest, mt_mve_sub_f32(part, mt_mve_sub_f32(next, *sum)));
    *sum = next;
}
MT_LANES(total, mt_mve_f32x4, (mt_mve_f32x4 sum, mt_mve_f32x4 rest), 4,
         vpselq_f32(vaddq_f32(sum, rest), sum, vcmpeqq_f32(vaddq_f32(sum, rest), vaddq_f32(sum, rest))),
         mt_total_f32(sum.x[l], rest.x[l]))

/* Conditions, and one of two numbers. */
#define MT_CONDITIONS(S, V, K)                                                                               \
    MT_LANES(greater_##S, mt_mve_b32x4, (V a, V b), 4, vcmpgtq_##K(a, b), a.x[l] > b.x[l])                       \
    MT_LANES(greater_equal_##S, mt_mve_b32x4, (V a, V b), 4, vcmpgeq_##K(a, b), a.x[l] >= b.x[l])                \
    MT_LANES(equal_##S, mt_mve_b32x4, (V a, V b), 4, vcmpeqq_##K(a, b), a.x[l] == b.x[l])                        \
    MT_LANES(where_##S, V, (mt_mve_b32x4 c, V a, V b), 4, vpselq_##K(a, b, c), c.x[l] ? a.x[l] : b.x[l])
MT_CONDITIONS(i32, mt_mve_i32x4, s32)
MT_CONDITIONS(f32, mt_mve_f32x4, f32)
MT_LANES(and, mt_mve_b32x4, (mt_mve_b32x4 a, mt_mve_b32x4 b), 4, (mt_mve_b32x4)(a & b), a.x[l] && b.x[l])
MT_LANES(or, mt_mve_b32x4, (mt_mve_b32x4 a, mt_mve_b32x4 b), 4, (mt_mve_b32x4)(a | b), a.x[l] || b.x[l])
MT_LANES(not, mt_mve_b32x4, (mt_mve_b32x4 a), 4, (mt_mve_b32x4)~a, !a.x[l])

/* Elements of 8, 16 and 32 bits that are moved: 16 with offsets of 8 bits, 8 with offsets of 16 bits, or 4. */
MT_LOAD(load_16x8, uint8_t, mt_mve_u8x16, 16, MT_SAME, vldrbq, u8)
MT_LOAD(load_8x8, uint8_t, mt_mve_u16x8, 8, MT_SAME, vldrbq, u16)
MT_LOAD(load_8x16, uint16_t, mt_mve_u16x8, 8, MT_SAME, vldrhq, u16)
MT_GATHER(gather_16x8, uint8_t, mt_mve_u8x16, mt_mve_u8x16, 16, MT_SAME, vldrbq_gather_offset, u8, MT_SAME)
MT_GATHER(gather_8x8, uint8_t, mt_mve_u16x8, mt_mve_u16x8, 8, MT_SAME, vldrbq_gather_offset, u16, MT_SAME)
MT_GATHER(gather_8x16, uint16_t, mt_mve_u16x8, mt_mve_u16x8, 8, MT_SAME, vldrhq_gather_shifted_offset, u16, MT_SAME)
MT_STORE(store_16x8, uint8_t, mt_mve_u8x16, 16, vstrbq, u8)
MT_STORE(store_8x8, uint8_t, mt_mve_u16x8, 8, vstrbq, u16)
MT_STORE(store_8x16, uint16_t, mt_mve_u16x8, 8, vstrhq, u16)
MT_SCATTER(scatter_16x8, uint8_t, mt_mve_u8x16, mt_mve_u8x16, 16, vstrbq_scatter_offset, u8, MT_SAME)
MT_SCATTER(scatter_8x8, uint8_t, mt_mve_u16x8, mt_mve_u16x8, 8, vstrbq_scatter_offset, u16, MT_SAME)
MT_SCATTER(scatter_8x16, uint16_t, mt_mve_u16x8, mt_mve_u16x8, 8, vstrhq_scatter_shifted_offset, u16, MT_SAME)
MT_LANES(all_8x16, mt_mve_u16x8, (uint16_t a), 8, vdupq_n_u16(a), a)
MT_LANES(all_16x8, mt_mve_u8x16, (uint8_t a), 16, vdupq_n_u8(a), a)
MT_LANES(steps_16x8, mt_mve_u8x16, (uint8_t factor), 16, vmulq_n_u8(vidupq_n_u8(0, 1), factor), (uint8_t)(l *factor))
MT_LANES(steps_8x16, mt_mve_u16x8, (uint16_t factor), 8, vmulq_n_u16(vidupq_n_u16(0, 1), factor), (uint16_t)(l *factor))

/* 16 elements of 8 bits. */
MT_LANES(max_i8x16, mt_mve_u8x16, (mt_mve_u8x16 a, mt_mve_u8x16 b), 16,
         vreinterpretq_u8_s8(vmaxq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b))),
         (int8_t)a.x[l] > (int8_t)b.x[l] ? a.x[l] : b.x[l])
MT_LANES(min_i8x16, mt_mve_u8x16, (mt_mve_u8x16 a, mt_mve_u8x16 b), 16,
         vreinterpretq_u8_s8(vminq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b))),
         (int8_t)a.x[l] < (int8_t)b.x[l] ? a.x[l] : b.x[l])
MT_LANES(max_u8x16, mt_mve_u8x16, (mt_mve_u8x16 a, mt_mve_u8x16 b), 16,
         vmaxq_u8(a, b), a.x[l] > b.x[l] ? a.x[l] : b.x[l])
MT_LANES(min_u8x16, mt_mve_u8x16, (mt_mve_u8x16 a, mt_mve_u8x16 b), 16,
         vminq_u8(a, b), a.x[l] < b.x[l] ? a.x[l] : b.x[l])

#ifdef __cplusplus
}
#endif

#endif
