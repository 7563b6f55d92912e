/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of int8 in plain C: the remainders that mt_dsp_window_int8.h leaves, and the portable counterpart of
 * mt_mve_window_int8.h and mt_rvv_window_int8.h. */
#ifndef MT_WINDOW_INT8_H
#define MT_WINDOW_INT8_H

#include <stdint.h>

#if defined(__GNUC__)
#define MT_WINDOW_INLINE static inline __attribute__((always_inline))
#else
#define MT_WINDOW_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` bytes apart. */
MT_WINDOW_INLINE void mt_window_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                                    int32_t column_step, int32_t channels)
{
    for (; channels > 0; --channels, ++x, ++output) {
        int8_t most = *x;
        for (int32_t i = 0; i < rows; ++i)
            for (int32_t j = 0; j < columns; ++j)
                most = x[i * row_step + j * column_step] > most ? x[i * row_step + j * column_step] : most;
        *output = most;
    }
}

/* The sum of each channel. */
MT_WINDOW_INLINE void mt_window_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                                    int32_t column_step, int32_t channels)
{
    for (; channels > 0; --channels, ++x, ++output) {
        int32_t sum = 0;
        for (int32_t i = 0; i < rows; ++i)
            for (int32_t j = 0; j < columns; ++j)
                sum += x[i * row_step + j * column_step];
        *output = sum;
    }
}

#ifdef __cplusplus
}
#endif

#endif
