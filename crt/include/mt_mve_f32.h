/* The inner loops of float32 operators with Helium (Armv8.1-M MVE with floating point): vectors of four channels.
 *
 * Each output is summed in the order of mt_f32.h, with fused products, so that the results are those of its
 * functions with `fused`, but for denormal numbers: Helium takes them as zero. A load stands between multiplications that
 * do not need it, because the core does the two at once. Elsewhere, without optimisation and with MT_PORTABLE defined,
 * the same functions are plain C.
 *
 * `least` is 0 for a ReLU and MT_MVE_F32_ANY for none: bits of a float compare with it as those of an int32_t. */
#ifndef MT_MVE_F32_H
#define MT_MVE_F32_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__ARM_FEATURE_MVE) && \
    !defined(MT_PORTABLE)
#if __ARM_FEATURE_MVE & 2
#define MT_MVE_F32_ASM 1
#include <arm_mve.h>
#endif
#endif

#ifdef MT_MVE_F32_ASM
#define MT_MVE_F32_INLINE static inline __attribute__((always_inline))
#else
#define MT_MVE_F32_INLINE static inline
#endif

#define MT_MVE_F32_ANY INT32_MIN

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_F32_ASM

/* Four channels. Loads and sums stay in the order that they are written in: there are no more than eight registers. */
typedef float32x4_t mt_f32x4;

/* `bytes`: a constant of up to 508. */
MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_load(const float *from, int32_t bytes)
{
    mt_f32x4 value;
    __asm__ volatile("vldrw.32 %q0, [%1, %2]" : "=w"(value) : "r"(from), "i"(bytes) : "memory");
    return value;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_add_product(mt_f32x4 sum, mt_f32x4 a, mt_f32x4 b)
{
    __asm__ volatile("vfma.f32 %q0, %q1, %q2" : "+w"(sum) : "w"(a), "w"(b));
    return sum;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_zero(void)
{
    mt_f32x4 value;
    __asm__ volatile("vmov.i32 %q0, #0" : "=w"(value));
    return value;
}

MT_MVE_F32_INLINE mt_f32x4 mt_f32x4_relu(mt_f32x4 value, mt_f32x4 zero)
{
    __asm__ volatile("vmax.s32 %q0, %q0, %q1" : "+w"(value) : "w"(zero));
    return value;
}

MT_MVE_F32_INLINE void mt_f32x4_store(float *to, mt_f32x4 value)
{
    vstrwq_f32(to, value);
}

/* The first `lanes` of the four. */
MT_MVE_F32_INLINE void mt_f32x4_store_lanes(float *to, mt_f32x4 value, int32_t lanes)
{
    vstrwq_p_f32(to, value, vctp32q((uint32_t)lanes));
}

/* Where four floats of a column go that stand `pixels` apart, less the four steps that a store moves on first. */
MT_MVE_F32_INLINE uint32x4_t mt_mve_f32_places(const float *column, int32_t pixels)
{
    const uint32_t n = 4 * (uint32_t)pixels;
    return vaddq_n_u32(vmulq_n_u32(vidupq_n_u32(0, 1), n), (uint32_t)(uintptr_t)column - 4 * n);
}

/* `rows` times `count` floats become a column, `line` floats from one row to the next and `step` places in the column. */
MT_MVE_F32_INLINE void mt_mve_f32_spread(float *column, const float *x, int32_t rows, int32_t count, int32_t line,
                                         int32_t step, int32_t pixels)
{
    uint32x4_t first = mt_mve_f32_places(column, pixels);
    for (; rows > 0; --rows, x += line, first = vaddq_n_u32(first, (uint32_t)(4 * step * pixels))) {
        const float *from = x;
        uint32x4_t at = first;
        __asm__ volatile("wlstp.32 lr, %[n], 2f\n\t"
                         "1:\n\t"
                         "vldrw.32 q0, [%[x]], #16\n\t"
                         "vstrw.32 q0, [%q[at], %[four]]!\n\t"
                         "letp lr, 1b\n\t"
                         "2:"
                         : [x] "+&r"(from), [at] "+&w"(at)
                         : [n] "r"(count), [four] "i"(16 * pixels)
                         : "q0", "lr", "cc", "memory");
    }
}

/* Zeros instead. */
MT_MVE_F32_INLINE void mt_mve_f32_clear(float *column, int32_t rows, int32_t count, int32_t step, int32_t pixels)
{
    for (; rows > 0; --rows, column += step * pixels) {
        uint32x4_t at = mt_mve_f32_places(column, pixels);
        for (int32_t left = count; left > 0; left -= 4)
            vstrwq_scatter_base_wb_p_u32(&at, 16 * pixels, vdupq_n_u32(0), vctp32q((uint32_t)left));
    }
}

/* A row of vectors of zeros. */
MT_MVE_F32_INLINE void mt_mve_f32_blank(float *row, int32_t vectors)
{
    for (; vectors; --vectors, row += 4)
        vstrwq_f32(row, vdupq_n_f32(0.0f));
}

/* Two steps of k: three pixels (r0 to r2, then r3 to r5) by eight channels (q6, q7); the sums are q0 to q5, pixel by
 * pixel. */
#define MT_MVE_F32_THREE                \
    "ldmia %[c]!, {r0-r5}\n\t"          \
    "vldrw.32 q6, [%[w]], #16\n\t"      \
    "vldrw.32 q7, [%[w]], #16\n\t"      \
    "vfma.f32 q0, q6, r0\n\t"           \
    "vfma.f32 q2, q6, r1\n\t"           \
    "vfma.f32 q4, q6, r2\n\t"           \
    "vldrw.32 q6, [%[w]], #16\n\t"      \
    "vfma.f32 q1, q7, r0\n\t"           \
    "vfma.f32 q3, q7, r1\n\t"           \
    "vfma.f32 q5, q7, r2\n\t"           \
    "vldrw.32 q7, [%[w]], #16\n\t"      \
    "vfma.f32 q0, q6, r3\n\t"           \
    "vfma.f32 q2, q6, r4\n\t"           \
    "vfma.f32 q4, q6, r5\n\t"           \
    "vfma.f32 q1, q7, r3\n\t"           \
    "vfma.f32 q3, q7, r4\n\t"           \
    "vfma.f32 q5, q7, r5\n\t"

/* Two steps of k: six pixels (r0 to r5) by four channels (q6, then q7); the sums are q0 to q5. */
#define MT_MVE_F32_SIX                  \
    "ldmia %[c]!, {r0-r5}\n\t"          \
    "vldrw.32 q6, [%[w]], #16\n\t"      \
    "vldrw.32 q7, [%[w]], #16\n\t"      \
    "vfma.f32 q0, q6, r0\n\t"           \
    "vfma.f32 q1, q6, r1\n\t"           \
    "vfma.f32 q2, q6, r2\n\t"           \
    "vfma.f32 q3, q6, r3\n\t"           \
    "vfma.f32 q4, q6, r4\n\t"           \
    "vfma.f32 q5, q6, r5\n\t"           \
    "ldmia %[c]!, {r0-r5}\n\t"          \
    "vfma.f32 q0, q7, r0\n\t"           \
    "vfma.f32 q1, q7, r1\n\t"           \
    "vfma.f32 q2, q7, r2\n\t"           \
    "vfma.f32 q3, q7, r3\n\t"           \
    "vfma.f32 q4, q7, r4\n\t"           \
    "vfma.f32 q5, q7, r5\n\t"

#define MT_MVE_F32_TILE(biases, two, stores)                                                           \
    __asm__ volatile(biases "dls lr, %[n]\n\t"                                                          \
                     "1:\n\t" two two "le lr, 1b\n\t"                                                   \
                     "ldr r0, %[least]\n\t"                                                             \
                     "ldr r1, %[bytes]\n\t"                                                             \
                     "vdup.32 q6, r0\n\t"                                                               \
                     "vmax.s32 q0, q0, q6\n\t"                                                          \
                     "vmax.s32 q1, q1, q6\n\t"                                                          \
                     "vmax.s32 q2, q2, q6\n\t"                                                          \
                     "vmax.s32 q3, q3, q6\n\t"                                                          \
                     "vmax.s32 q4, q4, q6\n\t"                                                          \
                     "vmax.s32 q5, q5, q6\n\t" stores                                                   \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o] "+&r"(o)                                   \
                     : [n] "r"(fours), [least] "m"(least), [bytes] "m"(bytes)                           \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "lr", "q0", "q1", "q2", "q3", "q4", "q5",    \
                       "q6", "q7", "cc", "memory")

/* Three or six columns by all output channels, eight or four at a time. The columns stand side by side, a float of each
 * for each k; their depth is `fours` times four. For each group of channels the weights are: biases, then a float a
 * channel for each k. The pixels' outputs stand `step` floats apart. */
MT_MVE_F32_INLINE void mt_mve_f32_columns(const float *columns, const float *weights, float *output, int32_t step,
                                          int32_t fours, int32_t groups, int32_t pixels, int32_t least)
{
    const int32_t bytes = 4 * step;
    do {
        const float *c = columns;
        float *o = output;
        if (pixels == 3)
            MT_MVE_F32_TILE("vldrw.32 q0, [%[w]], #16\n\t"
                            "vldrw.32 q1, [%[w]], #16\n\t"
                            "vmov q2, q0\n\tvmov q3, q1\n\tvmov q4, q0\n\tvmov q5, q1\n\t",
                            MT_MVE_F32_THREE,
                            "vstrw.32 q0, [%[o]]\n\tvstrw.32 q1, [%[o], #16]\n\tadd %[o], r1\n\t"
                            "vstrw.32 q2, [%[o]]\n\tvstrw.32 q3, [%[o], #16]\n\tadd %[o], r1\n\t"
                            "vstrw.32 q4, [%[o]]\n\tvstrw.32 q5, [%[o], #16]");
        else
            MT_MVE_F32_TILE("vldrw.32 q0, [%[w]], #16\n\t"
                            "vmov q1, q0\n\tvmov q2, q0\n\tvmov q3, q0\n\tvmov q4, q0\n\tvmov q5, q0\n\t",
                            MT_MVE_F32_SIX,
                            "vstrw.32 q0, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q1, [%[o]]\n\tadd %[o], r1\n\t"
                            "vstrw.32 q2, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q3, [%[o]]\n\tadd %[o], r1\n\t"
                            "vstrw.32 q4, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q5, [%[o]]");
        output += pixels == 3 ? 8 : 4;
    } while (--groups);
}

/* Up to four channels of a row of pixels, `step` floats from one to the next. */
MT_MVE_F32_INLINE void mt_mve_f32_lanes(float *row, const float *x, int32_t pixels, int32_t step, int32_t lanes)
{
    const mve_pred16_t wanted = vctp32q((uint32_t)lanes);
    if (lanes >= 4)
        for (; pixels; --pixels, row += 4, x += step)
            vstrwq_f32(row, vldrwq_f32(x));
    else
        for (; pixels; --pixels, row += 4, x += step)
            vstrwq_f32(row, vldrwq_z_f32(x, wanted));
}

#define MT_MVE_F32_LOAD(to) "vldrw.32 " to ", [%[w]], #16\n\t"
#define MT_MVE_F32_ADD(sum, of, x) "vfma.f32 " sum ", " of ", " x "\n\t"
/* Four inputs (r0 to r3) by four outputs (q0), eight (q0, q1) or 16 (q0 to q3). */
#define MT_MVE_F32_ROWS4                                                                        \
    MT_MVE_F32_LOAD("q4") MT_MVE_F32_LOAD("q5") MT_MVE_F32_ADD("q0", "q4", "r0")                \
    MT_MVE_F32_LOAD("q6") MT_MVE_F32_ADD("q0", "q5", "r1")                                      \
    MT_MVE_F32_LOAD("q7") MT_MVE_F32_ADD("q0", "q6", "r2") MT_MVE_F32_ADD("q0", "q7", "r3")
#define MT_MVE_F32_TWO(x, then)                                                                 \
    MT_MVE_F32_LOAD("q5") MT_MVE_F32_ADD("q0", "q4", x) then MT_MVE_F32_ADD("q1", "q5", x)
#define MT_MVE_F32_ROWS8                                                                        \
    MT_MVE_F32_LOAD("q4") MT_MVE_F32_TWO("r0", MT_MVE_F32_LOAD("q4"))                           \
    MT_MVE_F32_TWO("r1", MT_MVE_F32_LOAD("q4")) MT_MVE_F32_TWO("r2", MT_MVE_F32_LOAD("q4"))     \
    MT_MVE_F32_TWO("r3", "")
#define MT_MVE_F32_FOUR(x, then)                                                                \
    MT_MVE_F32_LOAD("q5") MT_MVE_F32_ADD("q0", "q4", x) MT_MVE_F32_LOAD("q6")                   \
    MT_MVE_F32_ADD("q1", "q5", x) MT_MVE_F32_LOAD("q7") MT_MVE_F32_ADD("q2", "q6", x)           \
    then MT_MVE_F32_ADD("q3", "q7", x)
#define MT_MVE_F32_ROWS16                                                                       \
    MT_MVE_F32_LOAD("q4") MT_MVE_F32_FOUR("r0", MT_MVE_F32_LOAD("q4"))                          \
    MT_MVE_F32_FOUR("r1", MT_MVE_F32_LOAD("q4")) MT_MVE_F32_FOUR("r2", MT_MVE_F32_LOAD("q4"))   \
    MT_MVE_F32_FOUR("r3", "")
/* What is done with each sum: from zero, on top of the blocks before, and the bias at last. */
#define MT_MVE_F32_ZERO(sum, at) "vmov.i32 " sum ", #0\n\t"
#define MT_MVE_F32_PART(sum, at) "vldrw.32 q4, [%[o], #" at "]\n\tvadd.f32 " sum ", q4, " sum "\n\t"
#define MT_MVE_F32_LAST(sum, at) \
    "vldrw.32 q5, [%[w]], #16\n\tvadd.f32 " sum ", " sum ", q5\n\tvmax.s32 " sum ", " sum ", q4\n\t"
#define MT_MVE_F32_STORE(sum, at) "vstrw.32 " sum ", [%[o], #" at "]\n\t"
#define MT_MVE_F32_OF4(what) what("q0", "0")
#define MT_MVE_F32_OF8(what) MT_MVE_F32_OF4(what) what("q1", "16")
#define MT_MVE_F32_OF16(what) MT_MVE_F32_OF8(what) what("q2", "32") what("q3", "48")
#define MT_MVE_F32_DENSE(of, four)                                                              \
    __asm__ volatile(of(MT_MVE_F32_ZERO) "dls lr, %[n]\n\t"                                     \
                     "1:\n\t"                                                                   \
                     "ldmia %[x]!, {r0-r3}\n\t" four "le lr, 1b\n\t"                            \
                     "cmp %[later], #0\n\t"                                                     \
                     "beq 2f\n\t" of(MT_MVE_F32_PART)                                           \
                     "2:\n\t"                                                                   \
                     "cmp %[x], %[end]\n\t"                                                     \
                     "bne 3f\n\t"                                                               \
                     "vdup.32 q4, %[least]\n\t" of(MT_MVE_F32_LAST)                             \
                     "3:\n\t" of(MT_MVE_F32_STORE)                                              \
                     : [w] "+&r"(weights), [x] "+&r"(x)                                         \
                     : [n] "r"(fours), [later] "r"(x != input), [end] "r"(end), [o] "r"(output), \
                       [least] "r"(least)                                                       \
                     : "r0", "r1", "r2", "r3", "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6",  \
                       "q7", "cc", "memory")

/* Four, eight or 16 outputs (`wide`) of a dense layer at a time: for each input a float an output, then the biases;
 * inputs a multiple of four. In onnxruntime's order: sums of up to 256 products from zero, added up, then the bias. */
MT_MVE_F32_INLINE const float *mt_mve_f32_rows(const float *input, const float *end, const float *weights, float *output,
                                               int32_t groups, int32_t wide, int32_t least)
{
    do {
        const float *x = input;
        do {
            const int32_t fours = end - x < 256 ? (int32_t)(end - x) / 4 : 64;
            if (wide == 16)
                MT_MVE_F32_DENSE(MT_MVE_F32_OF16, MT_MVE_F32_ROWS16);
            else if (wide == 8)
                MT_MVE_F32_DENSE(MT_MVE_F32_OF8, MT_MVE_F32_ROWS8);
            else
                MT_MVE_F32_DENSE(MT_MVE_F32_OF4, MT_MVE_F32_ROWS4);
        } while (x != end);
        output += wide;
    } while (--groups);
    return weights;
}

#else /* the same in plain C; too many calls for a sanitised build to have them written out in an operator */

#if defined(__GNUC__)
typedef float mt_f32x4 __attribute__((vector_size(16)));
#define MT_MVE_F32_LANE(value, i) (value)[i]
#else
typedef struct {
    float lane[4];
} mt_f32x4;
#define MT_MVE_F32_LANE(value, i) (value).lane[i]
#endif

MT_OPERATOR mt_f32x4 mt_f32x4_load(const float *from, int32_t bytes)
{
    mt_f32x4 value;
    memcpy(&value, from + bytes / 4, sizeof(value));
    return value;
}

MT_OPERATOR mt_f32x4 mt_f32x4_add_product(mt_f32x4 sum, mt_f32x4 a, mt_f32x4 b)
{
    for (int32_t i = 0; i < 4; ++i)
        MT_MVE_F32_LANE(sum, i) = fmaf(MT_MVE_F32_LANE(a, i), MT_MVE_F32_LANE(b, i), MT_MVE_F32_LANE(sum, i));
    return sum;
}

MT_MVE_F32_INLINE float mt_mve_f32_at_least(float value, int32_t least)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = bits < least ? least : bits;
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

MT_OPERATOR mt_f32x4 mt_f32x4_zero(void)
{
    mt_f32x4 value;
    memset(&value, 0, sizeof(value));
    return value;
}

MT_OPERATOR mt_f32x4 mt_f32x4_relu(mt_f32x4 value, mt_f32x4 zero)
{
    for (int32_t i = 0; i < 4; ++i)
        MT_MVE_F32_LANE(value, i) = mt_mve_f32_at_least(MT_MVE_F32_LANE(value, i), 0);
    (void)zero;
    return value;
}

MT_OPERATOR void mt_f32x4_store(float *to, mt_f32x4 value)
{
    memcpy(to, &value, sizeof(value));
}

MT_OPERATOR void mt_f32x4_store_lanes(float *to, mt_f32x4 value, int32_t lanes)
{
    memcpy(to, &value, (size_t)lanes * sizeof(*to));
}

MT_MVE_F32_INLINE void mt_mve_f32_spread(float *column, const float *x, int32_t rows, int32_t count, int32_t line,
                                         int32_t step, int32_t pixels)
{
    for (; rows > 0; --rows, x += line, column += step * pixels)
        for (int32_t i = 0; i < count; ++i)
            column[i * pixels] = x[i];
}

MT_MVE_F32_INLINE void mt_mve_f32_clear(float *column, int32_t rows, int32_t count, int32_t step, int32_t pixels)
{
    for (; rows > 0; --rows, column += step * pixels)
        for (int32_t i = 0; i < count; ++i)
            column[i * pixels] = 0.0f;
}

MT_MVE_F32_INLINE void mt_mve_f32_blank(float *row, int32_t vectors)
{
    memset(row, 0, 4 * (size_t)vectors * sizeof(*row));
}

MT_MVE_F32_INLINE void mt_mve_f32_columns(const float *columns, const float *weights, float *output, int32_t step,
                                          int32_t fours, int32_t groups, int32_t pixels, int32_t least)
{
    const int32_t wide = pixels == 3 ? 8 : 4;
    for (; groups; --groups, weights += wide * (4 * fours + 1), output += wide)
        for (int32_t p = 0; p < pixels; ++p)
            for (int32_t q = 0; q < wide; ++q) {
                float sum = weights[q];
                for (int32_t k = 0; k < 4 * fours; ++k)
                    sum = fmaf(columns[k * pixels + p], weights[wide * (k + 1) + q], sum);
                output[p * step + q] = mt_mve_f32_at_least(sum, least);
            }
}

MT_MVE_F32_INLINE void mt_mve_f32_lanes(float *row, const float *x, int32_t pixels, int32_t step, int32_t lanes)
{
    for (; pixels; --pixels, row += 4, x += step)
        memcpy(row, x, (size_t)lanes * sizeof(*row));
}

MT_MVE_F32_INLINE const float *mt_mve_f32_rows(const float *input, const float *end, const float *weights, float *output,
                                               int32_t groups, int32_t wide, int32_t least)
{
    const int32_t depth = (int32_t)(end - input);
    for (; groups; --groups, weights += wide * (depth + 1), output += wide)
        for (int32_t q = 0; q < wide; ++q) {
            float sum = 0.0f, block = 0.0f;
            for (int32_t k = 0; k < depth; ++k) {
                block = fmaf(input[k], weights[wide * k + q], block);
                if (k % 256 == 255 || k == depth - 1) {
                    sum += block;
                    block = 0.0f;
                }
            }
            output[q] = mt_mve_f32_at_least(sum + weights[wide * depth + q], least);
        }
    return weights;
}

#endif

/* The functions that operators share. */
#define MT_MVE_F32_COLUMNS(pixels)                                                                                    \
    MT_OPERATOR void mt_mve_f32_columns_##pixels(const float *columns, const float *weights, float *output,           \
                                                 int32_t step, int32_t fours, int32_t groups, int32_t least)          \
    {                                                                                                                 \
        mt_mve_f32_columns(columns, weights, output, step, fours, groups, pixels, least);                             \
    }                                                                                                                 \
    /* the columns of so many pixels in a row */                                                                      \
    MT_OPERATOR void mt_mve_f32_pixels_##pixels(float *columns, const float *x, int32_t count, int32_t channels)      \
    {                                                                                                                 \
        for (; count; --count, ++columns, x += channels)                                                              \
            mt_mve_f32_spread(columns, x, 1, channels, 0, 0, pixels);                                                 \
    }                                                                                                                 \
    /* the column of a patch: of each row `count` elements, with zeros before and after them */                       \
    MT_OPERATOR void mt_mve_f32_patch_##pixels(float *column, const float *x, int32_t rows, int32_t line,             \
                                               int32_t before, int32_t count, int32_t after)                          \
    {                                                                                                                 \
        const int32_t step = before + count + after;                                                                  \
        mt_mve_f32_spread(column + before * pixels, x, rows, count, line, step, pixels);                              \
        if (before)                                                                                                   \
            mt_mve_f32_clear(column, rows, before, step, pixels);                                                     \
        if (after)                                                                                                    \
            mt_mve_f32_clear(column + (before + count) * pixels, rows, after, step, pixels);                          \
    }
MT_MVE_F32_COLUMNS(3)
MT_MVE_F32_COLUMNS(6)

#define MT_MVE_F32_ROWS(wide)                                                                                         \
    MT_OPERATOR const float *mt_mve_f32_rows_##wide(const float *input, const float *end, const float *weights,       \
                                                    float *output, int32_t groups, int32_t least)                     \
    {                                                                                                                 \
        return mt_mve_f32_rows(input, end, weights, output, groups, wide, least);                                     \
    }
MT_MVE_F32_ROWS(4)
MT_MVE_F32_ROWS(8)
MT_MVE_F32_ROWS(16)

#ifdef __cplusplus
}
#endif

#endif
