/* Internal to mtool: applications include mtool.h. */
/* Depthwise 3x3 convolutions of int8 with SIMD32: pairs of taps slide over a channel's plane of int16. Plain C where
 * mt_dsp.h is. */
#ifndef MT_DSP_DEPTHWISE3X3_INT8_H
#define MT_DSP_DEPTHWISE3X3_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* The inner loop wants 14 registers, more than the compiler always has. They are therefore chosen here, and r7, which may
 * be the frame pointer, is kept in s2, or without an FPU on the stack:
 *
 *     r0       where the next outputs' taps begin     r4, r5    two words of the plane, or what scales
 *     r1       the next output                        r6 - r11  u0, v0, u1, v1, u2, v2
 *     r2       the weights, then the row's end        r12, lr   the sums of two outputs side by side
 *     r3       the bias                               s3        the last row's end
 *
 * Without an FPU: [sp] the multiplier and the offset or places, then the last row's end, and r7. */
#define MT_DSP_SLIDE_INTEGERS "r4", "r5", "r6", "r8", "r9", "r10", "r11", "lr", "cc", "memory"
#ifdef MT_DSP_FPU
#define MT_DSP_SLIDE_CLOBBERS MT_DSP_SLIDE_INTEGERS, "s0", "s1", "s2", "s3"
#define MT_DSP_SLIDE_BEGIN "vmov s2, r7\n\t"
#define MT_DSP_SLIDE_END "vmov r7, s2"
#define MT_DSP_KEEP_LAST "vmov s3, r4\n"
#define MT_DSP_FETCH_LAST "vmov r4, s3\n\t"
#define MT_DSP_FETCH             \
    "vmov r4, %[multiplier]\n\t" \
    "vmov r5, %[places]\n\t"
#define MT_DSP_FETCH_EXACT "vmov r4, r5, %P[exact]\n\t"
#else
#define MT_DSP_SLIDE_CLOBBERS MT_DSP_SLIDE_INTEGERS
#define MT_DSP_SLIDE_BEGIN   \
    "ldrd r4, r5, [r12]\n\t" \
    "push {r4, r5, r6, r7}\n\t"
#define MT_DSP_SLIDE_END    \
    "ldr r7, [sp, #12]\n\t" \
    "add sp, sp, #16"
#define MT_DSP_KEEP_LAST "str r4, [sp, #8]\n"
#define MT_DSP_FETCH_LAST "ldr r4, [sp, #8]\n\t"
#define MT_DSP_FETCH "ldrd r4, r5, [sp]\n\t"
#define MT_DSP_FETCH_EXACT MT_DSP_FETCH
#endif

/* One row of taps, for two adjacent outputs or for one; the sums begin with `a0` and `b0`. */
#define MT_DSP_TAPS2(u, v, from, a0, b0) \
    "ldrd r4, r5, " from "\n\t"          \
    "smlad r12, r4, " u ", " a0 "\n\t"   \
    "smlatb lr, r4, " u ", " b0 "\n\t"   \
    "smlabt r12, r5, " v ", r12\n\t"     \
    "smlad lr, r5, " v ", lr\n\t"
#define MT_DSP_TAPS1(u, v, from, sum, first)       \
    "ldrd r4, r5, " from "\n\t"                    \
    "smlad " sum ", r4, " u ", " first "\n\t"      \
    "smlabt " sum ", r5, " v ", " sum "\n\t"
#define MT_DSP_ROWS1(sum)                                     \
    MT_DSP_TAPS1("r10", "r11", "[r0, %[row2]]", sum, "r3")    \
    MT_DSP_TAPS1("r8", "r9", "[r0, %[row1]]", sum, sum)       \
    MT_DSP_TAPS1("r6", "r7", "[r0], #4", sum, sum)
#define MT_DSP_PAIR_STRIDE1                                    \
    MT_DSP_TAPS2("r10", "r11", "[r0, %[row2]]", "r3", "r3")    \
    MT_DSP_TAPS2("r8", "r9", "[r0, %[row1]]", "r12", "lr")     \
    MT_DSP_TAPS2("r6", "r7", "[r0], #4", "r12", "lr")
#define MT_DSP_PAIR_STRIDE2 MT_DSP_ROWS1("r12") MT_DSP_ROWS1("lr")
#define MT_DSP_FLOAT2(scale)        \
    "vmov s0, s1, r12, lr\n\t"      \
    "vcvt.f32.s32 s0, s0\n\t"       \
    "vcvt.f32.s32 s1, s1\n\t"       \
    "vmul.f32 s0, s0, " scale "\n\t" \
    "vmul.f32 s1, s1, " scale "\n\t" \
    "vcvtr.s32.f32 s0, s0\n\t"      \
    "vcvtr.s32.f32 s1, s1\n\t"      \
    "vmov r12, lr, s0, s1\n\t"
#define MT_DSP_FLOAT1(scale)        \
    "vmov s0, r12\n\t"              \
    "vcvt.f32.s32 s0, s0\n\t"       \
    "vmul.f32 s0, s0, " scale "\n\t" \
    "vcvtr.s32.f32 s0, s0\n\t"      \
    "vmov r12, s0\n\t"
#define MT_DSP_FIXED1(scale) MT_DSP_FETCH scale("r12", "r4", "r5")
#define MT_DSP_FIXED2(scale) MT_DSP_FIXED1(scale) scale("lr", "r4", "r5")
#define MT_DSP_EXACT_A MT_DSP_FETCH_EXACT MT_DSP_EXACT("r12", "r4", "r5", "%[places]")
#define MT_DSP_EXACT_AB MT_DSP_EXACT_A MT_DSP_EXACT("lr", "r4", "r5", "%[places]")
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
/* A row's pairs of outputs, then its odd output. */
#define MT_DSP_SLIDE_PAIRS(pair, scale, narrow)     \
    "2:\n\t" pair scale narrow("r12") narrow("lr")  \
    "strb r12, [r1]\n\t"                            \
    "strb lr, [r1, %[step]]\n\t"                    \
    "add r1, r1, %[step2]\n\t"                      \
    "cmp r0, r2\n\t"                                \
    "bne 2b\n\t"
#define MT_DSP_SLIDE_ODD(scale, narrow)       \
    MT_DSP_ROWS1("r12") scale narrow("r12")   \
    "strb r12, [r1]\n\t"
/* A constant; `value` is a number without the sign #. */
#define MT_DSP_SET(x, value)                                  \
    "movw " x ", #((" value ") & 0xffff)\n\t"                 \
    ".if (" value ") >> 16\n\t"                               \
    "movt " x ", #((" value ") >> 16 & 0xffff)\n\t"           \
    ".endif\n\t"
/* The pairs u and v of a word (w0, w1, w2, 0), minus the offset with which the weights are stored. */
#define MT_DSP_PAIR(word, u, v)                  \
    "sxtb16 r12, " word "\n\t"                   \
    "sxtb16 lr, " word ", ror #8\n\t"            \
    "pkhbt " u ", r12, lr, lsl #16\n\t"          \
    "pkhbt " v ", lr, r12\n\t"
#define MT_DSP_OFFSET(u, v)              \
    "sadd16 " u ", " u ", r4\n\t"        \
    "sadd16 " v ", " v ", r4\n\t"
#define MT_DSP_TAPS_STORED     \
    "ldm r2, {r4, r5, r6}\n\t" \
    MT_DSP_PAIR("r6", "r10", "r11") MT_DSP_PAIR("r5", "r8", "r9") MT_DSP_PAIR("r4", "r6", "r7")
#define MT_DSP_OFFSETS MT_DSP_OFFSET("r6", "r7") MT_DSP_OFFSET("r8", "r9") MT_DSP_OFFSET("r10", "r11")
#define MT_DSP_TAP_PAIRS                    \
    MT_DSP_TAPS_STORED                      \
    ".if %c[offset]\n\t"                    \
    "movw r4, #(%c[offset] & 0xffff)\n\t"   \
    "movt r4, #(%c[offset] & 0xffff)\n\t"   \
    MT_DSP_OFFSETS                          \
    ".endif\n\t"

/* All rows: a row's pairs end `reach` bytes after its start, and the next row starts `down` bytes after that. */
#define MT_DSP_PLANE_OF(row)                                                                                        \
    __asm__ volatile(MT_DSP_SLIDE_BEGIN MT_DSP_TAP_PAIRS                                                            \
                     "add r2, r0, %[reach]\n\t" MT_DSP_SET("r4", "%c[down] * %c[rows]")                             \
                     "add r4, r2, r4\n\t"                                                                           \
                     MT_DSP_KEEP_LAST "1:\n\t" row MT_DSP_FETCH_LAST                                                \
                     "add r0, r0, %[next]\n\t"                                                                      \
                     "add r2, r2, %[down]\n\t"                                                                      \
                     ".if %c[skip] > 4095 || %c[skip] < -4095\n\t" MT_DSP_SET("r5", "%c[skip]")                     \
                     "add r1, r1, r5\n\t"                                                                           \
                     ".else\n\t"                                                                                    \
                     "add r1, r1, %[skip]\n\t"                                                                      \
                     ".endif\n\t"                                                                                   \
                     "cmp r2, r4\n\t"                                                                               \
                     "bne 1b\n\t" MT_DSP_SLIDE_END                                                                  \
                     : "+r"(i), "+r"(o), "+r"(w)MT_DSP_SLIDE_IN_R12                                                 \
                     : "r"(b), MT_DSP_SLIDE_SCALING, [row1] "i"(2 * pitch), [row2] "i"(4 * pitch),                  \
                       [step] "i"(step), [step2] "i"(2 * step), [zero] "i"(zero_point), [least] "i"(low),           \
                       [most] "i"(high), [offset] "i"(offset), [rows] "i"(rows), [down] "i"(2 * pitch * stride),    \
                       [reach] "i"(4 * (count / 2) * stride), [skip] "i"(row_step - count / 2 * 2 * step),          \
                       [next] "i"(2 * pitch * stride - 4 * (count / 2) * stride - 4 * (count % 2))                  \
                     : MT_DSP_SLIDE_R12 MT_DSP_SLIDE_CLOBBERS)
#define MT_DSP_SLIDE(two, one, narrow)                                                                            \
    do {                                                                                                          \
        if (count == 1)                                                                                           \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_ODD(one, narrow));                                                       \
        else if (stride == 1 && count % 2)                                                                        \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE1, two, narrow) MT_DSP_SLIDE_ODD(one, narrow));  \
        else if (stride == 1)                                                                                     \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE1, two, narrow));                                \
        else if (count % 2)                                                                                       \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE2, two, narrow) MT_DSP_SLIDE_ODD(one, narrow));  \
        else                                                                                                      \
            MT_DSP_PLANE_OF(MT_DSP_SLIDE_PAIRS(MT_DSP_PAIR_STRIDE2, two, narrow));                                \
    } while (0)
#define MT_DSP_SLIDE_FIXED(scale, narrow) MT_DSP_SLIDE(MT_DSP_FIXED2(scale), MT_DSP_FIXED1(scale), narrow)
#define MT_DSP_SLIDE_REGISTERS(bias)                       \
    register const int16_t *i __asm__("r0") = plane;       \
    register int8_t *o __asm__("r1") = output;             \
    register const uint32_t *w __asm__("r2") = words;      \
    register int32_t b __asm__("r3") = bias;

#ifdef MT_DSP_FPU
#define MT_DSP_SLIDE_SCALED_BY(fixed)
#define MT_DSP_SLIDE_IN_R12
#define MT_DSP_SLIDE_R12 "r12",
#else
#define MT_DSP_SLIDE_SCALED_BY(fixed) register const int32_t *scaling __asm__("r12") = &(fixed)->multiplier;
#define MT_DSP_SLIDE_IN_R12 , "+r"(scaling)
#define MT_DSP_SLIDE_R12
#endif
#endif

#ifdef MT_DSP_FPU

/* A depthwise channel's nine weights as pairs: u = (w0, w1), v = (w1, w2) for each row of taps. */
struct mt_dsp_taps {
    int32_t u0, v0, u1, v1, u2, v2;
};

MT_DSP_INLINE struct mt_dsp_taps mt_dsp_load_taps(const uint32_t *words, int32_t offset)
{
    struct mt_dsp_taps taps;
    register const uint32_t *w __asm__("r2") = words;
    register struct mt_dsp_taps *to __asm__("r0") = &taps;
    __asm__ volatile(MT_DSP_SLIDE_BEGIN MT_DSP_TAP_PAIRS "stm r0, {r6, r7, r8, r9, r10, r11}\n\t" MT_DSP_SLIDE_END
                     : "+r"(w)
                     : "r"(to), [offset] "i"(offset)
                     : "r12", MT_DSP_SLIDE_CLOBBERS);
    return taps;
}

/* A 3x3 depthwise channel. `plane` has int16, `pitch` (even) of them a row; `words` are three of (w0, w1, w2, 0),
 * one per row of taps, stored without `offset`; outputs are `step` bytes apart, their rows `row_step`. `offset` and
 * everything from `pitch` on are constants. FPU registers hold the scaling. */
MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                int32_t bias, float scale, int32_t pitch, int32_t stride, int32_t rows, int32_t count,
                                int32_t row_step, int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    MT_DSP_SLIDE_REGISTERS(bias)
#define MT_DSP_SLIDE_SCALING [scale] "t"(scale)
    if (zero_point == -128 && low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_FLOAT2("%[scale]"), MT_DSP_FLOAT1("%[scale]"), MT_DSP_PLAIN);
    else if (low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_FLOAT2("%[scale]"), MT_DSP_FLOAT1("%[scale]"), MT_DSP_ZERO);
    else
        MT_DSP_SLIDE(MT_DSP_FLOAT2("%[scale]"), MT_DSP_FLOAT1("%[scale]"), MT_DSP_LIMITS);
#undef MT_DSP_SLIDE_SCALING
}

#else /* portable version */

struct mt_dsp_taps {
    int16_t w[3][3];
};

MT_DSP_INLINE struct mt_dsp_taps mt_dsp_load_taps(const uint32_t *words, int32_t offset)
{
    struct mt_dsp_taps taps = {{{0}}};
    for (int32_t y = 0; y < 3; ++y)
        for (int32_t x = 0; x < 3; ++x)
            taps.w[y][x] = (int16_t)((int8_t)(words[y] >> 8 * x & 255) + offset);
    return taps;
}

/* Write the sums of a channel, scaled by `sum`, to `output[x * step]`. */
#define MT_DSP_EACH_SUM(bias, result)                                                                            \
    const struct mt_dsp_taps taps = mt_dsp_load_taps(words, offset);                                             \
    for (int32_t y = 0; y < rows; ++y, plane += pitch * stride, output += row_step)                              \
        for (int32_t x = 0; x < count; ++x) {                                                                    \
            int32_t sum = bias;                                                                                  \
            for (int32_t ky = 0; ky < 3; ++ky)                                                                   \
                for (int32_t kx = 0; kx < 3; ++kx)                                                               \
                    sum += plane[ky * pitch + x * stride + kx] * taps.w[ky][kx];                                 \
            output[x * step] = (int8_t)(result);                                                                 \
        }

MT_DSP_INLINE void mt_dsp_slide(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                int32_t bias, float scale, int32_t pitch, int32_t stride, int32_t rows, int32_t count,
                                int32_t row_step, int32_t step, int32_t zero_point, int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(bias, mt_requantize_wide(sum, scale, zero_point, low, high))
}

#endif

#ifdef MT_DSP_ASM

/* The same with a multiplier. */
MT_DSP_INLINE void mt_dsp_slide_by(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                   const struct mt_dsp_fixed *fixed, enum mt_scaling by, int32_t pitch, int32_t stride,
                                   int32_t rows, int32_t count, int32_t row_step, int32_t step, int32_t zero_point,
                                   int32_t low, int32_t high)
{
    const int plain = zero_point == -128 && low == -128 && high == 127, full = low == -128 && high == 127;
#ifdef MT_DSP_FPU
    float multiplier, places;
    memcpy(&multiplier, &fixed->multiplier, 4);
    memcpy(&places, &fixed->places, 4);
#define MT_DSP_SLIDE_SCALING [multiplier] "t"(multiplier), [places] "t"(places)
#else
#define MT_DSP_SLIDE_SCALING [places] "i"(0) /* they are on the stack */
#endif
    MT_DSP_SLIDE_REGISTERS(fixed->bias)
    MT_DSP_SLIDE_SCALED_BY(fixed)
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

/* The same with a multiplier and an offset: MT_EXACT of mt_math.h. */
MT_DSP_INLINE void mt_dsp_slide_exact(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch,
                                      int32_t stride, int32_t rows, int32_t count, int32_t row_step, int32_t step,
                                      int32_t low, int32_t high)
{
    const int32_t zero_point = 0;
#ifdef MT_DSP_FPU
    double exact;
    memcpy(&exact, &fixed->multiplier, 8);
#define MT_DSP_SLIDE_SCALING [exact] "w"(exact), [places] "i"(shift)
#else
#define MT_DSP_SLIDE_SCALING [places] "i"(shift)
#endif
    MT_DSP_SLIDE_REGISTERS(fixed->bias)
    MT_DSP_SLIDE_SCALED_BY(fixed)
    if (low == -128 && high == 127)
        MT_DSP_SLIDE(MT_DSP_EXACT_AB, MT_DSP_EXACT_A, MT_DSP_NOTHING);
    else
        MT_DSP_SLIDE(MT_DSP_EXACT_AB, MT_DSP_EXACT_A, MT_DSP_BETWEEN);
#undef MT_DSP_SLIDE_SCALING
}

#else /* portable version */

MT_DSP_INLINE void mt_dsp_slide_by(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                   const struct mt_dsp_fixed *fixed, enum mt_scaling by, int32_t pitch, int32_t stride,
                                   int32_t rows, int32_t count, int32_t row_step, int32_t step, int32_t zero_point,
                                   int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(fixed->bias,
                    mt_clamp(mt_scaled(by, sum, fixed->multiplier, fixed->places) + zero_point, low, high))
}

MT_DSP_INLINE void mt_dsp_slide_exact(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch,
                                      int32_t stride, int32_t rows, int32_t count, int32_t row_step, int32_t step,
                                      int32_t low, int32_t high)
{
    MT_DSP_EACH_SUM(fixed->bias,
                    mt_clamp(mt_requantize_exact(sum, fixed->multiplier, fixed->places, shift), low, high))
}

#endif

/* The same as mt_dsp_slide_exact, for layers whose sizes are known only at run time: two outputs a row or more. If
 * `floats`, a channel without a multiplier is scaled by a float, the offset; if `has_offset`, weights have one. */
struct mt_dsp_plane_sizes {
    int32_t rows, count, row_step, step, offset;
};

#ifdef MT_DSP_FPU

/* FPU registers hold the sizes. */
#define MT_DSP_ADD_SIZE(x, size) "vmov r4, %[" size "]\n\tadd " x ", " x ", r4\n\t"
#define MT_DSP_SIZED(pair, narrow)                                                                              \
    __asm__ volatile(MT_DSP_SLIDE_BEGIN MT_DSP_TAPS_STORED                                                      \
                     ".if %c[has_offset]\n\t"                                                                   \
                     "vmov r4, %[offset]\n\t" MT_DSP_OFFSETS                                                   \
                     ".endif\n\t"                                                                               \
                     "vmov r2, %[reach]\n\t"                                                                    \
                     "vmov r4, %[all]\n\t"                                                                      \
                     "add r2, r2, r0\n\t"                                                                       \
                     "add r4, r4, r2\n\t" MT_DSP_KEEP_LAST "1:\n\t"                                            \
                     "2:\n\t" pair MT_DSP_FETCH_EXACT                                                           \
                     ".if %c[floats]\n\t"                                                                       \
                     "cbz r4, 4f\n\t"                                                                           \
                     ".endif\n\t" MT_DSP_EXACT("r12", "r4", "r5", "%[places]")                                  \
                     MT_DSP_EXACT("lr", "r4", "r5", "%[places]") "3:\n\t" narrow("r12") narrow("lr")            \
                     "vmov r4, %[step]\n\t"                                                                     \
                     "strb r12, [r1]\n\t"                                                                       \
                     "strb lr, [r1, r4]\n\t"                                                                    \
                     "add r1, r1, r4, lsl #1\n\t"                                                               \
                     "cmp r0, r2\n\t"                                                                           \
                     "bne 2b\n\t"                                                                               \
                     ".if %c[floats]\n\t"                                                                       \
                     "b 5f\n"                                                                                   \
                     "4:\n\t" MT_DSP_FLOAT2("%p[exact]") MT_DSP_ZERO("r12") MT_DSP_ZERO("lr")                   \
                     "b 3b\n"                                                                                   \
                     "5:\n\t"                                                                                   \
                     ".endif\n\t"                                                                               \
                     "vmov r4, %[odd]\n\t"                                                                      \
                     "cbz r4, 8f\n\t" MT_DSP_ROWS1("r12") MT_DSP_FETCH_EXACT                                    \
                     ".if %c[floats]\n\t"                                                                       \
                     "cbnz r4, 6f\n\t" MT_DSP_FLOAT1("%p[exact]") MT_DSP_ZERO("r12")                            \
                     "b 7f\n"                                                                                   \
                     "6:\n\t"                                                                                   \
                     ".endif\n\t" MT_DSP_EXACT("r12", "r4", "r5", "%[places]") "7:\n\t" narrow("r12")          \
                     "strb r12, [r1]\n"                                                                         \
                     "8:\n\t" MT_DSP_ADD_SIZE("r0", "next") MT_DSP_ADD_SIZE("r1", "skip") MT_DSP_FETCH_LAST     \
                     "add r2, r2, %[down]\n\t"                                                                  \
                     "cmp r2, r4\n\t"                                                                           \
                     "bne 1b\n\t" MT_DSP_SLIDE_END                                                              \
                     : "+r"(i), "+r"(o), "+r"(w)                                                                \
                     : "r"(b), [exact] "w"(exact), [places] "i"(shift), [row1] "i"(2 * pitch),                  \
                       [row2] "i"(4 * pitch), [zero] "i"(zero_point), [least] "i"(low), [most] "i"(high),       \
                       [has_offset] "i"(has_offset), [offset] "t"(by_size[6]), [down] "i"(2 * pitch * stride), [floats] "i"(floats),              \
                       [reach] "t"(by_size[0]), [all] "t"(by_size[1]), [next] "t"(by_size[2]),                  \
                       [skip] "t"(by_size[3]), [step] "t"(by_size[4]), [odd] "t"(by_size[5])                    \
                     : MT_DSP_SLIDE_R12 MT_DSP_SLIDE_CLOBBERS)

MT_DSP_INLINE void mt_dsp_slide_sized(const int16_t *plane, int8_t *output, const uint32_t *words, int has_offset,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch, int32_t stride,
                                      const struct mt_dsp_plane_sizes *sizes, int floats, int32_t zero_point,
                                      int32_t low, int32_t high)
{
    const int32_t reach = 4 * (sizes->count / 2) * stride, odd = sizes->count % 2, down = 2 * pitch * stride;
    const int32_t skip = sizes->row_step - sizes->count / 2 * 2 * sizes->step;
    const int32_t pair = (int32_t)((uint32_t)(sizes->offset & 0xffff) * 0x10001u);
    const int32_t numbers[7] = {reach, down * sizes->rows, down - reach - 4 * odd, skip, sizes->step, odd, pair};
    float by_size[7];
    double exact;
    memcpy(by_size, numbers, sizeof(by_size));
    memcpy(&exact, &fixed->multiplier, 8);
    MT_DSP_SLIDE_REGISTERS(fixed->bias)
    if (stride == 1 && low == -128 && high == 127)
        MT_DSP_SIZED(MT_DSP_PAIR_STRIDE1, MT_DSP_NOTHING);
    else if (stride == 1)
        MT_DSP_SIZED(MT_DSP_PAIR_STRIDE1, MT_DSP_BETWEEN);
    else if (low == -128 && high == 127)
        MT_DSP_SIZED(MT_DSP_PAIR_STRIDE2, MT_DSP_NOTHING);
    else
        MT_DSP_SIZED(MT_DSP_PAIR_STRIDE2, MT_DSP_BETWEEN);
}

#else /* portable version */

MT_DSP_INLINE void mt_dsp_slide_sized(const int16_t *plane, int8_t *output, const uint32_t *words, int has_offset,
                                      const struct mt_dsp_fixed *fixed, int32_t shift, int32_t pitch, int32_t stride,
                                      const struct mt_dsp_plane_sizes *sizes, int floats, int32_t zero_point,
                                      int32_t low, int32_t high)
{
    const int32_t rows = sizes->rows, count = sizes->count, row_step = sizes->row_step, step = sizes->step;
    const int32_t offset = has_offset ? sizes->offset : 0;
    float scale;
    memcpy(&scale, &fixed->places, sizeof(scale));
    MT_DSP_EACH_SUM(fixed->bias,
                    floats && !fixed->multiplier
                        ? mt_requantize_wide(sum, scale, zero_point, low, high)
                        : mt_clamp(mt_requantize_exact(sum, fixed->multiplier, fixed->places, shift), low, high))
}

#endif

/* A function that widens a channel: elements `step` bytes apart, in rows `row_step` bytes apart. */
#define MT_DSP_WIDEN_PLANE(name)                                                                                    \
    MT_DSP_OPERATOR void name(int16_t *plane, const int8_t *input, int32_t pitch, int32_t rows, int32_t columns,   \
                              int32_t row_step, int32_t step)                                                      \
    {                                                                                                              \
        for (; rows > 0; --rows, plane += pitch, input += row_step) {                                              \
            const int8_t *source = input;                                                                          \
            int16_t *row = plane, *const end = plane + columns;                                                    \
            for (; row <= end - 4; row += 4, source += 4 * step) {                                                 \
                row[0] = source[0];                                                                                \
                row[1] = source[step];                                                                             \
                row[2] = source[2 * step];                                                                         \
                row[3] = source[3 * step];                                                                         \
            }                                                                                                      \
            for (; row < end; source += step)                                                                      \
                *row++ = *source;                                                                                  \
        }                                                                                                          \
    }

#define MT_DSP_SLIDE_BY(name, by)                                                                                      \
    MT_DSP_INLINE void name(const int16_t *plane, int8_t *output, const uint32_t *words, int32_t offset,               \
                            const struct mt_dsp_fixed *fixed, int32_t pitch, int32_t stride, int32_t rows,             \
                            int32_t count, int32_t row_step, int32_t step, int32_t zero_point, int32_t low,            \
                            int32_t high)                                                                              \
    {                                                                                                                  \
        mt_dsp_slide_by(plane, output, words, offset, fixed, by, pitch, stride, rows, count, row_step, step,           \
                        zero_point, low, high);                                                                        \
    }
MT_DSP_SLIDE_BY(mt_dsp_slide_twice, MT_TWICE)
MT_DSP_SLIDE_BY(mt_dsp_slide_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
