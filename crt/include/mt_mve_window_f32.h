/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of float32 with Helium: four channels at a time, each in the order of mt_f32_window.h. Plain C
 * where mt_mve_f32.h is. */
#ifndef MT_MVE_WINDOW_F32_H
#define MT_MVE_WINDOW_F32_H

#include "mt_f32_window.h"
#include "mt_mve_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Four channels, or the last `lanes`. */
MT_MVE_F32_INLINE float32x4_t mt_mve_f32_some(const float *from, int whole, mve_pred16_t lanes)
{
    return whole ? vldrwq_f32(from) : vldrwq_z_f32(from, lanes);
}

MT_MVE_F32_INLINE float32x4_t mt_mve_f32_window_max(const float *row, int32_t rows, int32_t columns, int32_t row_step,
                                                    int32_t column_step, int whole, mve_pred16_t lanes)
{
    float32x4_t result = mt_mve_f32_some(row, whole, lanes);
    for (; rows > 0; --rows, row += row_step) {
        const float *from = row;
        for (int32_t j = columns; j > 0; --j, from += column_step) {
            const float32x4_t next = mt_mve_f32_some(from, whole, lanes);
            /* less or unordered, unless the maximum is NaN: as mt_max_f32 */
            result = vpselq_f32(next, result, vcmpeqq_m_f32(result, result, vcmpltq_f32(result, next)));
        }
    }
    return result;
}

MT_MVE_F32_INLINE float32x4_t mt_mve_f32_window_sum(const float *row, int32_t rows, int32_t columns, int32_t row_step,
                                                    int32_t column_step, int whole, mve_pred16_t lanes)
{
    float32x4_t sum = vdupq_n_f32(0.0f), rest = sum;
    if (columns == 1 || row_step == columns * column_step) { /* as one row */
        column_step = columns == 1 ? row_step : column_step;
        columns *= rows;
        rows = 1;
    }
    for (; rows > 0; --rows, row += row_step) {
        const float *from = row;
        for (int32_t left = columns; left > 0; left -= 16) {
            float32x4_t part = vdupq_n_f32(0.0f);
            for (int32_t j = left < 16 ? left : 16; j > 0; --j, from += column_step)
                part = vaddq_f32(part, mt_mve_f32_some(from, whole, lanes));
            const float32x4_t next = vaddq_f32(sum, part);
            rest = vaddq_f32(rest, vsubq_f32(part, vsubq_f32(next, sum)));
            sum = next;
        }
    }
    return mt_mve_f32_total(sum, rest);
}

MT_MVE_F32_INLINE float32x4_t mt_mve_f32_window(const float *row, int32_t rows, int32_t columns, int32_t row_step,
                                                int32_t column_step, int maximum, int whole, mve_pred16_t lanes)
{
    return maximum ? mt_mve_f32_window_max(row, rows, columns, row_step, column_step, whole, lanes)
                   : mt_mve_f32_window_sum(row, rows, columns, row_step, column_step, whole, lanes);
}

MT_MVE_F32_INLINE void mt_mve_f32_pool(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                                       int32_t column_step, int32_t channels, int maximum)
{
    for (; channels >= 4; channels -= 4, x += 4, output += 4)
        vstrwq_f32(output, mt_mve_f32_window(x, rows, columns, row_step, column_step, maximum, 1, 0));
    if (channels) {
        const mve_pred16_t lanes = vctp32q((uint32_t)channels);
        vstrwq_p_f32(output, mt_mve_f32_window(x, rows, columns, row_step, column_step, maximum, 0, lanes), lanes);
    }
}

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` elements apart. */
MT_OPERATOR void mt_mve_f32_max(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                                int32_t column_step, int32_t channels)
{
    mt_mve_f32_pool(x, output, rows, columns, row_step, column_step, channels, 1);
}

/* The sum of each channel. */
MT_OPERATOR void mt_mve_f32_sum(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                                int32_t column_step, int32_t channels)
{
    mt_mve_f32_pool(x, output, rows, columns, row_step, column_step, channels, 0);
}

#else

MT_OPERATOR void mt_mve_f32_max(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                                int32_t column_step, int32_t channels)
{
    mt_f32_max(x, output, rows, columns, row_step, column_step, channels);
}

MT_OPERATOR void mt_mve_f32_sum(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                                int32_t column_step, int32_t channels)
{
    mt_f32_sum(x, output, rows, columns, row_step, column_step, channels);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
