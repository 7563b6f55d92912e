/* What operators with Helium share (Armv8.1-M MVE with floating point).
 *
 * Results are those of mt_requantise or mt_scaled, bit for bit. Elsewhere, without optimisation (the assembly takes
 * every even register, which is where VMLADAVA accumulates) and with MT_PORTABLE defined, the same functions are plain
 * C. */
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

#ifndef MT_MVE_ASM

/* A sum by what is packed for it: a scale, or a multiplier and, `lanes` words behind it, negative places. */
MT_MVE_INLINE int8_t mt_mve_narrow(int32_t sum, const int8_t *packed, int32_t lanes, enum mt_scaling by,
                                   const struct mt_mve_range *range)
{
    float scale;
    int32_t multiplier, places;
    if (by == MT_BY_FLOAT) {
        memcpy(&scale, packed, 4);
        return (int8_t)mt_requantise_wide(sum, scale, range->zero_point[0], range->low[0], range->high[0]);
    }
    memcpy(&multiplier, packed, 4);
    memcpy(&places, packed + 4 * lanes, 4);
    return (int8_t)mt_clamp(mt_scaled(by, sum, multiplier, -places) + range->zero_point[0], range->low[0],
                            range->high[0]);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
