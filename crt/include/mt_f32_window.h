/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of float32: one channel at a time, in the order of the portable loops. */
#ifndef MT_F32_WINDOW_H
#define MT_F32_WINDOW_H

#include <stdint.h>

#include "mt_math.h"
#include "mt_scalar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` elements apart. */
static inline void mt_f32_max(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    for (; channels; --channels, ++x, ++output) {
        float most = *x;
        const float *row = x;
        for (int32_t i = 0; i < rows; ++i, row += row_step) {
            const float *from = row;
            MT_UNROLL(4)
            for (int32_t j = 0; j < columns; ++j, from += column_step)
                most = mt_max_f32(most, *from);
        }
        *output = most;
    }
}

/* The sum of each channel: up to 16 elements of a row are summed from zero, and these sums are added with
 * compensation for rounding. */
static inline void mt_f32_sum(const float *x, float *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    if (columns == 1 || row_step == columns * column_step) { /* as one row */
        column_step = columns == 1 ? row_step : column_step;
        columns *= rows;
        rows = 1;
    }
    for (; channels; --channels, ++x, ++output) {
        float sum = 0.0f, rest = 0.0f;
        const float *row = x;
        for (int32_t i = 0; i < rows; ++i, row += row_step) {
            const float *from = row;
            int32_t left = columns;
            float part = 0.0f;
            for (; left >= 16; left -= 16) {
                MT_UNROLL(4)
                for (int32_t j = 0; j < 16; ++j, from += column_step)
                    part += *from;
                mt_add_f32(&sum, &rest, part);
                part = 0.0f;
            }
            for (; left > 0; --left, from += column_step)
                part += *from;
            mt_add_f32(&sum, &rest, part);
        }
        *output = mt_total_f32(sum, rest);
    }
}

#ifdef __cplusplus
}
#endif

#endif
