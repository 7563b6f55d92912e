/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int16 activations with Helium: eight lanes of channels. See mt_mve_int16.h. */
#ifndef MT_MVE_DEPTHWISE_INT16_H
#define MT_MVE_DEPTHWISE_INT16_H

#include "mt_mve_int16.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* The sums of eight channels, the even and the odd ones; returns the place of their scales. */
MT_MVE_INLINE const int8_t *mt_mve16_lane_sums(const int16_t *base, const int32_t *taps, int32_t count,
                                               const int8_t *weights, int32_t c, int32_t lanes, int32x4_t *evens,
                                               int32x4_t *odds)
{
    const mve_pred16_t wanted = vctp16q((uint32_t)lanes);
    int32x4_t even = vldrwq_s32((const int32_t *)(const void *)weights);
    int32x4_t odd = vldrwq_s32((const int32_t *)(const void *)(weights + 16));
    weights += 32;
    MT_UNROLL(3)
    for (int32_t t = 0; t < count; ++t, weights += 8) {
        const int16_t *const at = base + c + taps[t];
        const int16x8_t x = lanes < 8 ? vldrhq_z_s16(at, wanted) : vldrhq_s16(at), w = vldrbq_s16(weights);
        even = vaddq_s32(even, vmullbq_int_s16(x, w));
        odd = vaddq_s32(odd, vmulltq_int_s16(x, w));
    }
    *evens = even;
    *odds = odd;
    return weights;
}

/* A pixel of a depthwise convolution, eight channels at a time: `taps` has the first channel's element for each tap,
 * counted from `base`. For each eight channels the weights are: biases of the even and the odd ones, eight weights
 * for each tap, scales of the even and the odd ones. */
MT_MVE_INLINE const int8_t *mt_mve16_lanes(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output,
                                           const int8_t *weights, int32_t c, int32_t lanes,
                                           const struct mt_mve16_range *range)
{
    const int16x8_t low = vldrhq_s16(range->low), high = vldrhq_s16(range->high);
    const mve_pred16_t wanted = vctp16q((uint32_t)lanes);
    int32x4_t even, odd;
    weights = mt_mve16_lane_sums(base, taps, count, weights, c, lanes, &even, &odd);
    const float32x4_t first = vldrwq_f32((const float *)(const void *)weights);
    const float32x4_t second = vldrwq_f32((const float *)(const void *)(weights + 16));
    even = vqaddq_n_s32(vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(even), first)), range->zero_point);
    odd = vqaddq_n_s32(vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(odd), second)), range->zero_point);
    const int16x8_t both = vqmovntq_s32(vqmovnbq_s32(low, even), odd);
    vstrhq_p_s16(output + c, vminq_s16(vmaxq_s16(both, low), high), wanted);
    return weights + 32;
}

MT_MVE_INLINE void mt_mve16_pixel(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output,
                                  const int8_t *weights, int32_t channels, const struct mt_mve16_range *range)
{
    int32_t c = 0;
    for (; c <= channels - 8; c += 8)
        weights = mt_mve16_lanes(base, taps, count, output, weights, c, 8, range);
    if (c < channels)
        mt_mve16_lanes(base, taps, count, output, weights, c, channels - c, range);
}

/* The same for whole eights without scales: the results are the sums. */
MT_MVE_INLINE void mt_mve16_pixel_sums(const int16_t *base, const int32_t *taps, int32_t count, int32_t *output,
                                       const int8_t *weights, int32_t channels)
{
    for (int32_t c = 0; c < channels; c += 8) {
        int32x4x2_t sums;
        if (c <= channels - 8)
            weights = mt_mve16_lane_sums(base, taps, count, weights, c, 8, &sums.val[0], &sums.val[1]);
        else
            weights = mt_mve16_lane_sums(base, taps, count, weights, c, channels - c, &sums.val[0], &sums.val[1]);
        vst2q_s32(output + c, sums);
    }
}

#else /* portable version */

/* The sum of channel c of eight, whose bias is at `lane`. */
MT_MVE_INLINE int32_t mt_mve16_lane_sum(const int16_t *base, const int32_t *taps, int32_t count, const int8_t *group,
                                        int32_t c, int32_t lane)
{
    int32_t sum;
    memcpy(&sum, group + lane, 4);
    for (int32_t t = 0; t < count; ++t)
        sum += base[taps[t] + c] * group[32 + 8 * t + c % 8];
    return sum;
}

MT_MVE_INLINE void mt_mve16_pixel(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output,
                                  const int8_t *weights, int32_t channels, const struct mt_mve16_range *range)
{
    for (int32_t c = 0; c < channels; ++c) {
        const int8_t *const group = weights + c / 8 * (64 + 8 * count);
        const int32_t lane = c % 2 * 16 + c % 8 / 2 * 4; /* the place of the channel's bias and scale */
        const int32_t sum = mt_mve16_lane_sum(base, taps, count, group, c, lane);
        output[c] = mt_mve16_narrow(sum, group + 32 + 8 * count + lane, range);
    }
}

MT_MVE_INLINE void mt_mve16_pixel_sums(const int16_t *base, const int32_t *taps, int32_t count, int32_t *output,
                                       const int8_t *weights, int32_t channels)
{
    for (int32_t c = 0; c < channels; ++c) {
        const int8_t *const group = weights + c / 8 * (32 + 8 * count);
        output[c] = mt_mve16_lane_sum(base, taps, count, group, c, c % 2 * 16 + c % 8 / 2 * 4);
    }
}

#endif

MT_OPERATOR void mt_mve16_taps(const int16_t *base, const int32_t *taps, int32_t count, int16_t *output,
                               const int8_t *weights, int32_t channels, const struct mt_mve16_range *range)
{
    mt_mve16_pixel(base, taps, count, output, weights, channels, range);
}

MT_OPERATOR void mt_mve16_tap_sums(const int16_t *base, const int32_t *taps, int32_t count, int32_t *output,
                                   const int8_t *weights, int32_t channels)
{
    mt_mve16_pixel_sums(base, taps, count, output, weights, channels);
}

#ifdef __cplusplus
}
#endif

#endif
