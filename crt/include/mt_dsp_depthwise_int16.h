/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int16 activations with SIMD32: pairs of taps slide over a plane. See mt_dsp_int16.h and
 * mt_dsp_depthwise_int8.h. */
#ifndef MT_DSP_DEPTHWISE_INT16_H
#define MT_DSP_DEPTHWISE_INT16_H

#include "mt_dsp_int16.h"
#include "mt_dsp_depthwise_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

MT_DSP_INLINE int16_t mt_dsp16_requantize(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
#ifdef MT_DSP_FPU
    float value = (float)acc * scale;
    int32_t step;
    __asm__("vcvtr.s32.f32 %0, %0\n\t"
            "vmov %1, %0"
            : "+t"(value), "=r"(step));
    if (zero_point != 0)
        __asm__("qadd %0, %0, %1" : "+r"(step) : "r"(zero_point) : "cc");
    if (low == 0 && high == 32767) {
        __asm__("usat %0, #15, %0" : "+r"(step) : : "cc");
        return (int16_t)step;
    }
    __asm__("ssat %0, #16, %0" : "+r"(step) : : "cc");
    if (low > -32768)
        step = step > low ? step : low;
    if (high < 32767)
        step = step < high ? step : high;
    return (int16_t)step;
#else
    return (int16_t)mt_requantize_wide(acc, scale, zero_point, low, high);
#endif
}

/* As mt_dsp_sweep, with int16 outputs `step` elements apart. */
MT_DSP_INLINE void mt_dsp16_sweep(const int16_t *plane, int16_t *output, const int16_t *taps, int32_t bias,
                                  float scale, int32_t rows, int32_t steps, int32_t next, int32_t stride, int32_t count,
                                  int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    for (; count > 0; count -= 4, plane += 4 * stride, output += 4 * step) {
        int32_t sums[4] = {bias, bias, bias, bias};
        mt_dsp_outputs4(sums, plane, taps, rows, steps, next, stride);
        output[0] = mt_dsp16_requantize(sums[0], scale, zero_point, low, high);
        if (count > 1)
            output[step] = mt_dsp16_requantize(sums[1], scale, zero_point, low, high);
        if (count > 2)
            output[2 * step] = mt_dsp16_requantize(sums[2], scale, zero_point, low, high);
        if (count > 3)
            output[3 * step] = mt_dsp16_requantize(sums[3], scale, zero_point, low, high);
    }
}

/* The same, but the results are the sums. */
MT_DSP_INLINE void mt_dsp16_sweep_sums(const int16_t *plane, int32_t *output, const int16_t *taps, int32_t bias,
                                       int32_t rows, int32_t steps, int32_t next, int32_t stride, int32_t count,
                                       int32_t step)
{
    for (; count > 0; count -= 4, plane += 4 * stride, output += 4 * step) {
        int32_t sums[4] = {bias, bias, bias, bias};
        mt_dsp_outputs4(sums, plane, taps, rows, steps, next, stride);
        MT_UNROLL(4)
        for (int32_t i = 0; i < 4; ++i)
            if (i == 0 || count > i)
                output[i * step] = sums[i];
    }
}

#ifdef __cplusplus
}
#endif

#endif
