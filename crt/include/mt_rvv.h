/* Internal to mtool: applications include mtool.h. */
/* Common parts of operators with RISC-V vectors (V 1.0; Zve32x is enough; any vector length).
 *
 * A vector holds output channels, whatever number fits into the core's registers: results do not depend on it. They are
 * those of mt_requantize_fixed, mt_requantize_fixed_exact, mt_requantize_fixed_even or mt_scaled, bit for bit. On other
 * cores, and with MT_PORTABLE defined, the same functions are plain C. GCC 12 and older lack the extension's macro but
 * accept its assembly: MT_RVV states that the core has it.
 *
 * Each piece of assembly sets the vector length and type itself, and leaves nothing in vector registers. */
#ifndef MT_RVV_H
#define MT_RVV_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && defined(__riscv) && (defined(__riscv_vector) || defined(MT_RVV)) && !defined(MT_PORTABLE)
#define MT_RVV_ASM 1
#endif

#if defined(__GNUC__)
#define MT_RVV_INLINE static inline __attribute__((always_inline))
#else
#define MT_RVV_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* How sums become int8, and the packed values of a channel. */
enum mt_rvv_scaling {
    MT_RVV_FIXED, /* mt_requantize_fixed: a multiplier */
    MT_RVV_NEAR,  /* mt_requantize_fixed_exact: a multiplier, negative if results near a half are checked */
    MT_RVV_EVEN,  /* mt_requantize_fixed_even: a multiplier */
    MT_RVV_ONCE,  /* mt_scaled: a multiplier and places, from 1 to 31 */
    MT_RVV_TWICE
};

/* The output's limits; the last argument of the scaling function before `low`, and its name for the offset or zero
 * point. The assembly reads them at these offsets. */
struct mt_rvv_range {
    int32_t offset, shift, low, high;
};

/* A sum scaled with its channel's packed values; `places` only for MT_RVV_ONCE and MT_RVV_TWICE. */
MT_RVV_INLINE int8_t mt_rvv_narrow(int32_t sum, int32_t multiplier, int32_t places, enum mt_rvv_scaling by,
                                   const struct mt_rvv_range *how)
{
    int32_t steps;
    if (by == MT_RVV_FIXED)
        steps = mt_requantize_fixed(sum, multiplier, how->offset, how->shift, how->low, how->high);
    else if (by == MT_RVV_NEAR)
        steps = mt_requantize_fixed_exact(sum, multiplier, how->offset, how->shift, how->low, how->high);
    else if (by == MT_RVV_EVEN)
        steps = mt_requantize_fixed_even(sum, multiplier, how->offset, how->shift, how->low, how->high);
    else
        steps = mt_clamp(mt_scaled(by == MT_RVV_TWICE ? MT_TWICE : MT_ONCE, sum, multiplier, places) + how->offset,
                         how->low, how->high);
    return (int8_t)steps;
}

/* Words packed for a channel in addition to its weights. */
MT_RVV_INLINE int32_t mt_rvv_words(enum mt_rvv_scaling by)
{
    return by == MT_RVV_ONCE || by == MT_RVV_TWICE ? 3 : 2;
}

#ifdef MT_RVV_ASM

#if __riscv_xlen == 64
#define MT_RVV_POINTER(register, number) "ld " register ", 8*" #number
#else
#define MT_RVV_POINTER(register, number) "lw " register ", 4*" #number
#endif

/* The assembler's extension is enabled for these lines only. */
#define MT_RVV_BEGIN            \
    ".option push\n\t"          \
    ".option arch, +zve32x\n\t" \
    ".option arch, +zicsr\n\t"
#define MT_RVV_END ".option pop"

#if defined(__riscv_vector)
#define MT_RVV_VECTORS                                                                                                \
    "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",      \
        "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "vl", \
        "vtype",
#else /* compiled code keeps no vectors in registers */
#define MT_RVV_VECTORS
#endif

#define MT_RVV_LEAST_BYTES 32 /* that eight registers hold at least: Zve32x has 32 bits each */

/* Copy as many of `count` bytes as fit; returns their number. */
MT_RVV_INLINE size_t mt_rvv_copy_some(int8_t *to, const int8_t *from, size_t count)
{
    size_t vl;
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], %[count], e8, m8, ta, ma\n\t"
                                  "vle8.v v8, (%[from])\n\t"
                                  "vse8.v v8, (%[to])\n\t" MT_RVV_END
                     : [vl] "=&r"(vl)
                     : [count] "r"(count), [from] "r"(from), [to] "r"(to)
                     : MT_RVV_VECTORS "memory");
    return vl;
}

/* Set bytes. */
MT_RVV_INLINE void mt_rvv_fill(int8_t *to, int32_t value, size_t count)
{
    for (size_t vl; count; count -= vl, to += vl)
        __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], %[count], e8, m8, ta, ma\n\t"
                                      "vmv.v.x v8, %[value]\n\t"
                                      "vse8.v v8, (%[to])\n\t" MT_RVV_END
                         : [vl] "=&r"(vl)
                         : [count] "r"(count), [value] "r"(value), [to] "r"(to)
                         : MT_RVV_VECTORS "memory");
}

/* Copy bytes; `from` may be at `to` or after it. */
MT_RVV_INLINE void mt_rvv_copy(int8_t *to, const int8_t *from, size_t count)
{
    if (__builtin_constant_p(count) && count && count <= MT_RVV_LEAST_BYTES) {
        (void)mt_rvv_copy_some(to, from, count);
        return;
    }
    for (size_t vl; count; count -= vl, from += vl, to += vl)
        vl = mt_rvv_copy_some(to, from, count);
}

#else

MT_RVV_INLINE void mt_rvv_copy(int8_t *to, const int8_t *from, size_t count)
{
    memmove(to, from, count);
}

MT_RVV_INLINE void mt_rvv_fill(int8_t *to, int32_t value, size_t count)
{
    memset(to, value, count);
}

#endif

/* Copy bytes of ranges that may overlap. */
MT_RVV_INLINE void mt_rvv_move(void *output, const void *input, size_t count)
{
    int8_t *const to = (int8_t *)output;
    const int8_t *const from = (const int8_t *)input;
#ifdef MT_RVV_ASM
    if ((uintptr_t)to > (uintptr_t)from && (uintptr_t)to < (uintptr_t)(from + count)) {
        int8_t piece[64]; /* from the end backwards */
        for (size_t some; count; count -= some) {
            some = count < sizeof(piece) ? count : sizeof(piece);
            mt_rvv_copy(piece, from + count - some, some);
            mt_rvv_copy(to + count - some, piece, some);
        }
        return;
    }
#endif
    mt_rvv_copy(to, from, count);
}

#ifdef __cplusplus
}
#endif

#endif
