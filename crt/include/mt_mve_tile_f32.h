/* Internal to mtool: applications include mtool.h. */
/* Convolutions of float32 with Helium: three pixels by eight output channels, or six by four. See mt_mve_f32.h. */
#ifndef MT_MVE_TILE_F32_H
#define MT_MVE_TILE_F32_H

#include "mt_mve_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* The places of four floats of a column, `pixels` apart, minus the four steps by which a store advances first. */
MT_MVE_F32_INLINE uint32x4_t mt_mve_f32_places(const float *column, int32_t pixels)
{
    const uint32_t n = 4 * (uint32_t)pixels;
    return vaddq_n_u32(vmulq_n_u32(vidupq_n_u32(0, 1), n), (uint32_t)(uintptr_t)column - 4 * n);
}

/* Copy `rows` times `count` floats to a column: `line` floats from row to row in the source, `step` places in the
 * column. */
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

/* Two steps of k: three pixels (r0 to r2, then r3 to r5) by eight channels (q6, q7); the sums are q0 to q5, pixel by
 * pixel. */
#define MT_MVE_F32_THREE(load)          \
    "ldmia %[c]!, {r0-r5}\n\t"          \
    load(6)                           \
    load(7)                           \
    "vfma.f32 q0, q6, r0\n\t"           \
    "vfma.f32 q2, q6, r1\n\t"           \
    "vfma.f32 q4, q6, r2\n\t"           \
    load(6)                           \
    "vfma.f32 q1, q7, r0\n\t"           \
    "vfma.f32 q3, q7, r1\n\t"           \
    "vfma.f32 q5, q7, r2\n\t"           \
    load(7)                           \
    "vfma.f32 q0, q6, r3\n\t"           \
    "vfma.f32 q2, q6, r4\n\t"           \
    "vfma.f32 q4, q6, r5\n\t"           \
    "vfma.f32 q1, q7, r3\n\t"           \
    "vfma.f32 q3, q7, r4\n\t"           \
    "vfma.f32 q5, q7, r5\n\t"

/* Two steps of k: six pixels (r0 to r5) by four channels (q6, then q7); the sums are q0 to q5. */
#define MT_MVE_F32_SIX(load)            \
    "ldmia %[c]!, {r0-r5}\n\t"          \
    load(6)                           \
    load(7)                           \
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

#define MT_MVE_F32_TILE(biases, two, stores, any)                                                      \
    MT_KEPT(__asm__ volatile(biases "dls lr, %[n]\n\t"                                                  \
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
                     : [w] any(weights), [c] "+&r"(c), [o] "+&r"(o)                                     \
                     : [n] "r"(fours), [least] "m"(least), [bytes] "m"(bytes)                           \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "lr", "q0", "q1", "q2", "q3", "q4", "q5",    \
                       "q6", "q7", "cc", "memory"))

#define MT_MVE_F32_TILE3(load, any)                                                                     \
    MT_MVE_F32_TILE("vldrw.32 q0, [%[w]], #16\n\t"                                                      \
                    "vldrw.32 q1, [%[w]], #16\n\t"                                                      \
                    "vmov q2, q0\n\tvmov q3, q1\n\tvmov q4, q0\n\tvmov q5, q1\n\t",                     \
                    MT_MVE_F32_THREE(load),                                                             \
                    "vstrw.32 q0, [%[o]]\n\tvstrw.32 q1, [%[o], #16]\n\tadd %[o], r1\n\t"               \
                    "vstrw.32 q2, [%[o]]\n\tvstrw.32 q3, [%[o], #16]\n\tadd %[o], r1\n\t"               \
                    "vstrw.32 q4, [%[o]]\n\tvstrw.32 q5, [%[o], #16]", any)
#define MT_MVE_F32_TILE6(load, any)                                                                     \
    MT_MVE_F32_TILE("vldrw.32 q0, [%[w]], #16\n\t"                                                      \
                    "vmov q1, q0\n\tvmov q2, q0\n\tvmov q3, q0\n\tvmov q4, q0\n\tvmov q5, q0\n\t",      \
                    MT_MVE_F32_SIX(load),                                                               \
                    "vstrw.32 q0, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q1, [%[o]]\n\tadd %[o], r1\n\t"    \
                    "vstrw.32 q2, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q3, [%[o]]\n\tadd %[o], r1\n\t"    \
                    "vstrw.32 q4, [%[o]]\n\tadd %[o], r1\n\tvstrw.32 q5, [%[o]]", any)

/* Three or six columns by all output channels, eight or four at a time. The columns are interleaved, a float of each
 * for each k; their depth is four times `fours`. For each group of channels the weights are: biases (floats), then a
 * weight per channel for each k. The pixels' outputs are `step` floats apart. */
MT_MVE_F32_INLINE void mt_mve_f32_columns(const float *columns, const uint32_t *weights, float *output, int32_t step,
                                          int32_t fours, int32_t groups, int32_t pixels, int halves, int32_t least)
{
    const int32_t bytes = 4 * step;
    do {
        const float *c = columns;
        float *o = output;
        if (pixels == 3 && halves)
            MT_MVE_F32_TILE3(MT_MVE_F32_HALVES, "+&l");
        else if (pixels == 3)
            MT_MVE_F32_TILE3(MT_MVE_F32_FLOATS, "+&r");
        else if (halves)
            MT_MVE_F32_TILE6(MT_MVE_F32_HALVES, "+&l");
        else
            MT_MVE_F32_TILE6(MT_MVE_F32_FLOATS, "+&r");
        output += pixels == 3 ? 8 : 4;
    } while (--groups);
}

/* The same for columns deeper than 256: blocks of 128 are added with compensation for rounding. In the weights, each
 * block except a group's first has zeros instead of biases. */
MT_MVE_F32_INLINE void mt_mve_f32_columns_long(const float *columns, const uint32_t *weights, float *output,
                                               int32_t step, int32_t depth, int32_t groups, int32_t pixels, int halves,
                                               int32_t lowest)
{
    const int32_t wide = pixels == 3 ? 8 : 4, bytes = 4 * wide, least = MT_MVE_F32_ANY;
    do {
        const float *c = columns;
        float block[24];
        float32x4_t sums[6], rests[6];
        for (int32_t i = 0; i < 6; ++i)
            sums[i] = rests[i] = vdupq_n_f32(0.0f);
        for (int32_t left = depth; left > 0; left -= 32) {
            const int32_t fours = left > 32 ? 32 : left;
            float *o = block;
            if (pixels == 3 && halves)
                MT_MVE_F32_TILE3(MT_MVE_F32_HALVES, "+&l");
            else if (pixels == 3)
                MT_MVE_F32_TILE3(MT_MVE_F32_FLOATS, "+&r");
            else if (halves)
                MT_MVE_F32_TILE6(MT_MVE_F32_HALVES, "+&l");
            else
                MT_MVE_F32_TILE6(MT_MVE_F32_FLOATS, "+&r");
            mt_mve_f32_add_blocks(block, sums, rests, 6);
        }
        for (int32_t i = 0; i < 6; ++i) {
            const int32x4_t total = vreinterpretq_s32_f32(mt_mve_f32_total(sums[i], rests[i]));
            float *const to = output + (pixels == 3 ? i / 2 * step + i % 2 * 4 : i * step);
            vstrwq_s32((int32_t *)(void *)to, vmaxq_s32(total, vdupq_n_s32(lowest)));
        }
        output += wide;
    } while (--groups);
}

#else /* portable version */

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

MT_MVE_F32_INLINE void mt_mve_f32_columns(const float *columns, const uint32_t *weights, float *output, int32_t step,
                                          int32_t fours, int32_t groups, int32_t pixels, int halves, int32_t least)
{
    const int32_t wide = pixels == 3 ? 8 : 4;
    for (; groups; --groups, weights += wide + wide * 4 * fours / (halves ? 2 : 1), output += wide)
        for (int32_t p = 0; p < pixels; ++p)
            for (int32_t q = 0; q < wide; ++q) {
                float sum = mt_mve_f32_weight(weights, q, 0);
                for (int32_t k = 0; k < 4 * fours; ++k)
                    sum = fmaf(columns[k * pixels + p], mt_mve_f32_weight(weights + wide, wide * k + q, halves), sum);
                output[p * step + q] = mt_mve_f32_at_least(sum, least);
            }
}

MT_MVE_F32_INLINE void mt_mve_f32_columns_long(const float *columns, const uint32_t *weights, float *output,
                                               int32_t step, int32_t fours, int32_t groups, int32_t pixels, int halves,
                                               int32_t least)
{
    const int32_t wide = pixels == 3 ? 8 : 4, depth = 4 * fours;
    for (; groups; --groups, output += wide) {
        const uint32_t *from = weights;
        for (int32_t p = 0; p < pixels; ++p)
            for (int32_t q = 0; q < wide; ++q) {
                float total = 0.0f, rest = 0.0f;
                from = weights;
                for (int32_t first = 0, last; first < depth; first = last) {
                    float sum = mt_mve_f32_weight(from, q, 0);
                    last = depth - first > 128 ? first + 128 : depth;
                    for (int32_t k = first; k < last; ++k) {
                        const float weight = mt_mve_f32_weight(from + wide, wide * (k - first) + q, halves);
                        sum = fmaf(columns[k * pixels + p], weight, sum);
                    }
                    mt_add_f32(&total, &rest, sum);
                    from += wide + wide * (last - first) / (halves ? 2 : 1);
                }
                output[p * step + q] = mt_mve_f32_at_least(mt_total_f32(total, rest), least);
            }
        weights = from;
    }
}

#endif

/* The instances that operators share. */
#define MT_MVE_F32_MEET(function, name, type, pixels, halves)                                                         \
    MT_OPERATOR void name(const float *columns, const type *weights, float *output, int32_t step, int32_t fours,      \
                          int32_t groups, int32_t least)                                                              \
    {                                                                                                                 \
        const uint32_t *const words = (const uint32_t *)(const void *)weights;                                        \
        function(columns, words, output, step, fours, groups, pixels, halves, least);                                 \
    }
#define MT_MVE_F32_COLUMNS(pixels)                                                                                    \
    MT_MVE_F32_MEET(mt_mve_f32_columns, mt_mve_f32_columns_##pixels, float, pixels, 0)                                \
    MT_MVE_F32_MEET(mt_mve_f32_columns, mt_mve_f32_columns_halves_##pixels, uint32_t, pixels, 1)                      \
    MT_MVE_F32_MEET(mt_mve_f32_columns_long, mt_mve_f32_columns_long_##pixels, float, pixels, 0)                      \
    MT_MVE_F32_MEET(mt_mve_f32_columns_long, mt_mve_f32_columns_long_halves_##pixels, uint32_t, pixels, 1)            \
    /* the columns of `count` pixels in a row */                                                                      \
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

#ifdef __cplusplus
}
#endif

#endif
