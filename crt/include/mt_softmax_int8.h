/* Internal to mtool: applications include mtool.h. */
/* Softmax of int8 to 8 bits, in integers. Where a share lies so near to a half that float32's rounding may decide, the
 * row is summed up in floats, as portable C does for all: the results are the same. */
#ifndef MT_SOFTMAX_INT8_H
#define MT_SOFTMAX_INT8_H

#include <stdint.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* exponential: exp(scale * d) for d = -255 to 0; power: the same times 2^bits. The result is share / scale, rounded,
 * plus zero_point. `places`: the fractional bits of mt_softmax_share. A sum of floats differs from that of integers
 * by less than 2^-exact of it. */
struct mt_softmax_int8 {
    const float *exponential;
    const uint32_t *power;
    float scale;
    int32_t zero_point, low, high, length, places, exact;
};

/* power * inverse / 2^32, rounded down; on cores without such an instruction less by up to MT_SOFTMAX_LESS, for powers
 * up to 2^bits and inverses up to 2^30. */
static inline uint32_t mt_softmax_share(uint32_t power, uint32_t inverse, int32_t bits)
{
#ifdef MT_NO_LONG_PRODUCT
    return (power >> (bits - 16)) * (inverse >> 15) >> (33 - bits);
#else
    (void)bits;
    return (uint32_t)(((uint64_t)power * inverse) >> 32);
#endif
}
#ifdef MT_NO_LONG_PRODUCT
#define MT_SOFTMAX_LESS(bits) ((1u << (bits - 18)) + (1u << (bits - 17)) + 1)
#else
#define MT_SOFTMAX_LESS(bits) 1u
#endif

/* The result of an element. */
static MT_COLD int32_t mt_softmax_near(const struct mt_softmax_int8 *how, const int8_t *row, int32_t top, int32_t i,
                                       uint32_t inverse)
{
    const uint32_t power = how->power[255 + row[i] - top];
    const int32_t places = 32 + how->places;
    const uint64_t share = (uint64_t)power * inverse, half = (uint64_t)1 << (places - 1);
    const uint64_t rest = (share + half) & (2 * half - 1);
    const uint64_t apart = (share >> how->exact) + (inverse >> 1) + power + 1;
    float sum = 0.0f, lost = 0.0f;
    if (rest > apart && rest < 2 * half - apart)
        return mt_clamp((int32_t)((share + half) >> places) + how->zero_point, how->low, how->high);
    for (int32_t first = 0; first < how->length; first += 16) {
        float part = 0.0f;
        for (int32_t n = first; n < how->length && n < first + 16; ++n)
            part += how->exponential[255 + row[n] - top];
        if (how->length <= 16)
            sum = part;
        else
            mt_add_f32(&sum, &lost, part);
    }
    if (how->length > 16)
        sum = mt_total_f32(sum, lost);
    return mt_quantize(how->exponential[255 + row[i] - top] / sum, how->scale, how->zero_point, how->low, how->high);
}

#ifdef __cplusplus
}
#endif

#endif
