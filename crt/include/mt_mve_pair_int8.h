/* Internal to mtool: applications include mtool.h. */
/* Sums of two int8 tensors with a scale each, with Helium. Plain C where mt_mve.h is. */
#ifndef MT_MVE_PAIR_INT8_H
#define MT_MVE_PAIR_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clamp((a * left + b * right + offset) >> shift). */
struct mt_mve_pair {
    int32_t left, right, offset, shift, low, high;
};

/* `count` elements; the output may be one of the inputs. */
MT_MVE_INLINE void mt_mve_rescale_pair(const int8_t *a, const int8_t *b, int8_t *output, int32_t count,
                                       const struct mt_mve_pair *how)
{
#ifdef MT_MVE_ASM
    const int32x4_t left = vdupq_n_s32(how->left), low = vdupq_n_s32(how->low), high = vdupq_n_s32(how->high);
    __asm__ volatile("wlstp.32 lr, %[n], 2f\n\t"
                     "1:\n\t"
                     "vldrb.s32 q0, [%[a]], #4\n\t"
                     "vmlas.s32 q0, %q[left], %[offset]\n\t"
                     "vldrb.s32 q1, [%[b]], #4\n\t"
                     "vmla.s32 q0, q1, %[right]\n\t"
                     "vshl.s32 q0, %[shift]\n\t"
                     "vmax.s32 q0, q0, %q[low]\n\t"
                     "vmin.s32 q0, q0, %q[high]\n\t"
                     "vstrb.32 q0, [%[o]], #4\n\t"
                     "letp lr, 1b\n\t"
                     "2:"
                     : [a] "+&l"(a), [b] "+&l"(b), [o] "+&l"(output)
                     : [n] "r"(count), [left] "w"(left), [low] "w"(low), [high] "w"(high), [offset] "r"(how->offset),
                       [right] "r"(how->right), [shift] "r"(-how->shift)
                     : "lr", "q0", "q1", "cc", "memory");
#else
    for (; count > 0; --count)
        *output++ = (int8_t)mt_clamp((*a++ * how->left + *b++ * how->right + how->offset) >> how->shift, how->low,
                                     how->high);
#endif
}

#ifdef __cplusplus
}
#endif

#endif
