/* Internal to mtool: applications include mtool.h. */
/* Depthwise convolutions of int8 with RISC-V vectors of channels. See mt_rvv.h.
 *
 * The input lies in a ring of padded rows, all channels of a pixel together; `taps` has the input of each tap for
 * the first pixel of a row. Packed are, for N channels and T taps: N biases, N multipliers, N places if the scaling
 * has them, and T rows of N byte weights, the first in the lowest bits of a word. */
#ifndef MT_RVV_DEPTHWISE_INT8_H
#define MT_RVV_DEPTHWISE_INT8_H

#include "mt_rvv_store_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One output in plain C. */
MT_RVV_INLINE int8_t mt_rvv_one_of_taps(const int8_t *x, const int32_t *taps, const int8_t *weights, int32_t count,
                                        int32_t channels, int32_t i, const int32_t *numbers, enum mt_rvv_scaling by,
                                        const struct mt_rvv_range *how)
{
    int32_t sum = numbers[i];
    for (int32_t k = 0; k < count; ++k)
        sum += x[taps[k] + i] * weights[k * channels + i];
    return mt_rvv_narrow(sum, numbers[channels + i], numbers[(mt_rvv_words(by) - 1) * channels + i], by, how);
}

#ifdef MT_RVV_ASM

/* Some sums of the channels from `first` on are near a half: those that are checked are computed again. */
static MT_COLD void mt_rvv_taps_again(const struct mt_rvv_tile *tile, int32_t pixels, const int32_t *taps,
                                      const int8_t *weights, int32_t count, int32_t channels, int32_t first,
                                      int32_t wanted, const int32_t *numbers, const struct mt_rvv_range *how)
{
    for (int32_t i = first; i < first + wanted; ++i)
        for (int32_t p = 0; p < pixels && numbers[channels + i] < 0; ++p)
            tile->y[p][i] = mt_rvv_one_of_taps(tile->x[p], taps, weights, count, channels, i, numbers, MT_RVV_NEAR, how);
}

/* One tap for each pixel. */
#define MT_RVV_TAP(pixel, narrow, wide, row, sum) \
    "add t1, " pixel ", t0\n\t"                   \
    "vle8.v " narrow ", (t1)\n\t"                 \
    "vsext.vf2 " wide ", " narrow "\n\t"          \
    "vwmacc.vv " sum ", " row ", " wide "\n\t"
#define MT_RVV_TAP_WEIGHTS(row)   \
    "lw t0, 0(%[t])\n\t"          \
    "add t0, t0, %[at]\n\t"       \
    "addi %[t], %[t], 4\n\t"      \
    "vle8.v v0, (%[w])\n\t"       \
    "add %[w], %[w], %[n]\n\t"    \
    "vsext.vf2 " row ", v0\n\t"
#define MT_RVV_TAPS_2        \
    MT_RVV_TAP_WEIGHTS("v4") \
    MT_RVV_TAP("a2", "v2", "v8", "v4", "v16") MT_RVV_TAP("a3", "v0", "v12", "v4", "v24")
#define MT_RVV_TAPS_6                                                                          \
    MT_RVV_TAP_WEIGHTS("v2")                                                                   \
    MT_RVV_TAP("a2", "v1", "v4", "v2", "v8") MT_RVV_TAP("a3", "v0", "v6", "v2", "v12")         \
    MT_RVV_TAP("a4", "v1", "v4", "v2", "v16") MT_RVV_TAP("a5", "v0", "v6", "v2", "v20")        \
    MT_RVV_TAP("a6", "v1", "v4", "v2", "v24") MT_RVV_TAP("a7", "v0", "v6", "v2", "v28")

/* A tile of `size` pixels by the number of channels that fit: vl. */
#define MT_RVV_DEPTHWISE(size, all, free, scale, l32, l16, l8)                                                        \
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], %[left], e16, " l16 ", ta, ma\n\t"                                  \
                     MT_RVV_COLUMNS_##size MT_RVV_BIAS_##size "1:\n\t" MT_RVV_TAPS_##size                             \
                     "addi %[k], %[k], -1\n\t"                                                                        \
                     "bnez %[k], 1b\n\t" MT_RVV_STORED(all, free, scale, l32, l16, l8) MT_RVV_END                     \
                     : [vl] "=&r"(vl), [w] "+&r"(w), [t] "+&r"(t), [k] "+&r"(k), [found] "+&r"(found)                 \
                     : [left] "r"(channels - at), [x] "r"(tile.x), [o] "r"(tile.y), [n] "r"(channels), [at] "r"(at),  \
                       [m] "r"(numbers + channels + at), [how] "r"(how)                                               \
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a2", "a3", "a4", "a5", "a6", "a7",                  \
                       MT_RVV_VECTORS "memory")

#define MT_RVV_DEPTHWISE_BY(scale)                                               \
    do {                                                                         \
        if (wide)                                                                \
            MT_RVV_DEPTHWISE(2, MT_RVV_TWO, "v8", scale, "m8", "m4", "m2");      \
        else                                                                     \
            MT_RVV_DEPTHWISE(6, MT_RVV_SIX, "v4", scale, "m4", "m2", "m1");      \
    } while (0)

#endif

/* A row of outputs, `step` bytes of the ring apart: by tiles of two pixels if `wide`, otherwise of six. */
MT_RVV_INLINE void mt_rvv_row(const int8_t *ring, const int32_t *taps, int32_t count, const uint32_t *packed,
                              int8_t *output, int32_t pixels, int32_t step, int32_t channels, int wide,
                              enum mt_rvv_scaling by, const struct mt_rvv_range *how)
{
    const int32_t *const numbers = (const int32_t *)packed;
    const int8_t *const weights = (const int8_t *)(packed + mt_rvv_words(by) * channels);
#ifdef MT_RVV_ASM
    const int32_t most = wide ? 2 : MT_RVV_MOST;
    for (int32_t left = pixels; left > 0; left -= most) {
        struct mt_rvv_tile tile;
        int32_t vl;
        for (int32_t p = 0; p < most; ++p) { /* missing pixels repeat the last one */
            tile.x[p] = ring;
            tile.y[p] = output;
            ring += p + 1 < left ? step : 0;
            output += p + 1 < left ? channels : 0;
        }
        for (int32_t at = 0; at < channels; at += vl) {
            const int8_t *w = weights + at;
            const int32_t *t = taps;
            int32_t k = count, found = 0;
            if (by == MT_RVV_FIXED)
                MT_RVV_DEPTHWISE_BY(MT_RVV_BY_FIXED);
            else if (by == MT_RVV_NEAR)
                MT_RVV_DEPTHWISE_BY(MT_RVV_BY_NEAR);
            else if (by == MT_RVV_EVEN)
                MT_RVV_DEPTHWISE_BY(MT_RVV_BY_EVEN);
            else if (by == MT_RVV_ONCE)
                MT_RVV_DEPTHWISE_BY(MT_RVV_BY_ONCE);
            else
                MT_RVV_DEPTHWISE_BY(MT_RVV_BY_TWICE);
            if (by == MT_RVV_NEAR && MT_SELDOM(found))
                mt_rvv_taps_again(&tile, left < most ? left : most, taps, weights, count, channels, at, vl, numbers, how);
        }
    }
#else
    (void)wide;
    for (int32_t x = 0; x < pixels; ++x)
        for (int32_t i = 0; i < channels; ++i)
            output[x * channels + i] =
                mt_rvv_one_of_taps(ring + x * step, taps, weights, count, channels, i, numbers, by, how);
#endif
}

/* The instances that operators share. */
#define MT_RVV_TAPS_FUNCTIONS(kind, by)                                                                            \
    MT_OPERATOR void mt_rvv_taps_wide##kind(const int8_t *ring, const int32_t *taps, int32_t count,                \
                                            const uint32_t *packed, int8_t *output, int32_t pixels, int32_t step,  \
                                            int32_t channels, const struct mt_rvv_range *how)                      \
    {                                                                                                              \
        mt_rvv_row(ring, taps, count, packed, output, pixels, step, channels, 1, by, how);                         \
    }                                                                                                              \
    MT_OPERATOR void mt_rvv_taps_tall##kind(const int8_t *ring, const int32_t *taps, int32_t count,                \
                                            const uint32_t *packed, int8_t *output, int32_t pixels, int32_t step,  \
                                            int32_t channels, const struct mt_rvv_range *how)                      \
    {                                                                                                              \
        mt_rvv_row(ring, taps, count, packed, output, pixels, step, channels, 0, by, how);                         \
    }
MT_RVV_TAPS_FUNCTIONS(, MT_RVV_FIXED)
MT_RVV_TAPS_FUNCTIONS(_near, MT_RVV_NEAR)
MT_RVV_TAPS_FUNCTIONS(_even, MT_RVV_EVEN)
MT_RVV_TAPS_FUNCTIONS(_once, MT_RVV_ONCE)
MT_RVV_TAPS_FUNCTIONS(_twice, MT_RVV_TWICE)

#ifdef __cplusplus
}
#endif

#endif
