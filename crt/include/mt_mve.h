/* The inner loops of int8 operators with Helium (Armv8.1-M MVE with floating point).
 *
 * Results are those of mt_requantise or mt_scaled, bit for bit. Elsewhere, without optimisation (the assembly takes
 * every even register, which is where VMLADAVA accumulates) and with MT_PORTABLE defined, the same functions are plain
 * C. */
#ifndef MT_MVE_H
#define MT_MVE_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_FEATURE_MVE) && \
    !defined(MT_PORTABLE)
#if __ARM_FEATURE_MVE & 2
#define MT_MVE_ASM 1
#include <arm_mve.h>
#endif
#endif

#if defined(__GNUC__)
#define MT_MVE_INLINE static inline __attribute__((always_inline))
#else
#define MT_MVE_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The output's zero point and limits, as vectors. */
struct mt_mve_range {
    int16_t zero_point[8], low[8], high[8];
};

#define MT_MVE_EIGHT(x) {(x), (x), (x), (x), (x), (x), (x), (x)}
#define MT_MVE_RANGE(zero_point, low, high) {MT_MVE_EIGHT(zero_point), MT_MVE_EIGHT(low), MT_MVE_EIGHT(high)}

#ifdef MT_MVE_ASM

/* One of four columns that stand side by side in blocks of 16 bytes; the last block is filled up with zeros. */
MT_MVE_INLINE void mt_mve_column(int8_t *column, const int8_t *x, int32_t count)
{
    for (; count >= 16; count -= 16, x += 16, column += 64)
        vstrbq_s8(column, vldrbq_s8(x));
    if (count)
        vstrbq_s8(column, vldrbq_z_s8(x, vctp8q((uint32_t)count)));
}

MT_MVE_INLINE int8_t *mt_mve_copy(int8_t *column, const int8_t *x, int32_t blocks)
{
    for (; blocks; --blocks, x += 16, column += 64)
        vstrbq_s8(column, vldrbq_s8(x));
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill(int8_t *column, int8_t value, int32_t blocks)
{
    for (; blocks; --blocks, column += 64)
        vstrbq_s8(column, vdupq_n_s8(value));
    return column;
}

/* A block of 16 steps of k: two channels by four columns. */
#define MT_MVE_BLOCK                     \
    "vldrb.u8 q0, [%[w]], #16\n\t"       \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vldrb.u8 q2, [%[c]], #16\n\t"       \
    "vmladava.s8 r0, q0, q2\n\t"         \
    "vmladava.s8 r2, q1, q2\n\t"         \
    "vldrb.u8 q3, [%[c]], #16\n\t"       \
    "vmladava.s8 r4, q0, q3\n\t"         \
    "vmladava.s8 r6, q1, q3\n\t"         \
    "vldrb.u8 q2, [%[c]], #16\n\t"       \
    "vmladava.s8 r8, q0, q2\n\t"         \
    "vmladava.s8 r10, q1, q2\n\t"        \
    "vldrb.u8 q3, [%[c]], #16\n\t"       \
    "vmladava.s8 r12, q0, q3\n\t"        \
    "vmladava.s8 lr, q1, q3\n\t"
#define MT_MVE_TWO MT_MVE_BLOCK MT_MVE_BLOCK
#define MT_MVE_THREE MT_MVE_TWO MT_MVE_BLOCK
#define MT_MVE_FOUR MT_MVE_TWO MT_MVE_TWO
#define MT_MVE_FLOAT8          \
    "vldr d4, [%[w]]\n\t"      \
    "vldr d5, [%[w]]\n\t"      \
    "adds %[w], #8\n\t"        \
    "vcvt.f32.s32 q0, q0\n\t"  \
    "vcvt.f32.s32 q1, q1\n\t"  \
    "vmul.f32 q0, q0, q2\n\t"  \
    "vmul.f32 q1, q1, q2\n\t"  \
    "vcvtn.s32.f32 q0, q0\n\t" \
    "vcvtn.s32.f32 q1, q1\n\t"
#define MT_MVE_MULTIPLIER8    \
    "vldr d4, [%[w]]\n\t"     \
    "vldr d5, [%[w]]\n\t"     \
    "vldr d6, [%[w], #8]\n\t" \
    "vldr d7, [%[w], #8]\n\t" \
    "adds %[w], #16\n\t"
#define MT_MVE_TWICE8             \
    MT_MVE_MULTIPLIER8            \
    "vqrdmulh.s32 q0, q0, q2\n\t" \
    "vqrdmulh.s32 q1, q1, q2\n\t" \
    "vshr.s32 q2, q0, #31\n\t"    \
    "vadd.i32 q0, q0, q2\n\t"     \
    "vshr.s32 q2, q1, #31\n\t"    \
    "vadd.i32 q1, q1, q2\n\t"     \
    "vrshl.s32 q0, q0, q3\n\t"    \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_ONCE8           \
    MT_MVE_MULTIPLIER8         \
    "vmulh.s32 q0, q0, q2\n\t" \
    "vmulh.s32 q1, q1, q2\n\t" \
    "vrshl.s32 q0, q0, q3\n\t" \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_DOT4(blocks, scale)                                         \
    __asm__ volatile("ldrd r0, r2, [%[w]], #8\n\t"                         \
                     "mov r4, r0\n\t"                                      \
                     "mov r6, r2\n\t"                                      \
                     "mov r8, r0\n\t"                                      \
                     "mov r10, r2\n\t"                                     \
                     "mov r12, r0\n\t"                                     \
                     "mov lr, r2\n\t"                                      \
                     "1:\n\t" blocks "cmp %[c], %[end]\n\t"                \
                     "bne 1b\n\t"                                          \
                     "vmov q0[2], q0[0], r0, r4\n\t"                       \
                     "vmov q0[3], q0[1], r2, r6\n\t"                       \
                     "vmov q1[2], q1[0], r8, r12\n\t"                      \
                     "vmov q1[3], q1[1], r10, lr\n\t" scale                \
                     "vqmovnb.s32 q0, q0\n\t"                              \
                     "vqmovnt.s32 q0, q1\n\t"                              \
                     "ldr r0, %[limits]\n\t"                               \
                     "vldrh.u16 q1, [r0]\n\t"                              \
                     "vqadd.s16 q0, q0, q1\n\t"                            \
                     "vldrh.u16 q1, [r0, #16]\n\t"                         \
                     "vmax.s16 q0, q0, q1\n\t"                             \
                     "vldrh.u16 q1, [r0, #32]\n\t"                         \
                     "vmin.s16 q0, q0, q1\n\t"                             \
                     "vstrb.16 q0, [%[o], %q[at]]\n\t"                     \
                     "adds %[o], #2"                                       \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o] "+&r"(output) \
                     : [end] "r"(end), [at] "w"(at), [limits] "m"(range)   \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")

#define MT_MVE_DOT4_BY(scale)                 \
    do {                                      \
        if (unroll == 4)                      \
            MT_MVE_DOT4(MT_MVE_FOUR, scale);  \
        else if (unroll == 3)                 \
            MT_MVE_DOT4(MT_MVE_THREE, scale); \
        else if (unroll == 2)                 \
            MT_MVE_DOT4(MT_MVE_TWO, scale);   \
        else                                  \
            MT_MVE_DOT4(MT_MVE_BLOCK, scale); \
    } while (0)

/* Four columns by all output channels, two at a time; the pixels' outputs stand `step` bytes apart. For each two channels
 * the weights are: biases a, b, blocks of [a 16][b 16], scales a, b. By multipliers, here and below: those, then their
 * places, negative, since VRSHL shifts to the left. It rounds ties up: of what is negative, one less goes away from
 * zero. */
MT_MVE_INLINE void mt_mve_columns(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                  int32_t step, int32_t pairs, int unroll, enum mt_scaling by,
                                  const struct mt_mve_range *range)
{
    /* lanes after narrowing: a0 a2 b0 b2 a1 a3 b1 b3, which stand at */
    const uint16_t n = (uint16_t)step;
    const uint16_t offsets[8] = {0, (uint16_t)(2 * n), 1,       (uint16_t)(2 * n + 1),
                                 n, (uint16_t)(3 * n), (uint16_t)(n + 1), (uint16_t)(3 * n + 1)};
    const uint16x8_t at = vldrhq_u16(offsets);
    do {
        const int8_t *c = columns;
        if (by == MT_TWICE)
            MT_MVE_DOT4_BY(MT_MVE_TWICE8);
        else if (by == MT_ONCE)
            MT_MVE_DOT4_BY(MT_MVE_ONCE8);
        else
            MT_MVE_DOT4_BY(MT_MVE_FLOAT8);
    } while (--pairs);
}

/* Two taps of a depthwise vector: their products fit in 16 bits (weights are -127 to 127), even and odd lanes apart. */
#define MT_MVE_TAPS2(x0, x1, w0, w1)      \
    "vldrb.u8 q4, " x0 "\n\t"             \
    "vldrb.u8 q5, [%[w], #" w0 "]\n\t"    \
    "vmullb.s8 q6, q4, q5\n\t"            \
    "vmullt.s8 q5, q4, q5\n\t"            \
    "vldrb.u8 q4, " x1 "\n\t"             \
    "vldrb.u8 q7, [%[w], #" w1 "]\n\t"    \
    "vmullb.s8 q7, q4, q7\n\t"            \
    "vadd.i16 q6, q6, q7\n\t"             \
    "vldrb.u8 q7, [%[w], #" w1 "]\n\t"    \
    "vmullt.s8 q7, q4, q7\n\t"            \
    "vadd.i16 q5, q5, q7\n\t" MT_MVE_WIDEN
#define MT_MVE_TAPS1(x0, w0)              \
    "vldrb.u8 q4, " x0 "\n\t"             \
    "vldrb.u8 q5, [%[w], #" w0 "]\n\t"    \
    "vmullb.s8 q6, q4, q5\n\t"            \
    "vmullt.s8 q5, q4, q5\n\t" MT_MVE_WIDEN
#define MT_MVE_WIDEN             \
    "vmovlb.s16 q4, q6\n\t"      \
    "vmovlt.s16 q6, q6\n\t"      \
    "vadd.i32 q0, q0, q4\n\t"    \
    "vmovlb.s16 q4, q5\n\t"      \
    "vadd.i32 q1, q1, q6\n\t"    \
    "vmovlt.s16 q5, q5\n\t"      \
    "vadd.i32 q2, q2, q4\n\t"    \
    "vadd.i32 q3, q3, q5\n\t"
/* A vector of sums, by what stands at `at` and, of multipliers, `places` behind the weights. */
#define MT_MVE_FLOAT(sum, free, at, places)   \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"  \
    "vcvt.f32.s32 " sum ", " sum "\n\t"       \
    "vmul.f32 " sum ", " sum ", " free "\n\t" \
    "vcvtn.s32.f32 " sum ", " sum "\n\t"
#define MT_MVE_TWICE(sum, free, at, places)       \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"      \
    "vqrdmulh.s32 " sum ", " sum ", " free "\n\t" \
    "vshr.s32 " free ", " sum ", #31\n\t"         \
    "vadd.i32 " sum ", " sum ", " free "\n\t"     \
    "vldrw.32 " free ", [%[w], #" places "]\n\t"  \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"
#define MT_MVE_TWICE_RELU(sum, free, at, places)  \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"      \
    "vqrdmulh.s32 " sum ", " sum ", " free "\n\t" \
    "vldrw.32 " free ", [%[w], #" places "]\n\t"  \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"
#define MT_MVE_ONCE(sum, free, at, places)       \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"     \
    "vmulh.s32 " sum ", " sum ", " free "\n\t"   \
    "vldrw.32 " free ", [%[w], #" places "]\n\t" \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"

#define MT_MVE_SLIDE(scale)                                                                                    \
    __asm__ volatile("1:\n\t"                                                                                  \
                     "vldrw.32 q0, [%[w], #80]\n\t"                                                            \
                     "vldrw.32 q1, [%[w], #96]\n\t"                                                            \
                     "vldrw.32 q2, [%[w], #112]\n\t"                                                           \
                     "vldrw.32 q3, [%[w], #128]\n\t"                                                           \
                     MT_MVE_TAPS2("[%[r0]]", "[%[r0], %[x1]]", "-64", "-48")                                   \
                     MT_MVE_TAPS2("[%[r0], %[x2]]", "[%[r1]]", "-32", "-16")                                   \
                     MT_MVE_TAPS2("[%[r1], %[x1]]", "[%[r1], %[x2]]", "0", "16")                               \
                     MT_MVE_TAPS2("[%[r2]]", "[%[r2], %[x1]]", "32", "48")                                     \
                     MT_MVE_TAPS1("[%[r2], %[x2]]", "64")                                                      \
                     scale("q0", "q4", "144", "208")                                                           \
                     scale("q1", "q5", "160", "224")                                                           \
                     scale("q2", "q6", "176", "240")                                                           \
                     scale("q3", "q7", "192", "256")                                                           \
                     "vqmovnb.s32 q0, q0\n\t"                                                                  \
                     "vqmovnb.s32 q2, q2\n\t"                                                                  \
                     "vqmovnt.s32 q0, q1\n\t"                                                                  \
                     "vqmovnt.s32 q2, q3\n\t"                                                                  \
                     "vqadd.s16 q0, q0, %[zero]\n\t"                                                           \
                     "vqadd.s16 q2, q2, %[zero]\n\t"                                                           \
                     "vqmovnb.s16 q0, q0\n\t"                                                                  \
                     "vqmovnt.s16 q0, q2\n\t"                                                                  \
                     "vmov.i8 q4, %[low]\n\t"                                                                  \
                     "vmov.i8 q5, %[high]\n\t"                                                                 \
                     "vmax.s8 q0, q0, q4\n\t"                                                                  \
                     "vmin.s8 q0, q0, q5\n\t"                                                                  \
                     "add %[r0], %[next]\n\t"                                                                  \
                     "add %[r1], %[next]\n\t"                                                                  \
                     "add %[r2], %[next]\n\t"                                                                  \
                     "vstrb.8 q0, [%[o]]\n\t"                                                                  \
                     "add %[o], %[step]\n\t"                                                                   \
                     "subs %[n], #1\n\t"                                                                       \
                     "bne 1b"                                                                                  \
                     : [r0] "+&r"(r0), [r1] "+&r"(r1), [r2] "+&r"(r2), [o] "+&r"(output), [n] "+&r"(count)     \
                     : [w] "r"(w), [zero] "r"(zero_point), [x1] "i"(lanes), [x2] "i"(2 * lanes),               \
                       [next] "i"(stride * 16), [step] "i"(step), [low] "i"(low & 255), [high] "i"(high & 255) \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory")

/* A row of outputs of a 3x3 depthwise, 16 lanes at a time: 16 channels of a pixel, or 8 of two pixels. `r0` to `r2` are
 * the padded rows of input, with `lanes` channels a pixel; the weights are nine vectors, then bias and scale in the
 * lanes' order after widening. All from `lanes` on are constants. */
MT_MVE_INLINE void mt_mve_slide_by(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,
                                   const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes,
                                   int32_t stride, int32_t step, int32_t low, int32_t high, enum mt_scaling by)
{
    const int8_t *const w = weights + 64;
    if (by == MT_TWICE && zero_point == -128)
        MT_MVE_SLIDE(MT_MVE_TWICE_RELU); /* what is negative is clamped */
    else if (by == MT_TWICE)
        MT_MVE_SLIDE(MT_MVE_TWICE);
    else if (by == MT_ONCE)
        MT_MVE_SLIDE(MT_MVE_ONCE);
    else
        MT_MVE_SLIDE(MT_MVE_FLOAT);
}

/* Rows of up to 16 channels: a vector a pixel; the lanes beyond are not wanted. */
MT_MVE_INLINE void mt_mve_lanes(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, int32_t lanes)
{
    const mve_pred16_t wanted = vctp8q((uint32_t)lanes);
    for (; pixels; --pixels, row += 16, x += step)
        vstrbq_s8(row, vldrbq_z_s8(x, wanted));
}

/* The same, with a channel for each lane. */
MT_MVE_INLINE void mt_mve_gather(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, const int8_t *places)
{
    const uint8x16_t at = vreinterpretq_u8_s8(vldrbq_s8(places));
    for (; pixels; --pixels, row += 16, x += step)
        vstrbq_s8(row, vldrbq_gather_offset_s8(x, at));
}

#define MT_MVE_SWEEP(scale)                                                                                    \
    __asm__ volatile("vldrw.32 q0, [%[w]], #16\n\t"                                                            \
                     "vldrw.32 q1, [%[w]], #16\n\t"                                                            \
                     "vldrw.32 q2, [%[w]], #16\n\t"                                                            \
                     "vldrw.32 q3, [%[w]], #16\n\t"                                                            \
                     "1:\n\t"                                                                                  \
                     "ldrd %[x0], %[x1], [%[t]], #8\n\t"                                                       \
                     "add %[x0], %[at]\n\t"                                                                    \
                     "add %[x1], %[at]\n\t"                                                                    \
                     MT_MVE_TAPS2("[%[x0]]", "[%[x1]]", "0", "16")                                             \
                     "adds %[w], #32\n\t"                                                                      \
                     "cmp %[t], %[end]\n\t"                                                                    \
                     "bne 1b\n\t"                                                                              \
                     scale("q0", "q4", "0", "64")                                                              \
                     scale("q1", "q5", "16", "80")                                                             \
                     scale("q2", "q6", "32", "96")                                                             \
                     scale("q3", "q7", "48", "112")                                                            \
                     "vqmovnb.s32 q0, q0\n\t"                                                                  \
                     "vqmovnb.s32 q2, q2\n\t"                                                                  \
                     "vqmovnt.s32 q0, q1\n\t"                                                                  \
                     "vqmovnt.s32 q2, q3\n\t"                                                                  \
                     "vldrh.u16 q4, [%[range]]\n\t"                                                            \
                     "vldrh.u16 q5, [%[range], #16]\n\t"                                                       \
                     "vldrh.u16 q6, [%[range], #32]\n\t"                                                       \
                     "vqadd.s16 q0, q0, q4\n\t"                                                                \
                     "vqadd.s16 q2, q2, q4\n\t"                                                                \
                     "vmax.s16 q0, q0, q5\n\t"                                                                 \
                     "vmax.s16 q2, q2, q5\n\t"                                                                 \
                     "vmin.s16 q0, q0, q6\n\t"                                                                 \
                     "vmin.s16 q2, q2, q6\n\t"                                                                 \
                     "vmovnb.i16 q0, q0\n\t"                                                                   \
                     "vmovnt.i16 q0, q2\n\t"                                                                   \
                     "vctp.8 %[lanes]\n\t"                                                                     \
                     "vpst\n\t"                                                                                \
                     "vstrbt.8 q0, [%[o]]"                                                                     \
                     : [w] "+&l"(w), [t] "+&r"(tap), [x0] "=&r"(x0), [x1] "=&r"(x1)                            \
                     : [at] "r"(rows), [end] "r"(end), [range] "l"(range), [lanes] "r"(lanes), [o] "r"(output) \
                     : "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "cc", "memory")

/* A row of outputs of a depthwise convolution, up to 16 channels: `taps` has where each tap meets the first output,
 * in bytes from `rows`, an even number of them. Bytes from one output's input to the next's, and from its results to the
 * next's: stride, step. The weights are biases, a vector a tap, scales. */
MT_MVE_INLINE void mt_mve_sweep(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights, int32_t pairs,
                                int32_t count, int32_t stride, int32_t step, int32_t lanes, enum mt_scaling by,
                                const struct mt_mve_range *range)
{
    const int8_t *const last = rows + count * stride;
    for (; rows != last; rows += stride, output += step) {
        const int32_t *tap = taps, *const end = taps + 2 * pairs;
        const int8_t *w = weights, *x0, *x1;
        if (by == MT_TWICE)
            MT_MVE_SWEEP(MT_MVE_TWICE);
        else if (by == MT_ONCE)
            MT_MVE_SWEEP(MT_MVE_ONCE);
        else
            MT_MVE_SWEEP(MT_MVE_FLOAT);
    }
}

/* 16 inputs by eight outputs of a dense layer. */
#define MT_MVE_ROW                       \
    "vldrb.u8 q0, [%[x]], #16\n\t"       \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vmladava.s8 r0, q0, q1\n\t"         \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 r2, q0, q2\n\t"         \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vmladava.s8 r4, q0, q1\n\t"         \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 r6, q0, q2\n\t"         \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vmladava.s8 r8, q0, q1\n\t"         \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 r10, q0, q2\n\t"        \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vmladava.s8 r12, q0, q1\n\t"        \
    "vldrb.u8 q2, [%[w]], #16\n\t"       \
    "vmladava.s8 lr, q0, q2\n\t"
#define MT_MVE_ROW_TWO MT_MVE_ROW MT_MVE_ROW
#define MT_MVE_ROW_FOUR MT_MVE_ROW_TWO MT_MVE_ROW_TWO
#define MT_MVE_FLOAT_ROWS8         \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vcvt.f32.s32 q0, q0\n\t"      \
    "vcvt.f32.s32 q1, q1\n\t"      \
    "vmul.f32 q0, q0, q2\n\t"      \
    "vmul.f32 q1, q1, q3\n\t"      \
    "vcvtn.s32.f32 q0, q0\n\t"     \
    "vcvtn.s32.f32 q1, q1\n\t"
#define MT_MVE_TWICE_ROWS8         \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vqrdmulh.s32 q0, q0, q2\n\t"  \
    "vqrdmulh.s32 q1, q1, q3\n\t"  \
    "vshr.s32 q2, q0, #31\n\t"     \
    "vshr.s32 q3, q1, #31\n\t"     \
    "vadd.i32 q0, q0, q2\n\t"      \
    "vadd.i32 q1, q1, q3\n\t"      \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vrshl.s32 q0, q0, q2\n\t"     \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_ONCE_ROWS8          \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vmulh.s32 q0, q0, q2\n\t"     \
    "vmulh.s32 q1, q1, q3\n\t"     \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vrshl.s32 q0, q0, q2\n\t"     \
    "vrshl.s32 q1, q1, q3\n\t"
#define MT_MVE_DENSE(blocks, scale)                                                                                   \
    __asm__ volatile("ldmia %[w]!, {r0, r2, r4, r6, r8, r10, r12, lr}\n\t"                                            \
                     "1:\n\t" blocks "cmp %[x], %[end]\n\t"                                                           \
                     "bne 1b\n\t"                                                                                     \
                     "vmov q0[2], q0[0], r0, r4\n\t"                                                                  \
                     "vmov q0[3], q0[1], r2, r6\n\t"                                                                  \
                     "vmov q1[2], q1[0], r8, r12\n\t"                                                                 \
                     "vmov q1[3], q1[1], r10, lr\n\t" scale                                                           \
                     "vqmovnb.s32 q0, q0\n\t"                                                                         \
                     "vqmovnb.s32 q1, q1\n\t"                                                                         \
                     "ldr r0, %[limits]\n\t"                                                                          \
                     "vldrh.u16 q2, [r0]\n\t"                                                                         \
                     "vqadd.s16 q0, q0, q2\n\t"                                                                       \
                     "vqadd.s16 q1, q1, q2\n\t"                                                                       \
                     "vldrh.u16 q2, [r0, #16]\n\t"                                                                    \
                     "vmax.s16 q0, q0, q2\n\t"                                                                        \
                     "vmax.s16 q1, q1, q2\n\t"                                                                        \
                     "vldrh.u16 q2, [r0, #32]\n\t"                                                                    \
                     "vmin.s16 q0, q0, q2\n\t"                                                                        \
                     "vmin.s16 q1, q1, q2\n\t"                                                                        \
                     "vstrb.32 q0, [%[o]], #4\n\t"                                                                    \
                     "vstrb.32 q1, [%[o]], #4"                                                                        \
                     : [w] "+&r"(weights), [x] "+&r"(x), [o] "+&l"(output)                                            \
                     : [end] "r"(end), [limits] "m"(range)                                                            \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory")

#define MT_MVE_DENSE_BY(scale)                    \
    do {                                          \
        if (unroll == 4)                          \
            MT_MVE_DENSE(MT_MVE_ROW_FOUR, scale); \
        else if (unroll == 2)                     \
            MT_MVE_DENSE(MT_MVE_ROW_TWO, scale);  \
        else                                      \
            MT_MVE_DENSE(MT_MVE_ROW, scale);      \
    } while (0)

/* Eight outputs of a dense layer at a time: biases, for each 16 inputs eight vectors of weights, scales. `unroll`
 * vectors of inputs an iteration, of which `end` is a multiple. */
MT_MVE_INLINE const int8_t *mt_mve_rows(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output,
                                        int32_t groups, int unroll, enum mt_scaling by,
                                        const struct mt_mve_range *range)
{
    do {
        const int8_t *x = input;
        if (by == MT_TWICE)
            MT_MVE_DENSE_BY(MT_MVE_TWICE_ROWS8);
        else if (by == MT_ONCE)
            MT_MVE_DENSE_BY(MT_MVE_ONCE_ROWS8);
        else
            MT_MVE_DENSE_BY(MT_MVE_FLOAT_ROWS8);
    } while (--groups);
    return weights;
}

#else /* the same in plain C */

MT_MVE_INLINE void mt_mve_column(int8_t *column, const int8_t *x, int32_t count)
{
    for (; count >= 16; count -= 16, x += 16, column += 64)
        memcpy(column, x, 16);
    if (count) {
        memset(column, 0, 16);
        memcpy(column, x, (size_t)count);
    }
}

MT_MVE_INLINE int8_t *mt_mve_copy(int8_t *column, const int8_t *x, int32_t blocks)
{
    for (; blocks; --blocks, x += 16, column += 64)
        memcpy(column, x, 16);
    return column;
}

MT_MVE_INLINE int8_t *mt_mve_fill(int8_t *column, int8_t value, int32_t blocks)
{
    for (; blocks; --blocks, column += 64)
        memset(column, value, 16);
    return column;
}

/* A sum by what is packed for it: a scale, or a multiplier and, `lanes` words behind it, negative places. */
MT_MVE_INLINE int8_t mt_mve_narrow(int32_t sum, const int8_t *packed, int32_t lanes, enum mt_scaling by,
                                   const struct mt_mve_range *range)
{
    float scale;
    int32_t multiplier, places;
    if (by == MT_BY_FLOAT) {
        memcpy(&scale, packed, 4);
        return (int8_t)mt_requantise_wide(sum, scale, range->zero_point[0], range->low[0], range->high[0]);
    }
    memcpy(&multiplier, packed, 4);
    memcpy(&places, packed + 4 * lanes, 4);
    return (int8_t)mt_clamp(mt_scaled(by, sum, multiplier, -places) + range->zero_point[0], range->low[0],
                            range->high[0]);
}

MT_MVE_INLINE void mt_mve_columns(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output,
                                  int32_t step, int32_t pairs, int unroll, enum mt_scaling by,
                                  const struct mt_mve_range *range)
{
    const int32_t length = (int32_t)(end - columns) / 2; /* bytes of weights for two channels */
    (void)unroll;
    for (; pairs; --pairs, weights += (by == MT_BY_FLOAT ? 16 : 24) + length, output += 2)
        for (int32_t q = 0; q < 2; ++q)
            for (int32_t p = 0; p < 4; ++p) {
                int32_t sum;
                memcpy(&sum, weights + 4 * q, 4);
                for (int32_t k = 0; k < length / 2; ++k)
                    sum += columns[k / 16 * 64 + p * 16 + k % 16] * weights[8 + k / 16 * 32 + q * 16 + k % 16];
                output[p * step + q] = mt_mve_narrow(sum, weights + 8 + length + 4 * q, 2, by, range);
            }
}

MT_MVE_INLINE void mt_mve_slide_by(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,
                                   const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes,
                                   int32_t stride, int32_t step, int32_t low, int32_t high, enum mt_scaling by)
{
    const struct mt_mve_range range =
        MT_MVE_RANGE((int16_t)zero_point, (int16_t)low, (int16_t)high);
    const int8_t *const rows[3] = {r0, r1, r2};
    for (int32_t x = 0; x < count; ++x, output += step)
        for (int32_t i = 0; i < 16; ++i) {
            const int32_t lane = i % 2 * 8 + i / 2 % 2 * 4 + i / 4; /* where bias and scale of channel i stand */
            int32_t sum;
            memcpy(&sum, weights + 144 + 4 * lane, 4);
            for (int32_t tap = 0; tap < 9; ++tap)
                sum += rows[tap / 3][x * stride * 16 + tap % 3 * lanes + i] * weights[16 * tap + i];
            output[i] = mt_mve_narrow(sum, weights + 208 + 4 * lane, 16, by, &range);
        }
}

MT_MVE_INLINE void mt_mve_lanes(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, int32_t lanes)
{
    for (; pixels; --pixels, row += 16, x += step)
        memcpy(row, x, (size_t)lanes);
}

MT_MVE_INLINE void mt_mve_gather(int8_t *row, const int8_t *x, int32_t pixels, int32_t step, const int8_t *places)
{
    for (; pixels; --pixels, row += 16, x += step)
        for (int32_t i = 0; i < 16; ++i)
            row[i] = x[places[i]];
}

MT_MVE_INLINE void mt_mve_sweep(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights, int32_t pairs,
                                int32_t count, int32_t stride, int32_t step, int32_t lanes, enum mt_scaling by,
                                const struct mt_mve_range *range)
{
    for (int32_t x = 0; x < count; ++x, output += step)
        for (int32_t i = 0; i < lanes; ++i) {
            const int32_t lane = i % 2 * 8 + i / 2 % 2 * 4 + i / 4; /* where bias and scale of channel i stand */
            int32_t sum;
            memcpy(&sum, weights + 4 * lane, 4);
            for (int32_t t = 0; t < 2 * pairs; ++t)
                sum += rows[taps[t] + x * stride + i] * weights[64 + 16 * t + i];
            output[i] = mt_mve_narrow(sum, weights + 64 + 32 * pairs + 4 * lane, 16, by, range);
        }
}

MT_MVE_INLINE const int8_t *mt_mve_rows(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output,
                                        int32_t groups, int unroll, enum mt_scaling by,
                                        const struct mt_mve_range *range)
{
    const int32_t depth = (int32_t)(end - input);
    (void)unroll;
    for (; groups; --groups, weights += (by == MT_BY_FLOAT ? 64 : 96) + 8 * depth, output += 8)
        for (int32_t q = 0; q < 8; ++q) {
            int32_t sum;
            memcpy(&sum, weights + 4 * q, 4);
            for (int32_t k = 0; k < depth; ++k)
                sum += input[k] * weights[32 + k / 16 * 128 + q * 16 + k % 16];
            output[q] = mt_mve_narrow(sum, weights + 32 + 8 * depth + 4 * q, 8, by, range);
        }
    return weights;
}

#endif

#define MT_MVE_SLIDE_BY(name, by)                                                                                    \
    MT_MVE_INLINE void name(const int8_t *r0, const int8_t *r1, const int8_t *r2, int8_t *output,                    \
                            const int8_t *weights, int32_t zero_point, int32_t count, int32_t lanes, int32_t stride, \
                            int32_t step, int32_t low, int32_t high)                                                 \
    {                                                                                                                \
        mt_mve_slide_by(r0, r1, r2, output, weights, zero_point, count, lanes, stride, step, low, high, by);         \
    }
MT_MVE_SLIDE_BY(mt_mve_slide, MT_BY_FLOAT)
MT_MVE_SLIDE_BY(mt_mve_slide_twice, MT_TWICE)
MT_MVE_SLIDE_BY(mt_mve_slide_once, MT_ONCE)

/* The functions that operators share. */
#define MT_MVE_COLUMNS(name, unroll, by)                                                                   \
    MT_OPERATOR void name(const int8_t *columns, const int8_t *end, const int8_t *weights, int8_t *output, \
                          int32_t step, int32_t pairs, const struct mt_mve_range *range)                   \
    {                                                                                                      \
        mt_mve_columns(columns, end, weights, output, step, pairs, unroll, by, range);                     \
    }
#define MT_MVE_TAPS(name, by)                                                                             \
    MT_OPERATOR void name(const int8_t *rows, const int32_t *taps, int8_t *output, const int8_t *weights, \
                          int32_t pairs, int32_t count, int32_t stride, int32_t step, int32_t lanes,      \
                          const struct mt_mve_range *range)                                               \
    {                                                                                                     \
        mt_mve_sweep(rows, taps, output, weights, pairs, count, stride, step, lanes, by, range);          \
    }
#define MT_MVE_ROWS(name, unroll, by)                                                                             \
    MT_OPERATOR const int8_t *name(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output, \
                                   int32_t groups, const struct mt_mve_range *range)                              \
    {                                                                                                             \
        return mt_mve_rows(input, end, weights, output, groups, unroll, by, range);                               \
    }
#define MT_MVE_EACH(kind, by)                       \
    MT_MVE_COLUMNS(mt_mve_columns##kind##_1, 1, by) \
    MT_MVE_COLUMNS(mt_mve_columns##kind##_2, 2, by) \
    MT_MVE_COLUMNS(mt_mve_columns##kind##_3, 3, by) \
    MT_MVE_COLUMNS(mt_mve_columns##kind##_4, 4, by) \
    MT_MVE_TAPS(mt_mve_taps##kind, by)              \
    MT_MVE_ROWS(mt_mve_dense##kind, 1, by)          \
    MT_MVE_ROWS(mt_mve_dense##kind##_2, 2, by)      \
    MT_MVE_ROWS(mt_mve_dense##kind##_4, 4, by)
MT_MVE_EACH(, MT_BY_FLOAT)
MT_MVE_EACH(_twice, MT_TWICE)
MT_MVE_EACH(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
