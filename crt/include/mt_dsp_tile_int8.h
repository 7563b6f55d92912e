/* Internal to mtool: applications include mtool.h. */
/* Register tiles of int8 with SIMD32: three or two pixels by two output channels. Common parts of all tiles; plain C
 * where mt_dsp.h is.
 *
 * Patches are widened to int16 pairs in scratch, interleaved by tile: for each four bytes a word of (0, 2) of each
 * pixel, then of (1, 3). For each two channels the weights are: biases a and a + 256 * b, a word for two steps of k,
 * scales a and b / 256. Stored apart: biases a and b, for four steps of k a word of a and one of b, scales a and b.
 * With multipliers, instead of each scale: the multiplier, the places. */
#ifndef MT_DSP_TILE_INT8_H
#define MT_DSP_TILE_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One of `pixels` columns, filled with the same pair: padding. */
MT_DSP_INLINE int32_t *mt_dsp_fill_of(int32_t *column, int8_t value, int32_t words, int32_t pixels)
{
    const int32_t pair = (int32_t)((uint32_t)(uint16_t)value * 0x10001u);
    for (; words; --words, column += 2 * pixels)
        column[0] = column[pixels] = pair;
    return column;
}

#define MT_DSP_SUMMED 248 /* elements of a column whose sum is an int16 */

/* A sum with both halves of a pair added. */
MT_DSP_INLINE int32_t mt_dsp_add_pair(int32_t pair, int32_t sum)
{
#ifdef MT_DSP_ASM
    __asm__("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(pair), "r"(0x10001));
    return sum;
#else
    return (int32_t)mt_dsp_smlad(pair, 0x10001, (uint32_t)sum);
#endif
}

/* Append each column's sums of `count` elements, MT_DSP_SUMMED at a time, padded with 0 to whole words of four;
 * weights that are stored without an offset have it there. */
MT_DSP_INLINE void mt_dsp_sums(int32_t *columns, int32_t count, int32_t pixels)
{
    for (int32_t j = 0; j < pixels; ++j) {
        const int32_t *from = columns + j;
        int32_t *to = columns + j + count / 2 * pixels;
        int32_t left = count;
        while (left > 0)
            for (int32_t i = 0; i < 2; ++i, to += pixels) {
                int32_t sums[2] = {0, 0};
                for (int32_t half = 0; half < 2; ++half) {
                    int32_t n = left < MT_DSP_SUMMED ? left : MT_DSP_SUMMED, sum = 0;
                    for (left -= n; n; n -= 4, from += 2 * pixels)
                        sum = mt_dsp_add_pair(from[pixels], mt_dsp_add_pair(from[0], sum));
                    sums[half] = sum;
                }
                *to = (int32_t)(((uint32_t)sums[0] & 0xffffu) | (uint32_t)sums[1] << 16);
            }
    }
}

#ifndef MT_DSP_FPU

MT_DSP_INLINE int32_t *mt_dsp_widen_of(int32_t *column, const int8_t *x, int32_t words, int32_t pixels)
{
    for (; words; --words, column += 2 * pixels, x += 4) {
        uint32_t word;
        memcpy(&word, x, 4);
        column[0] = mt_dsp_sxtb16(word);
        column[pixels] = mt_dsp_sxtb16(word >> 8 | word << 24);
    }
    return column;
}

/* `pixels` columns by all output channels, two at a time: the results of a pixel go to its o. */
MT_DSP_INLINE void mt_dsp_tiles(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *const *o,
                                int32_t pairs, int apart, enum mt_scaling by, const struct mt_dsp_range *range,
                                int32_t pixels)
{
    const int32_t words = (int32_t)(end - columns) / pixels; /* of weights */
    for (int32_t n = 0; n < pairs; ++n, weights += (by == MT_BY_FLOAT ? 4 : 6) + words)
        for (int32_t j = 0; j < pixels; ++j) {
            uint32_t a = weights[0], b = weights[1];
            const uint32_t *w = weights + 2;
            for (int32_t k = 0; k < words; ++k) {
                const int32_t x = columns[pixels * k + j];
                const uint32_t wa = apart ? w[k / 2 * 2] : w[k], wb = w[k / 2 * 2 + 1];
                const int32_t turn = apart && k % 2;
                a = mt_dsp_smlad(x, mt_dsp_sxtb16(turn ? wa >> 8 | wa << 24 : wa), a);
                b = mt_dsp_smlad(x, apart ? mt_dsp_sxtb16(turn ? wb >> 8 | wb << 24 : wb) : (int32_t)wa, b);
            }
            const uint32_t *const of_b = w + words + (by == MT_BY_FLOAT ? 1 : 2);
            o[j][2 * n] = mt_dsp_narrow(a, 1, w + words, w + words, by, range);
            o[j][2 * n + 1] = mt_dsp_narrow(apart ? b : b - a, apart ? 1 : 256, of_b, w + words, by, range);
        }
}

#endif

#ifdef __cplusplus
}
#endif

#endif
