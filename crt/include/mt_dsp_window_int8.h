/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of int8 with SIMD32: four channels at a time. Plain C where mt_dsp.h is. */
#ifndef MT_DSP_WINDOW_INT8_H
#define MT_DSP_WINDOW_INT8_H

#include "mt_dsp.h"
#include "mt_window_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

MT_DSP_INLINE uint32_t mt_dsp_four(const int8_t *x)
{
    uint32_t word;
    memcpy(&word, x, 4);
    return word;
}

#ifdef MT_DSP_ASM

/* The larger byte of each pair. */
MT_DSP_INLINE uint32_t mt_dsp_max4(uint32_t a, uint32_t b)
{
    uint32_t larger;
    __asm__("ssub8 %0, %1, %2\n\t"
            "sel %0, %1, %2"
            : "=&r"(larger)
            : "r"(a), "r"(b)
            : "cc");
    return larger;
}

/* Add bytes 0 and 2 to the halves of `even`, bytes 1 and 3 to those of `odd`. */
MT_DSP_INLINE void mt_dsp_add4(uint32_t word, uint32_t *even, uint32_t *odd)
{
    __asm__("sxtab16 %0, %0, %2\n\t"
            "sxtab16 %1, %1, %2, ror #8"
            : "+&r"(*even), "+r"(*odd)
            : "r"(word));
}

#else

MT_DSP_INLINE uint32_t mt_dsp_max4(uint32_t a, uint32_t b)
{
    uint32_t larger = 0;
    for (int32_t shift = 0; shift < 32; shift += 8) {
        const int8_t left = (int8_t)(a >> shift & 255), right = (int8_t)(b >> shift & 255);
        larger |= (uint32_t)(uint8_t)(left > right ? left : right) << shift;
    }
    return larger;
}

MT_DSP_INLINE void mt_dsp_add4(uint32_t word, uint32_t *even, uint32_t *odd)
{
    uint32_t *const sums[2] = {even, odd};
    for (int32_t i = 0; i < 2; ++i) {
        const uint32_t pair = (uint32_t)mt_dsp_sxtb16(i ? word >> 8 | word << 24 : word);
        *sums[i] = ((*sums[i] + pair) & 0xffff) | ((*sums[i] & 0xffff0000u) + (pair & 0xffff0000u));
    }
}

#endif

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` bytes apart. */
MT_DSP_INLINE void mt_dsp_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    for (; channels >= 4; channels -= 4, x += 4, output += 4) {
        uint32_t most = mt_dsp_four(x);
        const int8_t *row = x;
        for (int32_t i = 0; i < rows; ++i, row += row_step) {
            const int8_t *from = row;
            MT_UNROLL(4)
            for (int32_t j = 0; j < columns; ++j, from += column_step)
                most = mt_dsp_max4(most, mt_dsp_four(from));
        }
        memcpy(output, &most, 4);
    }
    mt_window_max(x, output, rows, columns, row_step, column_step, channels);
}

/* The sum of each channel, over at most 255 columns. */
MT_DSP_INLINE void mt_dsp_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    const int32_t band = 255 / columns; /* rows whose sums stay within 16 bits */
    for (; channels >= 4; channels -= 4, x += 4, output += 4) {
        int32_t sums[4] = {0, 0, 0, 0};
        const int8_t *row = x;
        for (int32_t first = 0; first < rows; first += band) {
            uint32_t even = 0, odd = 0;
            for (int32_t i = first; i < rows && i < first + band; ++i, row += row_step) {
                const int8_t *from = row;
                MT_UNROLL(4)
                for (int32_t j = 0; j < columns; ++j, from += column_step)
                    mt_dsp_add4(mt_dsp_four(from), &even, &odd);
            }
            sums[0] += (int16_t)(even & 0xffff);
            sums[1] += (int16_t)(odd & 0xffff);
            sums[2] += (int16_t)(even >> 16);
            sums[3] += (int16_t)(odd >> 16);
        }
        memcpy(output, sums, 16);
    }
    mt_window_sum(x, output, rows, columns, row_step, column_step, channels);
}

#ifdef __cplusplus
}
#endif

#endif
