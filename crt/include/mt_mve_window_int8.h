/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of int8 with Helium: 16 channels at a time. Plain C where mt_mve.h is. */
#ifndef MT_MVE_WINDOW_INT8_H
#define MT_MVE_WINDOW_INT8_H

#include "mt_mve.h"
#include "mt_window_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` bytes apart. */
MT_MVE_INLINE void mt_mve_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    for (; channels > 0; channels -= 16, x += 16, output += 16) {
        const mve_pred16_t lanes = vctp8q((uint32_t)channels);
        int8x16_t most = vdupq_n_s8(-128);
        const int8_t *row = x;
        for (int32_t i = 0; i < rows; ++i, row += row_step) {
            const int8_t *from = row;
            for (int32_t j = 0; j < columns; ++j, from += column_step)
                most = vmaxq_s8(most, vldrbq_z_s8(from, lanes));
        }
        vstrbq_p_s8(output, most, lanes);
    }
}

/* The sum of each channel. */
MT_MVE_INLINE void mt_mve_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    for (; channels > 0; channels -= 4, x += 4, output += 4) {
        const mve_pred16_t lanes = vctp32q((uint32_t)channels);
        int32x4_t sums = vdupq_n_s32(0);
        const int8_t *row = x;
        for (int32_t i = 0; i < rows; ++i, row += row_step) {
            const int8_t *from = row;
            for (int32_t j = 0; j < columns; ++j, from += column_step)
                sums = vaddq_s32(sums, vldrbq_z_s32(from, lanes));
        }
        vstrwq_p_s32(output, sums, lanes);
    }
}

#else

MT_MVE_INLINE void mt_mve_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    mt_window_max(x, output, rows, columns, row_step, column_step, channels);
}

MT_MVE_INLINE void mt_mve_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    mt_window_sum(x, output, rows, columns, row_step, column_step, channels);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
