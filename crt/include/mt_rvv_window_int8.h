/* Internal to mtool: applications include mtool.h. */
/* Pooling windows of int8 with RISC-V vectors of channels. Plain C where mt_rvv.h is. */
#ifndef MT_RVV_WINDOW_INT8_H
#define MT_RVV_WINDOW_INT8_H

#include "mt_rvv.h"
#include "mt_window_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_RVV_ASM

/* Rows by columns from %[x] on, with a `step` each; t0 is the present row, t1 the column, t2 and t3 count the
 * remaining ones. */
#define MT_RVV_WINDOW(type, begin, step, end)                                                          \
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], %[left], " type ", ta, ma\n\t" begin                 \
                     "mv t0, %[x]\n\t"                                                                 \
                     "mv t2, %[rows]\n\t"                                                              \
                     "1:\n\t"                                                                          \
                     "mv t1, t0\n\t"                                                                   \
                     "mv t3, %[columns]\n\t"                                                           \
                     "2:\n\t"                                                                          \
                     "vle8.v v8, (t1)\n\t" step                                                        \
                     "add t1, t1, %[column]\n\t"                                                       \
                     "addi t3, t3, -1\n\t"                                                             \
                     "bnez t3, 2b\n\t"                                                                 \
                     "add t0, t0, %[row]\n\t"                                                          \
                     "addi t2, t2, -1\n\t"                                                             \
                     "bnez t2, 1b\n\t" end MT_RVV_END                                                  \
                     : [vl] "=&r"(vl)                                                                  \
                     : [left] "r"(channels - at), [x] "r"(x + at), [o] "r"(output + at), [rows] "r"(rows), \
                       [columns] "r"(columns), [row] "r"(row_step), [column] "r"(column_step), [least] "r"(-128) \
                     : "t0", "t1", "t2", "t3", MT_RVV_VECTORS "memory")

/* The maximum of each channel over a window of rows by columns, `row_step` and `column_step` bytes apart. */
MT_RVV_INLINE void mt_rvv_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    int32_t vl;
    for (int32_t at = 0; at < channels; at += vl)
        MT_RVV_WINDOW("e8, m8", "vmv.v.x v16, %[least]\n\t", "vmax.vv v16, v16, v8\n\t", "vse8.v v16, (%[o])\n\t");
}

/* The sum of each channel. */
MT_RVV_INLINE void mt_rvv_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    int32_t vl;
    for (int32_t at = 0; at < channels; at += vl)
        MT_RVV_WINDOW("e16, m4", "vwsub.vv v24, v0, v0\n\t",
                      "vsext.vf2 v12, v8\n\tvwadd.wv v24, v24, v12\n\t", "vse32.v v24, (%[o])\n\t");
}

#else

MT_RVV_INLINE void mt_rvv_max(const int8_t *x, int8_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    mt_window_max(x, output, rows, columns, row_step, column_step, channels);
}

MT_RVV_INLINE void mt_rvv_sum(const int8_t *x, int32_t *output, int32_t rows, int32_t columns, int32_t row_step,
                              int32_t column_step, int32_t channels)
{
    mt_window_sum(x, output, rows, columns, row_step, column_step, channels);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
