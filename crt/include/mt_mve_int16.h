/* Internal to mtool: applications include mtool.h. */
/* Common parts of operators on int16 activations with Helium: int8 weights are widened when loaded; sums are int32,
 * which the compiler has proved to be enough. Plain C where mt_mve.h is. */
#ifndef MT_MVE_INT16_H
#define MT_MVE_INT16_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits. */
struct mt_mve16_range {
    int32_t zero_point;
    int16_t low[8], high[8];
};

#define MT_MVE16_RANGE(zero_point, low, high) {(zero_point), MT_MVE_EIGHT(low), MT_MVE_EIGHT(high)}

#ifndef MT_MVE_ASM

MT_MVE_INLINE int16_t mt_mve16_narrow(int32_t sum, const int8_t *scale_bytes, const struct mt_mve16_range *range)
{
    float scale;
    memcpy(&scale, scale_bytes, 4);
    return (int16_t)mt_requantize_wide(sum, scale, range->zero_point, range->low[0], range->high[0]);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
