/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int8 with any kernel and SIMD32: pairs of taps, four outputs at a time. Plain C where
 * mt_dsp.h is. */
#ifndef MT_DSP_DEPTHWISE_INT8_H
#define MT_DSP_DEPTHWISE_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* In the written order: the compiler would load everything first, and spill it. */
MT_DSP_INLINE int32_t mt_dsp_mac(int32_t x, int32_t y, int32_t sum)
{
    __asm__ volatile("smlad %0, %1, %2, %0" : "+r"(sum) : "r"(x), "r"(y));
    return sum;
}

/* A step of a sweep with stride 1: outputs 0 and 1 use the columns x, outputs 2 and 3 the following ones. */
MT_DSP_INLINE void mt_dsp_step1(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t *x)
{
    int32_t u, v, next;
    __asm__ volatile("ldrd %[u], %[v], [%[w]], #8\n\t"
                     "ldr %[n], [%[p]], #4"
                     : [w] "+&r"(*taps), [p] "+&r"(*from), [u] "=&r"(u), [v] "=&r"(v), [n] "=r"(next)
                     :
                     : "memory");
    sums[0] = mt_dsp_mac(*x, u, sums[0]);
    sums[1] = mt_dsp_mac(*x, v, sums[1]);
    sums[2] = mt_dsp_mac(next, u, sums[2]);
    sums[3] = mt_dsp_mac(next, v, sums[3]);
    *x = next;
}

/* With stride 2, each output begins a word after the previous one. */
MT_DSP_INLINE void mt_dsp_step2(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t x[3])
{
    int32_t u, next;
    __asm__ volatile("ldr %[u], [%[w]], #8\n\t"
                     "ldr %[n], [%[p]], #4"
                     : [w] "+&r"(*taps), [p] "+&r"(*from), [u] "=&r"(u), [n] "=r"(next)
                     :
                     : "memory");
    sums[0] = mt_dsp_mac(x[0], u, sums[0]);
    sums[1] = mt_dsp_mac(x[1], u, sums[1]);
    sums[2] = mt_dsp_mac(x[2], u, sums[2]);
    sums[3] = mt_dsp_mac(next, u, sums[3]);
    x[0] = x[1];
    x[1] = x[2];
    x[2] = next;
}

MT_DSP_INLINE int8_t mt_dsp_clamp(int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    if (zero_point == -128 && low == -128 && high == 127) {
        __asm__("usat %0, #8, %0" : "+r"(step) : : "cc");
        return (int8_t)(step - 128);
    }
    __asm__("qadd %0, %0, %1\n\t"
            "ssat %0, #8, %0"
            : "+r"(step)
            : "r"(zero_point)
            : "cc");
    if (low > -128)
        step = step > low ? step : low;
    if (high < 127)
        step = step < high ? step : high;
    return (int8_t)step;
}

MT_DSP_INLINE int8_t mt_dsp_requantize(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
#ifdef MT_DSP_FPU
    float value = (float)acc * scale;
    int32_t step;
    __asm__("vcvtr.s32.f32 %0, %0\n\t"
            "vmov %1, %0"
            : "+t"(value), "=r"(step));
    return mt_dsp_clamp(step, zero_point, low, high);
#else
    mt_dsp_by_float(&acc, 1, (int32_t)mt_u32_of_f32(scale));
    return mt_dsp_clamp(acc, zero_point, low, high);
#endif
}

MT_DSP_INLINE int8_t mt_dsp_rescale(int32_t acc, const struct mt_dsp_fixed *fixed, enum mt_scaling by,
                                    int32_t zero_point, int32_t low, int32_t high)
{
    if (by == MT_TWICE)
        __asm__(MT_DSP_TWICE("%0", "%1", "%2") : "+&r"(acc) : "r"(fixed->multiplier), "r"(fixed->places) : "cc");
    else
        __asm__(MT_DSP_ONCE("%0", "%1", "%2") : "+&r"(acc) : "r"(fixed->multiplier), "r"(fixed->places) : "cc");
    return mt_dsp_clamp(acc, zero_point, low, high);
}

MT_DSP_INLINE int8_t mt_dsp_exact(int32_t acc, const struct mt_dsp_fixed *fixed, int32_t shift, int32_t low,
                                  int32_t high)
{
    __asm__(MT_DSP_EXACT("%0", "%1", "%2", "%3") : "+r"(acc) : "r"(fixed->multiplier), "r"(fixed->places), "i"(shift) : "cc");
    if (low > -128)
        acc = acc > low ? acc : low;
    if (high < 127)
        acc = acc < high ? acc : high;
    return (int8_t)acc;
}

#else /* portable version */

MT_DSP_INLINE int32_t mt_dsp_mac(int32_t x, int32_t y, int32_t sum)
{
    return (int32_t)mt_dsp_smlad(x, y, (uint32_t)sum);
}

MT_DSP_INLINE void mt_dsp_step1(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t *x)
{
    int32_t pairs[3];
    memcpy(pairs, *taps, 8);
    memcpy(pairs + 2, *from, 4);
    *taps += 4;
    *from += 2;
    for (int32_t i = 0; i < 4; ++i)
        sums[i] = mt_dsp_mac(i < 2 ? *x : pairs[2], pairs[i % 2], sums[i]);
    *x = pairs[2];
}

MT_DSP_INLINE void mt_dsp_step2(int32_t sums[4], const int16_t **taps, const int16_t **from, int32_t x[3])
{
    int32_t pairs[2];
    memcpy(pairs, *taps, 4);
    memcpy(pairs + 1, *from, 4);
    *taps += 4;
    *from += 2;
    for (int32_t i = 0; i < 4; ++i)
        sums[i] = mt_dsp_mac(i < 3 ? x[i] : pairs[1], pairs[0], sums[i]);
    x[0] = x[1];
    x[1] = x[2];
    x[2] = pairs[1];
}

MT_DSP_INLINE int8_t mt_dsp_requantize(int32_t acc, float scale, int32_t zero_point, int32_t low, int32_t high)
{
    return (int8_t)mt_requantize_wide(acc, scale, zero_point, low, high);
}

MT_DSP_INLINE int8_t mt_dsp_rescale(int32_t acc, const struct mt_dsp_fixed *fixed, enum mt_scaling by,
                                    int32_t zero_point, int32_t low, int32_t high)
{
    return (int8_t)mt_clamp(mt_scaled(by, acc, fixed->multiplier, fixed->places) + zero_point, low, high);
}

MT_DSP_INLINE int8_t mt_dsp_exact(int32_t acc, const struct mt_dsp_fixed *fixed, int32_t shift, int32_t low,
                                  int32_t high)
{
    return (int8_t)mt_clamp(mt_requantize_exact(acc, fixed->multiplier, fixed->places, shift), low, high);
}

#endif

MT_DSP_INLINE int32_t mt_dsp_pair(const int16_t *from)
{
    int32_t pair;
    memcpy(&pair, from, 4);
    return pair;
}

/* A kernel row's taps in steps of two columns: (w0, w1), and a column later (0, w0); (w2, w3), (w1, w2)... `from` is
 * padded with zeros to 2 * steps. */
#define MT_DSP_SPREAD(name, type)                                                              \
    MT_DSP_INLINE void name(int16_t *taps, const type *from, int32_t rows, int32_t steps)      \
    {                                                                                          \
        for (; rows; --rows) {                                                                 \
            int16_t before = 0;                                                                \
            for (int32_t k = 0; k < steps; ++k, taps += 4, from += 2) {                        \
                taps[0] = taps[3] = from[0];                                                   \
                taps[2] = before;                                                              \
                taps[1] = before = from[1];                                                    \
            }                                                                                  \
        }                                                                                      \
    }
MT_DSP_SPREAD(mt_dsp_spread_i8, int8_t)
MT_DSP_SPREAD(mt_dsp_spread_i16, int16_t)

/* The sums of four outputs of a row, the first of which begins at `row` of the plane. */
MT_DSP_INLINE void mt_dsp_outputs4(int32_t sums[4], const int16_t *row, const int16_t *w, int32_t rows, int32_t steps,
                                   int32_t next, int32_t stride)
{
    for (int32_t y = 0; y < rows; ++y, row += next) {
        const int16_t *from = row;
        if (stride == 1) {
            int32_t x = mt_dsp_pair(from);
            from += 2;
            MT_UNROLL(8)
            for (int32_t k = 0; k < steps; ++k)
                mt_dsp_step1(sums, &w, &from, &x);
        } else if (stride == 2) {
            int32_t x[3] = {mt_dsp_pair(from), mt_dsp_pair(from + 2), mt_dsp_pair(from + 4)};
            from += 6;
            MT_UNROLL(8)
            for (int32_t k = 0; k < steps; ++k)
                mt_dsp_step2(sums, &w, &from, x);
        } else {
            for (int32_t k = 0; k < steps; ++k, w += 4, from += 2)
                for (int32_t i = 0; i < 4; ++i)
                    sums[i] = mt_dsp_mac(mt_dsp_pair(from + i * stride), mt_dsp_pair(w), sums[i]);
        }
    }
}

/* A row of outputs of a depthwise channel with any kernel, four at a time (excess outputs are computed but not
 * stored). `plane` has int16, aligned to words; taps are as mt_dsp_spread writes them. The plane's rows are `next`
 * elements apart, outputs `step` bytes. Everything from `rows` on is constant, except perhaps `count`. */
MT_DSP_INLINE void mt_dsp_sweep_by(const int16_t *plane, int8_t *output, const int16_t *taps,
                                   const struct mt_dsp_fixed *fixed, float scale, enum mt_scaling by, int32_t rows,
                                   int32_t steps, int32_t next, int32_t stride, int32_t count, int32_t step,
                                   int32_t zero_point, int32_t low, int32_t high)
{
    const int32_t bias = fixed->bias;
    for (; count > 0; count -= 4, plane += 4 * stride, output += 4 * step) {
        int32_t sums[4] = {bias, bias, bias, bias};
        mt_dsp_outputs4(sums, plane, taps, rows, steps, next, stride);
        MT_UNROLL(4)
        for (int32_t i = 0; i < 4; ++i)
            if (i == 0 || count > i)
                output[i * step] = by == MT_BY_FLOAT ? mt_dsp_requantize(sums[i], scale, zero_point, low, high)
                                   : by > MT_EXACT   ? mt_dsp_exact(sums[i], fixed, MT_EXACT_PLACES(by), low, high)
                                                     : mt_dsp_rescale(sums[i], fixed, by, zero_point, low, high);
    }
}

MT_DSP_INLINE void mt_dsp_sweep(const int16_t *plane, int8_t *output, const int16_t *taps, int32_t bias, float scale,
                                int32_t rows, int32_t steps, int32_t next, int32_t stride, int32_t count, int32_t step,
                                int32_t zero_point, int32_t low, int32_t high)
{
    const struct mt_dsp_fixed fixed = {bias, 0, 0};
    mt_dsp_sweep_by(plane, output, taps, &fixed, scale, MT_BY_FLOAT, rows, steps, next, stride, count, step, zero_point,
                    low, high);
}

/* With a multiplier and an offset, MT_EXACT of mt_math.h. */
MT_DSP_INLINE void mt_dsp_sweep_exact(const int16_t *plane, int8_t *output, const int16_t *taps,
                                      const struct mt_dsp_fixed *fixed, enum mt_scaling by, int32_t rows, int32_t steps,
                                      int32_t next, int32_t stride, int32_t count, int32_t step, int32_t low,
                                      int32_t high)
{
    mt_dsp_sweep_by(plane, output, taps, fixed, 0.0f, by, rows, steps, next, stride, count, step, 0, low, high);
}

#define MT_DSP_SWEEP_BY(name, by)                                                                                 \
    MT_DSP_INLINE void name(const int16_t *plane, int8_t *output, const int16_t *taps,                            \
                            const struct mt_dsp_fixed *fixed, int32_t rows, int32_t steps, int32_t next,          \
                            int32_t stride, int32_t count, int32_t step, int32_t zero_point, int32_t low,         \
                            int32_t high)                                                                         \
    {                                                                                                             \
        mt_dsp_sweep_by(plane, output, taps, fixed, 0.0f, by, rows, steps, next, stride, count, step, zero_point, \
                        low, high);                                                                               \
    }
MT_DSP_SWEEP_BY(mt_dsp_sweep_twice, MT_TWICE)
MT_DSP_SWEEP_BY(mt_dsp_sweep_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
