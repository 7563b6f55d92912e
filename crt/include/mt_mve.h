/* Internal to mtool: applications include mtool.h. */
/* Common parts of operators with Helium (Armv8.1-M MVE with floating point).
 *
 * Results are those of mt_requantize or mt_scaled, bit for bit. On other cores, without optimization (the assembly
 * takes every even register, which VMLADAVA requires) and with MT_PORTABLE defined, the same functions are plain C. */
#ifndef MT_MVE_H
#define MT_MVE_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_FEATURE_MVE) && \
    !defined(MT_PORTABLE)
#if __ARM_FEATURE_MVE & 2
#define MT_MVE_ASM 1
#include <arm_mve.h>
/* Some assembly takes every register: options for frame pointers don't apply to it. */
#pragma GCC optimize("omit-frame-pointer")
#endif
#endif

#if defined(__GNUC__)
#define MT_MVE_INLINE static inline __attribute__((always_inline))
#else
#define MT_MVE_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits, as vectors. */
struct mt_mve_range {
    int16_t zero_point[8], low[8], high[8];
};

#define MT_MVE_EIGHT(x) {(x), (x), (x), (x), (x), (x), (x), (x)}
#define MT_MVE_RANGE(zero_point, low, high) {MT_MVE_EIGHT(zero_point), MT_MVE_EIGHT(low), MT_MVE_EIGHT(high)}

#ifdef MT_MVE_ASM

/* Scale eight sums in q0 and q1 by floats, to the low bytes of q0's halfwords, alternating between q0 and q1.
 * Results fit into 16 bits, and the zero point is even: adding it to 1.5 * 2^23 leaves whole steps, with ties to
 * even as before; the low half is the result. `near` is MT_MVE_WHOLE_STEPS + zero point; it and `scale` are vectors,
 * or one number for all lanes. */
#define MT_MVE_WHOLE_STEPS 0x4B400000U
#define MT_MVE_NEAR_FLOATS(scale, near)     \
    "vcvt.f32.s32 q0, q0\n\t"               \
    "vcvt.f32.s32 q1, q1\n\t"               \
    "vmul.f32 q0, q0, " scale "\n\t"        \
    "vmul.f32 q1, q1, " scale "\n\t"        \
    "vadd.f32 q0, q0, " near "\n\t"         \
    "vadd.f32 q1, q1, " near "\n\t"         \
    "vmovnt.i32 q0, q1\n\t"                 \
    "vqmovnb.s16 q0, q0\n\t"
/* The same with an odd zero point, which is added after rounding. */
#define MT_MVE_ODD_FLOATS(scale, zero)      \
    "vcvt.f32.s32 q0, q0\n\t"               \
    "vcvt.f32.s32 q1, q1\n\t"               \
    "vmul.f32 q0, q0, " scale "\n\t"        \
    "vmul.f32 q1, q1, " scale "\n\t"        \
    "vcvtn.s32.f32 q0, q0\n\t"              \
    "vcvtn.s32.f32 q1, q1\n\t"              \
    "vmovnt.i32 q0, q1\n\t"                 \
    "vqadd.s16 q0, q0, " zero "\n\t"        \
    "vqmovnb.s16 q0, q0\n\t"

#else

/* Scale a sum with its packed values: a scale, or a multiplier and, `lanes` words after it, negative places. */
MT_MVE_INLINE int8_t mt_mve_narrow(int32_t sum, const int8_t *packed, int32_t lanes, enum mt_scaling by,
                                   const struct mt_mve_range *range)
{
    float scale;
    int32_t multiplier, places;
    if (by <= MT_BY_ODD_FLOAT) {
        memcpy(&scale, packed, 4);
        return (int8_t)mt_requantize_wide(sum, scale, range->zero_point[0], range->low[0], range->high[0]);
    }
    memcpy(&multiplier, packed, 4);
    if (by >= MT_EXACT) { /* one offset for the layer */
        places = MT_EXACT_PLACES(by);
        return (int8_t)mt_requantize_exact(sum, multiplier, range->zero_point[0] * (1 << places) + (1 << places) / 2,
                                           places);
    }
    memcpy(&places, packed + 4 * lanes, 4);
    return (int8_t)mt_clamp(mt_scaled(by, sum, multiplier, -places) + range->zero_point[0], range->low[0],
                            range->high[0]);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
