/* Internal to mtool: applications include mtool.h. */
/* The functions of mt_fixed16.h of four numbers at a time, with Helium, for the loops of mt_mve_loop.h. */
#ifndef MT_MVE_FIXED16_H
#define MT_MVE_FIXED16_H

#include "mt_fixed16.h"
#include "mt_mve_loop.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* An instruction for the lanes in which a number is so compared with 0. (With intrinsics, GCC 12 moves each predicate to
 * a register and back.) */
#define MT_MVE_WHERE(compared, number, instruction, result, argument) \
    __asm__("vpt." compared ", %q[x], zr\n\t" instruction            \
            : [to] "+w"(result)                                       \
            : [x] "w"(number), [by] "r"(argument)                     \
            : "p0")

/* mt_fixed16_share: VQRDMULH of a * 2^16 and b is a * b / 2^15, rounded, ties up. */
MT_MVE_INLINE int32x4_t mt_mve_fixed16_share(int32x4_t x, int32_t whole)
{
    const int32x4_t bits = vshlq_r_s32(x, whole);
    const int32x4_t a_high = vsubq_n_s32(
        vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(vshlq_n_s32(bits, 19)), 3)), 1 << 28);
    const int32x4_t a = vshrq_n_s32(a_high, 16), a2 = vqrdmulhq_s32(a_high, a), a3 = vqrdmulhq_s32(a_high, a2);
    const int32x4_t a4 = vshrq_n_s32(vaddq_n_s32(vmulq_s32(a2, a2), 81920), 17);
    const int32x4_t third = vqrdmulhq_n_s32(vaddq_s32(a4, a3), 10923 << 16);
    const int32x4_t series = vrshrq_n_s32(vaddq_s32(third, a2), 1);
    int32x4_t power = vaddq_n_s32(vqrdmulhq_n_s32(vaddq_s32(a, series), 28918 << 16), 28918);
#define MT_MVE_FACTOR(n, factor)                                    \
    if (n < whole + 2)                                              \
    MT_MVE_WHERE("s32 ge", vshlq_n_s32(bits, 18 - (n)), "vqrdmulht.s32 %q[to], %q[to], %[by]", power, (factor) << 16)
    MT_MVE_FACTOR(0, 25520);
    MT_MVE_FACTOR(1, 19875);
    MT_MVE_FACTOR(2, 12055);
    MT_MVE_FACTOR(3, 4435);
    MT_MVE_FACTOR(4, 600);
    MT_MVE_FACTOR(5, 11);
#undef MT_MVE_FACTOR
    if (whole > 4)
        MT_MVE_WHERE("s32 lt", vaddq_n_s32(bits, 1 << 19), "vdupt.32 %q[to], %[by]", power, 0);
    const int32x4_t divisor = vaddq_n_s32(vshrq_n_s32(power, 1), 1 << 14), high = vshlq_n_s32(divisor, 16);
    int32x4_t y = vaddq_n_s32(vqrdmulhq_n_s32(divisor, -15420 * (1 << 16)), 23130);
    MT_UNROLL(3)
    for (int32_t i = 0; i < 3; ++i) {
        const int32x4_t error = vsubq_s32(vdupq_n_s32(1 << 13), vqrdmulhq_s32(high, y));
        y = vmlaq_n_s32(y, vqrdmulhq_s32(vshlq_n_s32(error, 16), y), 4);
    }
    return y;
}

MT_MVE_INLINE int32x4_t mt_mve_fixed16_logistic(int32x4_t x)
{
    const int32x4_t share = mt_mve_fixed16_share(vnegq_s32(vabsq_s32(x)), 3);
    int32x4_t result = vminq_s32(vshlq_n_s32(share, 1), vdupq_n_s32(INT16_MAX));
    const uint32x4_t other = vshrq_n_u32(vreinterpretq_u32_s32(vshrq_n_s32(x, 31)), 17);
    result = veorq_s32(result, vreinterpretq_s32_u32(other));
    MT_MVE_WHERE("i32 eq", x, "vdupt.32 %q[to], %[by]", result, 1 << 14);
    return result;
}

MT_MVE_INLINE int32x4_t mt_mve_fixed16_tanh(int32x4_t x, int32_t whole)
{
    const int32x4_t share = mt_mve_fixed16_share(vnegq_s32(vabsq_s32(x)), whole + 1);
    int32x4_t result = vminq_s32(vshlq_n_s32(vsubq_n_s32(share, 1 << 13), 2), vdupq_n_s32(INT16_MAX));
    MT_MVE_WHERE("s32 lt", x, "vnegt.s32 %q[to], %q[to]", result, 0);
    MT_MVE_WHERE("i32 eq", x, "vdupt.32 %q[to], %[by]", result, 0);
    return result;
}

#endif

MT_LANES(logistic16, mt_mve_i32x4, (mt_mve_i32x4 a), 4, mt_mve_fixed16_logistic(a), mt_fixed16_logistic(a.x[l]))
MT_LANES(tanh16, mt_mve_i32x4, (mt_mve_i32x4 a, int32_t whole), 4, mt_mve_fixed16_tanh(a, whole),
         mt_fixed16_tanh(a.x[l], whole))

#ifdef __cplusplus
}
#endif

#endif
