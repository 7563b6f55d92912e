/* Internal to mtool: applications include mtool.h. */
/* Dynamic quantization: float32 values become 8-bit steps, scaled by their own range.
 *
 * Steps are rounded to nearest, ties away from zero, and the zero point is subtracted: they are int16. NaN counts as
 * the least value. Except for zeros and the scale, all is defined only if the range is finite. */
#ifndef MT_DYNAMIC_H
#define MT_DYNAMIC_H

#include <stdint.h>

#include "mt_float.h"
#include "mt_math.h"
#include "mt_scalar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The integer nearest to a value within a small range. 0x1.fffffep-2 is the largest float below a half: adding it
 * never rounds a value up that lies below the middle of two integers. */
static inline int16_t mt_dynamic_step(float value, float low, float high)
{
    const float inside = !(value > low) ? low : value > high ? high : value;
    return (int16_t)(inside < 0.0f ? inside - 0.49999997f : inside + 0.49999997f);
}

/* Around zero, from -127 to 127; returns the scale, 1 for all zeros. */
MT_OPERATOR float mt_dynamic_around_zero(const float *x, int16_t *steps, int32_t count)
{
    float most = 0.0f;
    for (int32_t i = 0; i < count; ++i) {
        const float size = mt_abs_f32(x[i]);
        most = size > most ? size : most;
    }
    if (!(most > 0.0f))
        most = 127.0f;
    const float inverse = 127.0f / most;
    for (int32_t i = 0; i < count; ++i)
        steps[i] = mt_dynamic_step(x[i] * inverse, -127.0f, 127.0f);
    return most / 127.0f;
}

/* The zero point of a range that includes 0, from -128 to 127: computed from the end nearer to 0. */
static inline int32_t mt_dynamic_zero_point(float low, float high)
{
    const double scale = (double)(high - low) / 255.0;
    const double below = (double)low / scale, above = (double)high / scale;
    const double point = 128.0 - below < 127.0 + above ? -128.0 - below : 127.0 - above;
    if (!(point > -128.0))
        return -128;
    if (point >= 127.0)
        return 127;
    return (int32_t)(point < 0.0 ? point - 0.49999999999999994 : point + 0.49999999999999994);
}

/* With a zero point between -128 and 127, which is subtracted from the steps; returns the scale, 1 for all zeros. */
MT_OPERATOR float mt_dynamic_from_end_to_end(const float *x, int16_t *steps, int32_t count)
{
    float low = 0.0f, high = 0.0f;
    for (int32_t i = 0; i < count; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (!(low < high))
        high = 255.0f;
    const int32_t point = mt_dynamic_zero_point(low, high);
    const float scale = (high - low) / 255.0f, inverse = 1.0f / scale;
    const float least = (float)(-128 - point), most = (float)(127 - point);
    for (int32_t i = 0; i < count; ++i)
        steps[i] = mt_dynamic_step(x[i] * inverse, least, most);
    return scale;
}

#ifdef __cplusplus
}
#endif

#endif
