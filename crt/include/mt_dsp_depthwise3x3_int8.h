/* Depthwise 3x3 of int8 with SIMD32: pairs of taps slide over a channel's plane of int16. In plain C as mt_dsp.h is. */
#ifndef MT_DSP_DEPTHWISE3X3_INT8_H
#define MT_DSP_DEPTHWISE3X3_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* The nine weights of a depthwise channel as pairs: u = (w0, w1), v = (w1, w2) of each row of taps. */
struct mt_dsp_taps {
    int32_t u0, u1, u2, v0, v1, v2;
};

MT_DSP_INLINE void mt_dsp_pair_taps(uint32_t word, int32_t *u, int32_t *v)
{
    int32_t even, odd;
    __asm__("sxtb16 %0, %2\n\t"
            "sxtb16 %1, %2, ror #8"
            : "=&r"(even), "=r"(odd)
            : "r"(word));
    __asm__("pkhbt %0, %2, %3, lsl #16\n\t"
            "pkhbt %1, %3, %2"
            : "=&r"(*u), "=r"(*v)
            : "r"(even), "r"(odd));
}

/* One row of taps, for two outputs side by side, or for one; what the sums begin with is `a0` and `b0`. */
#define MT_DSP_TAPS2(r, from, a0, b0)       \
    "ldrd %[p], %[q], " from "\n\t"         \
    "smlad %[a], %[p], %[u" r "], " a0 "\n\t"  \
    "smlatb %[b], %[p], %[u" r "], " b0 "\n\t" \
    "smlabt %[a], %[q], %[v" r "], %[a]\n\t"   \
    "smlad %[b], %[q], %[v" r "], %[b]\n\t"
#define MT_DSP_TAPS1(r, from, sum, first)            \
    "ldrd %[p], %[q], " from "\n\t"                  \
    "smlad " sum ", %[p], %[u" r "], " first "\n\t"  \
    "smlabt " sum ", %[q], %[v" r "], " sum "\n\t"
#define MT_DSP_ROWS1(sum)                                   \
    MT_DSP_TAPS1("2", "[%[i], %[row2]]", sum, "%[bias]")    \
    MT_DSP_TAPS1("1", "[%[i], %[row1]]", sum, sum)          \
    MT_DSP_TAPS1("0", "[%[i]], #4", sum, sum)
#define MT_DSP_PAIR_STRIDE1                                  \
    MT_DSP_TAPS2("2", "[%[i], %[row2]]", "%[bias]", "%[bias]") \
    MT_DSP_TAPS2("1", "[%[i], %[row1]]", "%[a]", "%[b]")     \
    MT_DSP_TAPS2("0", "[%[i]], #4", "%[a]", "%[b]")
#define MT_DSP_PAIR_STRIDE2 MT_DSP_ROWS1("%[a]") MT_DSP_ROWS1("%[b]")
#define MT_DSP_FLOAT2               \
    "vmov s0, s1, %[a], %[b]\n\t"   \
    "vcvt.f32.s32 s0, s0\n\t"       \
    "vcvt.f32.s32 s1, s1\n\t"       \
    "vmul.f32 s0, s0, %[scale]\n\t" \
    "vmul.f32 s1, s1, %[scale]\n\t" \
    "vcvtr.s32.f32 s0, s0\n\t"      \
    "vcvtr.s32.f32 s1, s1\n\t"      \
    "vmov %[a], %[b], s0, s1\n\t"
#define MT_DSP_FLOAT1               \
    "vmov s0, %[a]\n\t"             \
    "vcvt.f32.s32 s0, s0\n\t"       \
    "vmul.f32 s0, s0, %[scale]\n\t" \
    "vcvtr.s32.f32 s0, s0\n\t"      \
    "vmov %[a], s0\n\t"
#define MT_DSP_FETCH               \
    "vmov %[p], %[multiplier]\n\t" \
    "vmov %[q], %[places]\n\t"
#define MT_DSP_FIXED1(scale) MT_DSP_FETCH scale("%[a]", "%[p]", "%[q]")
#define MT_DSP_FIXED2(scale) MT_DSP_FIXED1(scale) scale("%[b]", "%[p]", "%[q]")
#define MT_DSP_FETCH_EXACT "vmov %[p], %[q], %P[words]\n\t"
#define MT_DSP_EXACT_A MT_DSP_FETCH_EXACT MT_DSP_EXACT("%[a]", "%[p]", "%[q]", "%[places]")
#define MT_DSP_EXACT_AB MT_DSP_EXACT_A MT_DSP_EXACT("%[b]", "%[p]", "%[q]", "%[places]")
#define MT_DSP_NOTHING(x)
#define MT_DSP_PLAIN(x)        \
    "usat " x ", #8, " x "\n\t" \
    "eor " x ", " x ", #128\n\t"
#define MT_DSP_ZERO(x)                  \
    "add " x ", " x ", %[zero]\n\t"     \
    "ssat " x ", #8, " x "\n\t"
#define MT_DSP_LIMITS(x) MT_DSP_ZERO(x) MT_DSP_BETWEEN(x)
#define MT_DSP_BETWEEN(x)               \
    "cmp " x ", %[least]\n\t"           \
    "it lt\n\t"                         \
    "movlt " x ", %[least]\n\t"         \
    "cmp " x ", %[most]\n\t"            \
    "it gt\n\t"                         \
    "movgt " x ", %[most]\n\t"
/* The pairs of a row, then its odd output. */
#define MT_DSP_SLIDE_PAIRS(pair, scale, narrow)                 \
    "2:\n\t" pair scale narrow("%[a]") narrow("%[b]")     \
    "strb %[a], [%[o]]\n\t"                               \
    "strb %[b], [%[o], %[step]]\n\t"                      \
    "add %[o], %[o], %[step2]\n\t"                        \
    "cmp %[i], %[e]\n\t"                                  \
    "bne 2b\n\t"
#define MT_DSP_SLIDE_ODD(scale, narrow)              \
    MT_DSP_ROWS1("%[a]") scale narrow("%[a]")  \
    "strb %[a], [%[o]]\n\t"
/* All rows: every register is taken, what a row's end needs lies in memory. */
#define MT_DSP_PLANE_OF(row)                                                                                        \
    __asm__ volatile("1:\n\t" row                                                                                   \
                     "ldr %[p], %[skip]\n\t"                                                                        \
                     "add %[i], %[i], %[next]\n\t"                                                                  \
                     "add %[e], %[e], %[down]\n\t"                                                                  \
                     "add %[o], %[o], %[p]\n\t"                                                                     \
                     "ldr %[p], %[last]\n\t"                                                                        \
                     "cmp %[e], %[p]\n\t"                                                                           \
                     "bne 1b"                                                                                       \
                     : [a] "=&r"(a), [b] "=&r"(b), [p] "=&r"(p), [q] "=&r"(q), [i] "+&r"(i), [o] "+&r"(output),     \
                       [e] "+&r"(end)                                                                               \
                     : [u0] "r"(taps->u0), [u1] "r"(taps->u1), [u2] "r"(taps->u2), [v0] "r"(taps->v0),              \
                       [v1] "r"(taps->v1), [v2] "r"(taps->v2), [bias] "r"(bias), MT_DSP_SLIDE_SCALING,              \
                       [row1] "i"(2 * pitch), [row2] "i"(4 * pitch), [step] "i"(step), [step2] "i"(2 * step),       \
                       [zero] "i"(zero_point), [least] "i"(low), [most] "i"(high), [skip] "m"(skip),                \
                       [last] "m"(last), [down] "i"(2 * pitch * stride),                                            \
                       [next] "i"(2 * pitch * stride - 4 * (count / 2) * stride - 4 * (count % 2))                  \
                     : "s0", "s1", "cc", "memory")
#define MT_DSP_SLIDE(two, one, narrow)                                                             \
    do {                                                                                           \
        if (count == 1)                                                                            \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_ODD(one, narrow));                                              \
        else if (stride == 1 && count % 2)                                                         \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE1, two, narrow) MT_DSP_SLIDE_ODD(one, narrow)); \
        else if (stride == 1)                                                                      \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE1, two, narrow));                       \
        else if (count % 2)                                                                        \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE2, two, narrow) MT_DSP_SLIDE_ODD(one, narrow)); \
        else                                                                                       \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE2, two, narrow));                       \
    } while (0)
#define MT_DSP_SLIDE_FIXED(scale, narrow) MT_DSP_SLIDE(MT_DSP_FIXED2(scale), MT_DSP_FIXED1(scale), narrow)
/* Where it reads and writes: the rows' ends, and what a row's outputs leave to the next one's. */
#define MT_DSP_SLIDE_PLACES                                                                         \
    const int16_t *i = plane, *end = plane + count / 2 * 2 * stride;                                \
    const int16_t *const last = end + rows * pitch * stride;                                        \
    const int32_t skip = row_step - count / 2 * 2 * step;                                           \
    int32_t a, b, p, q;

/* A 3x3 depthwise channel. `plane` has int16, `pitch` of them a row (even); outputs stand `step` bytes apart, their rows
 * `row_step`. All from `pitch` on but `row_step` are constants. Registers of the FPU hold the scaling. */
MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps, int32_t bias,
                                float scale, int32_t pitch, int32_t stride, int32_t rows, int32_t count,
                                int32_t row_step, int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    MT_DSP_SLIDE_PLACES
#define MT_DSP_SLIDE_SCALING [scale] "t"(scale)
    if (zero_point == -128 && low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_FLOAT2, MT_DSP_FLOAT1, MT_DSP_PLAIN);
    else if (low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_FLOAT2, MT_DSP_FLOAT1, MT_DSP_ZERO);
    else
        MT_DSP_SLIDE(MT_DSP_FLOAT2, MT_DSP_FLOAT1, MT_DSP_LIMITS);
#undef MT_DSP_SLIDE_SCALING
}

/* The same by a multiplier, which the registers of the FPU hold. */
MT_DSP_INLINE void mt_dsp_slide_by(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps,
                                   const struct mt_dsp_fixed *fixed, enum mt_scaling by, int32_t pitch, int32_t stride,
                                   int32_t rows, int32_t count, int32_t row_step, int32_t step, int32_t zero_point,
                                   int32_t low, int32_t high)
{
    const int plain = zero_point == -128 && low == -128 && high == 127, full = low == -128 && high == 127;
    const int32_t bias = fixed->bias;
    float multiplier, places;
    MT_DSP_SLIDE_PLACES
    memcpy(&multiplier, &fixed->multiplier, 4);
    memcpy(&places, &fixed->places, 4);
#define MT_DSP_SLIDE_SCALING [multiplier] "t"(multiplier), [places] "t"(places)
    if (by == MT_TWICE && plain)
        MT_DSP_SLIDE_FIXED(MT_DSP_TWICE_RELU, MT_DSP_PLAIN);
    else if (by == MT_TWICE && full)
        MT_DSP_SLIDE_FIXED(MT_DSP_TWICE, MT_DSP_ZERO);
    else if (by == MT_TWICE)
        MT_DSP_SLIDE_FIXED(MT_DSP_TWICE, MT_DSP_LIMITS);
    else if (plain)
        MT_DSP_SLIDE_FIXED(MT_DSP_ONCE, MT_DSP_PLAIN);
    else if (full)
        MT_DSP_SLIDE_FIXED(MT_DSP_ONCE, MT_DSP_ZERO);
    else
        MT_DSP_SLIDE_FIXED(MT_DSP_ONCE, MT_DSP_LIMITS);
#undef MT_DSP_SLIDE_SCALING
}

/* The same by a multiplier and an offset, which a register of the FPU holds: MT_EXACT of mt_math.h. */
MT_DSP_INLINE void mt_dsp_slide_exact(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch,
                                      int32_t stride, int32_t rows, int32_t count, int32_t row_step, int32_t step,
                                      int32_t low, int32_t high)
{
    const int32_t zero_point = 0, bias = fixed->bias;
    double words;
    MT_DSP_SLIDE_PLACES
    memcpy(&words, &fixed->multiplier, 8);
#define MT_DSP_SLIDE_SCALING [words] "w"(words), [places] "i"(shift)
    if (low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_EXACT_AB, MT_DSP_EXACT_A, MT_DSP_NOTHING);
    else
        MT_DSP_SLIDE(MT_DSP_EXACT_AB, MT_DSP_EXACT_A, MT_DSP_BETWEEN);
#undef MT_DSP_SLIDE_SCALING
}

#else /* the same in plain C */

struct mt_dsp_taps {
    int16_t w[3][3];
};

/* Each sum of a channel, as `sum`, to `output[x * step]`. */
#define MT_DSP_EACH_SUM(bias, result)                                                                            \
    for (int32_t y = 0; y < rows; ++y, plane += pitch * stride, output += row_step)                              \
        for (int32_t x = 0; x < count; ++x) {                                                                    \
            int32_t sum = bias;                                                                                  \
            for (int32_t ky = 0; ky < 3; ++ky)                                                                   \
                for (int32_t kx = 0; kx < 3; ++kx)                                                               \
                    sum += plane[ky * pitch + x * stride + kx] * taps->w[ky][kx];                                \
            output[x * step] = (int8_t)(result);                                                                 \
        }

MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps, int32_t bias,
                                float scale, int32_t pitch, int32_t stride, int32_t rows, int32_t count,
                                int32_t row_step, int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(bias, mt_requantise_wide(sum, scale, zero_point, low, high))
}

MT_DSP_INLINE void mt_dsp_slide_by(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps,
                                   const struct mt_dsp_fixed *fixed, enum mt_scaling by, int32_t pitch, int32_t stride,
                                   int32_t rows, int32_t count, int32_t row_step, int32_t step, int32_t zero_point,
                                   int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(fixed->bias,
                    mt_clamp(mt_scaled(by, sum, fixed->multiplier, fixed->places) + zero_point, low, high))
}

MT_DSP_INLINE void mt_dsp_slide_exact(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch,
                                      int32_t stride, int32_t rows, int32_t count, int32_t row_step, int32_t step,
                                      int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(fixed->bias,
                    mt_clamp(mt_requantise_exact(sum, fixed->multiplier, fixed->places, shift), low, high))
}

#endif

#define MT_DSP_SLIDE_BY(name, by)                                                                                       \
    MT_DSP_INLINE void name(const int16_t *plane, int8_t *output, const struct mt_dsp_taps *taps,                       \
                            const struct mt_dsp_fixed *fixed, int32_t pitch, int32_t stride, int32_t rows,              \
                            int32_t count, int32_t row_step, int32_t step, int32_t zero_point, int32_t low,             \
                            int32_t high)                                                                               \
    {                                                                                                                   \
        mt_dsp_slide_by(plane, output, taps, fixed, by, pitch, stride, rows, count, row_step, step, zero_point, low,    \
                        high);                                                                                          \
    }
MT_DSP_SLIDE_BY(mt_dsp_slide_twice, MT_TWICE)
MT_DSP_SLIDE_BY(mt_dsp_slide_once, MT_ONCE)

/* The taps of a channel from three words of (w0, w1, w2, 0), a word a row. */
MT_DSP_INLINE struct mt_dsp_taps mt_dsp_load_taps(const uint32_t *words)
{
#ifdef MT_DSP_ASM
    struct mt_dsp_taps taps;
    mt_dsp_pair_taps(words[0], &taps.u0, &taps.v0);
    mt_dsp_pair_taps(words[1], &taps.u1, &taps.v1);
    mt_dsp_pair_taps(words[2], &taps.u2, &taps.v2);
#else
    struct mt_dsp_taps taps = {{{0}}};
    for (int32_t y = 0; y < 3; ++y)
        for (int32_t x = 0; x < 3; ++x)
            taps.w[y][x] = (int8_t)(words[y] >> 8 * x & 255);
#endif
    return taps;
}

/* The same of weights that are stored without `offset`. */
MT_DSP_INLINE struct mt_dsp_taps mt_dsp_load_taps_of(const uint32_t *words, int16_t offset)
{
    struct mt_dsp_taps taps = mt_dsp_load_taps(words);
#ifdef MT_DSP_ASM
    const uint32_t both = (uint16_t)offset * 0x10001u;
    int32_t *const pairs[6] = {&taps.u0, &taps.u1, &taps.u2, &taps.v0, &taps.v1, &taps.v2};
    for (int32_t i = 0; i < 6; ++i)
        __asm__("sadd16 %0, %0, %1" : "+r"(*pairs[i]) : "r"(both) : "cc");
#else
    for (int32_t y = 0; y < 3; ++y)
        for (int32_t x = 0; x < 3; ++x)
            taps.w[y][x] = (int16_t)(taps.w[y][x] + offset);
#endif
    return taps;
}

#ifdef __cplusplus
}
#endif

#endif
