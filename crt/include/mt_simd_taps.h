/* Internal to mtool: applications include mtool.h. */
/* Depthwise products of a row of pixels, for computers (mt_simd.h). */
#ifndef MT_SIMD_TAPS_H
#define MT_SIMD_TAPS_H

#include "mt_simd.h"

/* Each of `count` taps points to the inputs of the first pixel; those of the next pixel are `step` floats further.
 * `channels` is a multiple of eight: of the inputs, of a tap's weights, and of a pixel's sums. */
#ifdef MT_SIMD_VECTORS

/* Four pixels at a time share the weights; pixels beyond the last repeat it. */
#define MT_SIMD_TAPS(attributes, name, vector)                                                                  \
    attributes void name(const float *const *taps, int32_t count, int32_t pixels, int32_t step,                 \
                         const float *weights, float *sums, int32_t channels)                                   \
    {                                                                                                           \
        const int32_t lanes = (int32_t)(sizeof(vector) / sizeof(float));                                        \
        for (int32_t pixel = 0; pixel < pixels; pixel += 4) {                                                   \
            const int32_t left = pixels - pixel - 1;                                                            \
            const int32_t n1 = left < 1 ? left : 1, n2 = left < 2 ? left : 2, n3 = left < 3 ? left : 3;         \
            for (int32_t channel = 0; channel < channels; channel += lanes) {                                   \
                const vector zero = {0};                                                                        \
                vector sum0 = zero, sum1 = zero, sum2 = zero, sum3 = zero;                                      \
                for (int32_t tap = 0; tap < count; ++tap) {                                                     \
                    const float *const x = taps[tap] + pixel * step + channel;                                  \
                    const vector w = *(const vector *)(weights + tap * channels + channel);                     \
                    sum0 += *(const vector *)x * w;                                                             \
                    sum1 += *(const vector *)(x + n1 * step) * w;                                               \
                    sum2 += *(const vector *)(x + n2 * step) * w;                                               \
                    sum3 += *(const vector *)(x + n3 * step) * w;                                               \
                }                                                                                               \
                float *const to = sums + pixel * channels + channel;                                            \
                *(vector *)to = sum0;                                                                           \
                *(vector *)(to + n1 * channels) = sum1;                                                         \
                *(vector *)(to + n2 * channels) = sum2;                                                         \
                *(vector *)(to + n3 * channels) = sum3;                                                         \
            }                                                                                                   \
        }                                                                                                       \
    }

MT_SIMD_BY_WIDTH(MT_SIMD_TAPS, mt_simd_taps,
                 (const float *const *taps, int32_t count, int32_t pixels, int32_t step, const float *weights,
                  float *sums, int32_t channels),
                 (taps, count, pixels, step, weights, sums, channels))

#else /* portable version */

static MT_ALONE void mt_simd_taps(const float *const *taps, int32_t count, int32_t pixels, int32_t step,
                                  const float *weights, float *sums, int32_t channels)
{
    for (int32_t pixel = 0; pixel < pixels; ++pixel) {
        for (int32_t channel = 0; channel < channels; ++channel) {
            float sum = 0.0f;
            for (int32_t tap = 0; tap < count; ++tap)
                sum += taps[tap][pixel * step + channel] * weights[tap * channels + channel];
            sums[pixel * channels + channel] = sum;
        }
    }
}

#endif

#endif
