/* Internal to mtool: applications include mtool.h. */
/* Products of two int8 activations with SIMD32: three rows by two columns. See mt_dsp.h.
 *
 * Both are widened to int16 pairs, minus their zero points. Within four elements the pairs are (0, 2) and (1, 3). */
#ifndef MT_DSP_GEMM_INT8_H
#define MT_DSP_GEMM_INT8_H

#include "mt_dsp_tile_3x2_int16.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How sums are scaled. */
struct mt_dsp_product {
    float scale;
    struct mt_dsp_range range;
};

/* `count` adjacent elements, padded with zeros to `filled`; pairs are written `gap` words apart. */
MT_DSP_INLINE void mt_dsp_product_widen(int32_t *to, int32_t gap, const int8_t *from, int32_t count, int32_t filled,
                                        int32_t zero_point)
{
    const int32_t minus = (int32_t)((uint32_t)(uint16_t)-zero_point * 0x10001u);
    for (int32_t k = 0; k < count / 4; ++k, from += 4, to += 2 * gap) {
        uint32_t word;
        memcpy(&word, from, 4);
#ifdef MT_DSP_FPU
        __asm__("sxtab16 %0, %2, %3\n\t"
                "sxtab16 %1, %2, %3, ror #8"
                : "=&r"(to[0]), "=r"(to[gap])
                : "r"(minus), "r"(word));
#else
        for (int32_t half = 0; half < 2; ++half) {
            const int32_t low = from[half] - zero_point, high = from[half + 2] - zero_point;
            to[half * gap] = (int32_t)((uint32_t)low & 0xffff) | (int32_t)((uint32_t)high << 16);
        }
        (void)minus;
#endif
    }
    for (int32_t k = count / 4 * 4; k < filled; k += 4, to += 2 * gap)
        for (int32_t half = 0; half < 2; ++half) {
            const int32_t low = k + half < count ? from[k % 4 + half] - zero_point : 0;
            const int32_t high = k + half + 2 < count ? from[k % 4 + half + 2] - zero_point : 0;
            to[half * gap] = (int32_t)((uint32_t)low & 0xffff) | (int32_t)((uint32_t)high << 16);
        }
}

/* The same for elements `step` apart. */
MT_DSP_INLINE void mt_dsp_product_widen_strided(int32_t *to, int32_t gap, const int8_t *from, int32_t step,
                                                int32_t count, int32_t filled, int32_t zero_point)
{
    for (int32_t k = 0; k < count / 4 * 4; k += 4, from += 4 * step, to += 2 * gap) {
        const int32_t first = from[0] - zero_point, second = from[step] - zero_point;
        const int32_t third = from[2 * step] - zero_point, fourth = from[3 * step] - zero_point;
        to[0] = (int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)third << 16);
        to[gap] = (int32_t)((uint32_t)second & 0xffff) | (int32_t)((uint32_t)fourth << 16);
    }
    for (int32_t k = count / 4 * 4; k < filled; k += 4, to += 2 * gap)
        for (int32_t half = 0; half < 2; ++half) {
            const int32_t low = k + half < count ? from[half * step] - zero_point : 0;
            const int32_t high = k + half + 2 < count ? from[(half + 2) * step] - zero_point : 0;
            to[half * gap] = (int32_t)((uint32_t)low & 0xffff) | (int32_t)((uint32_t)high << 16);
        }
}

#ifdef MT_DSP_FPU

/* Three rows of `end - rows` words by pairs of columns: for each pair two zeros, then for two steps of k a word of
 * each. */
MT_DSP_INLINE void mt_dsp_product(const int32_t *rows, const int32_t *end, const int32_t *stream, int32_t pairs,
                                  int8_t *o0, int8_t *o1, int8_t *o2, int unroll, int full,
                                  const struct mt_dsp_product *how)
{
    const struct mt_dsp_range own = how->range;
    const float scale = how->scale;
    const uint32_t *weights = (const uint32_t *)stream;
    int32_t at = -2 * pairs; /* offset from the ends of the outputs */
    o0 -= at;
    o1 -= at;
    o2 -= at;
    do {
        int32_t a0, a1, a2, b0, b1, b2;
        const int32_t *c = rows;
        if (unroll == 28)
            MT_DSP16_DOT3(MT_DSP16_MAC28);
        else if (unroll == 16)
            MT_DSP16_DOT3(MT_DSP16_MAC16);
        else
            MT_DSP16_DOT3(MT_DSP16_MAC8);
        __asm__ volatile(MT_DSP_SCALE6("%[s]", "%[s]")
                         : [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2), [b0] "+&r"(b0), [b1] "+&r"(b1),
                           [b2] "+&r"(b2)
                         : [s] "t"(scale)
                         : "s2", "s3", "s4", "s5", "s6", "s7");
#define MT_DSP_PRODUCT_STORE(a, b, o)                                       \
    if (full)                                                               \
        __asm__ volatile("qadd %[va], %[va], %[offset]\n\t"                 \
                         "qadd %[vb], %[vb], %[offset]\n\t" MT_DSP_BYTES2   \
                         : [va] "+&r"(a), [vb] "+&r"(b)                     \
                         : [to] "r"(o), [at] "r"(at), [offset] "r"(own.offset) \
                         : "cc", "memory");                                 \
    else                                                                    \
        MT_DSP_STORE_RANGE(a, b, o)
        MT_DSP_PRODUCT_STORE(a0, b0, o0);
        MT_DSP_PRODUCT_STORE(a1, b1, o1);
        MT_DSP_PRODUCT_STORE(a2, b2, o2);
    } while (at += 2);
}

#else /* portable version */

MT_DSP_INLINE void mt_dsp_product(const int32_t *rows, const int32_t *end, const int32_t *stream, int32_t pairs,
                                  int8_t *o0, int8_t *o1, int8_t *o2, int unroll, int full,
                                  const struct mt_dsp_product *how)
{
    int8_t *const o[3] = {o0, o1, o2};
    uint32_t scale;
    memcpy(&scale, &how->scale, 4);
    (void)unroll;
    (void)full;
    for (int32_t n = 0; n < pairs; ++n) {
        uint32_t sums[6];
        for (int32_t j = 0; j < 6; ++j)
            sums[j] = (uint32_t)stream[j % 2];
        stream += 2;
        for (const int32_t *c = rows; c != end; c += 3, stream += 2)
            for (int32_t j = 0; j < 6; ++j)
                sums[j] = mt_dsp_smlad(c[j / 2], stream[j % 2], sums[j]);
        for (int32_t j = 0; j < 6; ++j)
            o[j / 2][2 * n + j % 2] = mt_dsp_narrow(sums[j], 1, &scale, &scale, MT_BY_FLOAT, &how->range);
    }
}

#endif

/* The instances that operators share: unrolling, and whether the output has a range of its own. */
#define MT_DSP_PRODUCT(name, unroll, full)                                                                           \
    MT_OPERATOR void name(const int32_t *rows, const int32_t *end, const int32_t *stream, int32_t pairs, int8_t *o0, \
                          int8_t *o1, int8_t *o2, const struct mt_dsp_product *how)                                  \
    {                                                                                                                \
        mt_dsp_product(rows, end, stream, pairs, o0, o1, o2, unroll, full, how);                                     \
    }
MT_DSP_PRODUCT(mt_dsp_product_8, 8, 1)
MT_DSP_PRODUCT(mt_dsp_product_16, 16, 1)
MT_DSP_PRODUCT(mt_dsp_product_28, 28, 1)
MT_DSP_PRODUCT(mt_dsp_product_8_range, 8, 0)
MT_DSP_PRODUCT(mt_dsp_product_16_range, 16, 0)
MT_DSP_PRODUCT(mt_dsp_product_28_range, 28, 0)

#ifdef __cplusplus
}
#endif

#endif
