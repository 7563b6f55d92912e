/* Internal to mtool: applications include mtool.h. */
/* A sum of two int8 tensors with different scales, with RISC-V vectors: a residual addition. See mt_rvv.h. */
#ifndef MT_RVV_PAIR_INT8_H
#define MT_RVV_PAIR_INT8_H

#include "mt_rvv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clamp((a * left + b * right + offset) / 2^shift + zero_point), rounded down; to nearest, ties to even, if `even`. */
struct mt_rvv_pair {
    int32_t left, right, offset, shift, zero_point, low, high, even;
};

/* `count` sums of a and b; the output may be one of them. */
MT_OPERATOR void mt_rvv_pairs(const int8_t *a, const int8_t *b, int8_t *output, int32_t count,
                              const struct mt_rvv_pair *how)
{
#ifdef MT_RVV_ASM
    int32_t vl;
    for (; count > 0; count -= vl, a += vl, b += vl, output += vl)
        __asm__ volatile(MT_RVV_BEGIN "csrw vxrm, %[rounding]\n\t"
                                      "vsetvli %[vl], %[count], e32, m8, ta, ma\n\t"
                                      "vle8.v v0, (%[a])\n\t"
                                      "vle8.v v2, (%[b])\n\t"
                                      "vsext.vf4 v8, v0\n\t"
                                      "vsext.vf4 v16, v2\n\t"
                                      "vmul.vx v8, v8, %[left]\n\t"
                                      "vmacc.vx v8, %[right], v16\n\t"
                                      "vadd.vx v8, v8, %[offset]\n\t"
                                      "vsetvli zero, zero, e16, m4, ta, ma\n\t"
                                      "vnclip.wx v8, v8, %[shift]\n\t"
                                      "vsadd.vx v8, v8, %[zero]\n\t"
                                      "vsetvli zero, zero, e8, m2, ta, ma\n\t"
                                      "vnclip.wi v8, v8, 0\n\t"
                                      "vmax.vx v8, v8, %[low]\n\t"
                                      "vmin.vx v8, v8, %[high]\n\t"
                                      "vse8.v v8, (%[o])\n\t" MT_RVV_END
                         : [vl] "=&r"(vl)
                         : [count] "r"(count), [a] "r"(a), [b] "r"(b), [o] "r"(output), [left] "r"(how->left),
                           [right] "r"(how->right), [offset] "r"(how->offset), [shift] "r"(how->shift),
                           [zero] "r"(how->zero_point), [low] "r"(how->low), [high] "r"(how->high),
                           [rounding] "r"(how->even ? 1 : 2)
                         : MT_RVV_VECTORS "memory");
#else
    for (int32_t i = 0; i < count; ++i) {
        const int32_t total = a[i] * how->left + b[i] * how->right + how->offset;
        const int32_t steps = how->even ? mt_shift_even(total, how->shift) : total >> how->shift;
        output[i] = (int8_t)mt_clamp(steps + how->zero_point, how->low, how->high);
    }
#endif
}

#ifdef __cplusplus
}
#endif

#endif
