/* Internal to mtool: applications include mtool.h. */
/* Products of two int8 activations with Helium: two rows by two columns. Plain C where mt_mve.h is.
 *
 * A sum is that of the stored bytes; what the zero points add to it belongs to a column or a row. */
#ifndef MT_MVE_PRODUCT_INT8_H
#define MT_MVE_PRODUCT_INT8_H

#include "mt_math.h"
#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How sums are scaled. */
struct mt_mve_product {
    float scale;
    int32_t zero_point, low, high;
};

/* Copies `depth` bytes, `step` apart, side by side, and returns their sum. */
MT_MVE_INLINE int32_t mt_mve_product_line(int8_t *line, const int8_t *from, int32_t step, int32_t depth)
{
    int32_t sum = 0;
#ifdef MT_MVE_ASM
    const uint16x8_t offsets = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    int32_t k = 0;
    for (; k + 8 <= depth; k += 8, from += 8 * step) {
        const int16x8_t x = vldrbq_gather_offset_s16(from, offsets);
        vstrbq_s16(line + k, x);
        sum = vaddvaq_s16(sum, x);
    }
    if (k < depth) {
        const mve_pred16_t lanes = vctp16q((uint32_t)(depth - k));
        const int16x8_t x = vldrbq_gather_offset_z_s16(from, offsets, lanes);
        vstrbq_p_s16(line + k, x, lanes);
        sum = vaddvaq_p_s16(sum, x, lanes);
    }
#else
    for (int32_t k = 0; k < depth; ++k) {
        line[k] = from[k * step];
        sum += line[k];
    }
#endif
    return sum;
}

/* The sum of bytes. */
MT_MVE_INLINE int32_t mt_mve_product_sum(const int8_t *line, int32_t depth)
{
    int32_t sum = 0;
#ifdef MT_MVE_ASM
    for (int32_t k = 0; k < depth; k += 16) {
        const mve_pred16_t lanes = vctp8q((uint32_t)(depth - k));
        sum = vaddvaq_p_s8(sum, vldrbq_z_s8(line + k, lanes), lanes);
    }
#else
    for (int32_t k = 0; k < depth; ++k)
        sum += line[k];
#endif
    return sum;
}

/* Products of two rows with an even number of columns, which begin with `starts`: `sums` has the two rows side by side
 * for each pair of columns. Columns are `pitch` bytes apart. */
MT_MVE_INLINE void mt_mve_product_rows(const int8_t *first, const int8_t *second, const int8_t *columns, int32_t pitch,
                                       int32_t depth, const int32_t *starts, int32_t count, int32_t *sums)
{
    for (int32_t n = 0; n < count; n += 2, columns += 2 * pitch) {
#ifdef MT_MVE_ASM
        const int8_t *x = first, *y = second, *left = columns, *right = columns + pitch;
        register int32_t a __asm__("r4") = starts[n];
        register int32_t b __asm__("r6") = starts[n + 1];
        register int32_t c __asm__("r8") = starts[n];
        register int32_t d __asm__("r10") = starts[n + 1];
        __asm__ volatile("wlstp.8 lr, %[n], 2f\n\t"
                         "1:\n\t"
                         "vldrb.u8 q0, [%[x]], #16\n\t"
                         "vldrb.u8 q2, [%[l]], #16\n\t"
                         "vmladava.s8 %[a], q0, q2\n\t"
                         "vldrb.u8 q3, [%[r]], #16\n\t"
                         "vmladava.s8 %[b], q0, q3\n\t"
                         "vldrb.u8 q1, [%[y]], #16\n\t"
                         "vmladava.s8 %[c], q1, q2\n\t"
                         "vmladava.s8 %[d], q1, q3\n\t"
                         "letp lr, 1b\n\t"
                         "2:"
                         : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d), [x] "+&r"(x), [y] "+&r"(y),
                           [l] "+&r"(left), [r] "+&r"(right)
                         : [n] "r"(depth)
                         : "lr", "q0", "q1", "q2", "q3", "cc", "memory");
        sums[n] = a;
        sums[n + 1] = b;
        sums[count + n] = c;
        sums[count + n + 1] = d;
#else
        for (int32_t i = 0; i < 2; ++i) {
            int32_t x = starts[n + i], y = x;
            for (int32_t k = 0; k < depth; ++k) {
                x += first[k] * columns[i * pitch + k];
                y += second[k] * columns[i * pitch + k];
            }
            sums[n + i] = x;
            sums[count + n + i] = y;
        }
#endif
    }
}

#ifdef MT_MVE_ASM
MT_MVE_INLINE int32x4_t mt_mve_product_steps(int32x4_t sums, int32_t more, int32x4_t low, int32x4_t high,
                                             const struct mt_mve_product *how)
{
    const float32x4_t scaled = vmulq_n_f32(vcvtq_f32_s32(vaddq_n_s32(sums, more)), how->scale);
    return vminq_s32(vmaxq_s32(vqaddq_n_s32(vcvtnq_s32_f32(scaled), how->zero_point), low), high);
}
#endif

/* Scales `count` sums, to each of which `more` is added. */
MT_MVE_INLINE void mt_mve_product_scale(const int32_t *sums, int32_t more, int32_t count, int8_t *output,
                                        const struct mt_mve_product *how)
{
#ifdef MT_MVE_ASM
    const int32x4_t low = vdupq_n_s32(how->low), high = vdupq_n_s32(how->high);
    int32_t n = 0;
    for (; n + 4 <= count; n += 4)
        vstrbq_s32(output + n, mt_mve_product_steps(vldrwq_s32(sums + n), more, low, high, how));
    if (n < count) {
        const mve_pred16_t lanes = vctp32q((uint32_t)(count - n));
        const int32x4_t four = vldrwq_z_s32(sums + n, lanes);
        vstrbq_p_s32(output + n, mt_mve_product_steps(four, more, low, high, how), lanes);
    }
#else
    for (int32_t n = 0; n < count; ++n)
        output[n] = (int8_t)mt_requantize_wide(sums[n] + more, how->scale, how->zero_point, how->low, how->high);
#endif
}

#ifdef __cplusplus
}
#endif

#endif
