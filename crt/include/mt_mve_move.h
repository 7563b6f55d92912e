/* Internal to mtool: applications include mtool.h. */
/* Copies with Helium. Plain C where mt_mve.h is. */
#ifndef MT_MVE_MOVE_H
#define MT_MVE_MOVE_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* memmove, fast if the target is below the source or does not overlap it. */
MT_MVE_INLINE void mt_mve_move(void *output, const void *input, uint32_t bytes)
{
#ifdef MT_MVE_ASM
    if ((uintptr_t)output > (uintptr_t)input && (uintptr_t)output - (uintptr_t)input < bytes)
        memmove(output, input, bytes);
    else
        __asm__ volatile("wlstp.8 lr, %[n], 2f\n\t"
                         "1:\n\t"
                         "vldrb.u8 q0, [%[i]], #16\n\t"
                         "vstrb.8 q0, [%[o]], #16\n\t"
                         "letp lr, 1b\n\t"
                         "2:"
                         : [i] "+&r"(input), [o] "+&r"(output)
                         : [n] "r"(bytes)
                         : "lr", "q0", "cc", "memory");
#else
    memmove(output, input, bytes);
#endif
}

/* memset. */
MT_MVE_INLINE void mt_mve_set(int8_t *output, int8_t value, uint32_t bytes)
{
#ifdef MT_MVE_ASM
    __asm__ volatile("vdup.8 q0, %[v]\n\t"
                     "wlstp.8 lr, %[n], 2f\n\t"
                     "1:\n\t"
                     "vstrb.8 q0, [%[o]], #16\n\t"
                     "letp lr, 1b\n\t"
                     "2:"
                     : [o] "+&r"(output)
                     : [n] "r"(bytes), [v] "r"(value)
                     : "lr", "q0", "cc", "memory");
#else
    memset(output, value, bytes);
#endif
}

/* `rows` rows of `row` bytes, `step` apart, side by side. */
MT_MVE_INLINE void mt_mve_move_rows(int8_t *output, const int8_t *input, int32_t rows, int32_t row, int32_t step)
{
#ifdef MT_MVE_ASM
    const mve_pred16_t last = (mve_pred16_t)((1U << row % 16) - 1U);
    for (int32_t i = 0; i < rows; ++i, output += row, input += step) {
        int32_t k = 0;
#pragma GCC unroll 8
        for (; k + 16 <= row; k += 16)
            vstrbq_s8(output + k, vldrbq_s8(input + k));
        if (k < row)
            vstrbq_p_s8(output + k, vldrbq_z_s8(input + k, last), last);
    }
#else
    for (int32_t i = 0; i < rows; ++i, output += row, input += step)
        memcpy(output, input, (size_t)row);
#endif
}

#ifdef __cplusplus
}
#endif

#endif
