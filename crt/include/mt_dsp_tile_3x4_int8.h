/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with SIMD32 and weights of one or two bits: three pixels by four output channels. For each four
 * channels the weights are: biases, words of fields (mt_dsp_fields_int8.h), scales of each two. */
#ifndef MT_DSP_TILE_3X4_INT8_H
#define MT_DSP_TILE_3X4_INT8_H

#include "mt_dsp_fields_int8.h"
#include "mt_dsp_tile_3x2_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sums of the three columns in each `block` of inputs, three side by side. */
MT_DSP_INLINE void mt_dsp_column_totals(int32_t *totals, const int32_t *c, const int32_t *end, int32_t block)
{
    do {
        const int32_t *const stop = end - c < block / 2 * 3 ? end : c + block / 2 * 3;
        int32_t t0 = 0, t1 = 0, t2 = 0;
        for (; c < stop; c += 3) {
            t0 = mt_dsp_add_pair(c[0], t0);
            t1 = mt_dsp_add_pair(c[1], t1);
            t2 = mt_dsp_add_pair(c[2], t2);
        }
        *totals++ = t0;
        *totals++ = t1;
        *totals++ = t2;
    } while (c != end);
}

#ifdef MT_DSP_ASM

/* A word of weights: four steps of k of two bits, eight of one; 48 multiply-accumulates in 19 instructions. Sums r0 to r5
 * (of each pixel those of channels 0 and 1, and of 2 and 3), pixels r8 to r10, weights r11, the mask r12. */
#define MT_DSP_FIELDS3(first, second)        \
    "ldmia r7!, {r8, r9, r10}\n\t"         \
    "and r6, r12, r11, ror #" #first "\n\t"  \
    "smlad r0, r8, r6, r0\n\t"               \
    "smlad r2, r9, r6, r2\n\t"               \
    "smlad r4, r10, r6, r4\n\t"              \
    "and r6, r12, r11, ror #" #second "\n\t" \
    "smlad r1, r8, r6, r1\n\t"               \
    "smlad r3, r9, r6, r3\n\t"               \
    "smlad r5, r10, r6, r5\n\t"
#define MT_DSP_3X4_WORD2 "ldr r11, [lr], #4\n\t" MT_DSP_FIELDS3(0, 4) MT_DSP_FIELDS3(8, 12)
#define MT_DSP_3X4_WORD1 \
    "ldr r11, [lr], #4\n\t" MT_DSP_FIELDS3(0, 1) MT_DSP_FIELDS3(4, 5) MT_DSP_FIELDS3(8, 9) MT_DSP_FIELDS3(12, 13)
#define MT_DSP_3X4_WORD2_SIZE 76 /* size of MT_DSP_3X4_WORD2 */
#define MT_DSP_3X4_WORD1_SIZE 148 /* size of MT_DSP_3X4_WORD1 */
/* Sums of each pixel: of channels 0 and 1, and of 2 and 3. */
struct mt_dsp_both {
    int32_t of[2];
};

/* All registers are taken: what the assembly reads and writes is memory. */
#define MT_DSP_DOT3X4_OF(word, size, from)                                                                       \
    __asm__ volatile("movw r12, %[mask]\n\tmovt r12, %[mask]\n\t"                                                \
                     "ldr r7, %[c]\n\tldr lr, %[w]\n\t"                                                          \
                     "ldrd r0, r1, %[f0]\n\tldrd r2, r3, %[f1]\n\tldrd r4, r5, %[f2]\n\t"                        \
                     MT_DSP_IN_TURNS("", word, size, "r6", "ldr r6, %[end]\n\tcmp r7, r6\n\t")                   \
                     "\n\tstrd r0, r1, %[t0]\n\tstrd r2, r3, %[t1]\n\tstrd r4, r5, %[t2]\n\t"                    \
                     "str lr, %[w]"                                                                              \
                     : [t0] "=m"(both[0]), [t1] "=m"(both[1]), [t2] "=m"(both[2]), [w] "+m"(weights)             \
                     : [f0] "m"((from)[0]), [f1] "m"((from)[1]), [f2] "m"((from)[2]), [c] "m"(c),                \
                       [end] "m"(stop), [turn] "i"(turn), [skip] "m"(skip), [mask] "i"(MT_DSP_FIELD_HALF(bits))  \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "lr", "cc")
#define MT_DSP_DOT3X4(from)                                              \
    if (bits == 1)                                                       \
        MT_DSP_DOT3X4_OF(MT_DSP_3X4_WORD1, MT_DSP_3X4_WORD1_SIZE, from); \
    else                                                                 \
        MT_DSP_DOT3X4_OF(MT_DSP_3X4_WORD2, MT_DSP_3X4_WORD2_SIZE, from)
#define MT_DSP_SKIP3X4(count) \
    ((int32_t)(-((uint32_t)(count) / (bits == 1 ? 12 : 6)) & (uint32_t)(turn - 1)) * \
     (bits == 1 ? MT_DSP_3X4_WORD1_SIZE : MT_DSP_3X4_WORD2_SIZE))

#define MT_DSP_FROM_FIELDS(a, b, pixel)                                                   \
    do {                                                                                  \
        int32_t high = both[pixel].of[i];                                                 \
        if (!block)                                                                       \
            MT_DSP_TAKE_LOW(high, low[pixel][i], 0, bits);                                \
        a = first + MT_DSP_LOW_SUM(low[pixel][i], totals[pixel], bits);                   \
        b = second + MT_DSP_HIGH_SUM(high, totals[pixel], bits);                          \
    } while (0)

/* Three columns by all output channels, four at a time, by a loop of `turn` words, a power of two. The sums are split
 * after each `block` of inputs; 0: at the end. */
MT_DSP_INLINE void mt_dsp_columns_3x4(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                      int8_t *o1, int8_t *o2, int32_t quads, int turn, int bits, int32_t block,
                                      enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int apart = 1;
    struct mt_dsp_outputs3 to = {{o0 + 4 * quads, o1 + 4 * quads}, {o2 + 4 * quads, -4 * quads}};
    struct mt_dsp_both start[3];
    int32_t totals[3 * MT_DSP_BLOCKS];
    mt_dsp_column_totals(totals, columns, end, bits == 2 && block ? block : (int32_t)(end - columns));
    for (int32_t j = 0; j < 3; ++j)
        start[j].of[0] = start[j].of[1] = bits == 2 && !block ? -2 * totals[j] : 0;
    do {
        struct mt_dsp_both both[3];
        const uint32_t *const biases = weights;
        int32_t low[3][2] = {{0, 0}, {0, 0}, {0, 0}}, at;
        weights += 4;
        if (!block) {
            const int32_t *const c = columns, *const stop = end;
            const int32_t skip = MT_DSP_SKIP3X4(end - columns);
            MT_DSP_DOT3X4(start);
        } else {
            const int32_t *c = columns, *of_block = totals;
            memcpy(both, start, sizeof(both));
            do {
                const int32_t *const stop = end - c < block / 2 * 3 ? end : c + block / 2 * 3;
                const int32_t skip = MT_DSP_SKIP3X4(stop - c);
                MT_DSP_DOT3X4(both);
                MT_UNROLL(3)
                for (int32_t j = 0; j < 3; ++j) {
                    MT_DSP_TAKE_LOW(both[j].of[0], low[j][0], of_block[j], bits);
                    MT_DSP_TAKE_LOW(both[j].of[1], low[j][1], of_block[j], bits);
                }
                of_block += bits == 2 ? 3 : 0;
                c = stop;
            } while (c != end);
        }
        MT_UNROLL(2)
        for (int32_t i = 0; i < 2; ++i) {
            const int32_t first = (int32_t)biases[2 * i], second = (int32_t)biases[2 * i + 1];
            int32_t a0, a1, a2, b0, b1, b2;
            MT_DSP_FROM_FIELDS(a0, b0, 0);
            MT_DSP_FROM_FIELDS(a1, b1, 1);
            MT_DSP_FROM_FIELDS(a2, b2, 2);
            MT_DSP_RESULTS3();
        }
    } while (to.second.at);
}

#else /* portable version */

MT_DSP_INLINE void mt_dsp_columns_3x4(const int32_t *columns, const int32_t *end, const uint32_t *weights, int8_t *o0,
                                      int8_t *o1, int8_t *o2, int32_t quads, int turn, int bits, int32_t block,
                                      enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    int8_t *const o[3] = {o0, o1, o2};
    int32_t totals[3 * MT_DSP_BLOCKS];
    (void)turn;
    (void)clamped;
    if (!block)
        block = (int32_t)(end - columns) / 3 * 2;
    mt_dsp_column_totals(totals, columns, end, bits == 2 ? block : (int32_t)(end - columns));
    for (int32_t n = 0; n < quads; ++n) {
        const uint32_t *const biases = weights, *scales;
        weights += 4;
        scales = weights + (end - columns) / (bits == 1 ? 12 : 6);
        for (int32_t j = 0; j < 3; ++j) {
            int32_t both[2] = {0, 0}, low[2] = {0, 0}, sums[4], turns = 0;
            for (const int32_t *c = columns + j; c < end; c += 3)
                for (int32_t i = 0; i < 2; ++i, ++turns) {
                    const int32_t each = bits == 1 ? 8 : 4, k = turns / 2 * 2 + 2; /* inputs so far */
                    both[i] = mt_dsp_add_fields(*c, weights[turns / each], turns % each, bits, both[i]);
                    if (k % block == 0 || c + 3 >= end)
                        MT_DSP_TAKE_LOW(both[i], low[i], totals[bits == 2 ? (k - 1) / block * 3 + j : j], bits);
                }
            for (int32_t i = 0; i < 2; ++i) {
                sums[2 * i] = (int32_t)biases[2 * i] + MT_DSP_LOW_SUM(low[i], totals[j], bits);
                sums[2 * i + 1] = (int32_t)biases[2 * i + 1] + MT_DSP_HIGH_SUM(both[i], totals[j], bits);
            }
            for (int32_t i = 0; i < 4; ++i) {
                const uint32_t *const pair = scales + i / 2 * 2 * (by == MT_BY_FLOAT ? 1 : 2);
                o[j][4 * n + i] = mt_dsp_narrow((uint32_t)sums[i], 1, pair + i % 2 * (by == MT_BY_FLOAT ? 1 : 2), pair,
                                                by, range);
            }
        }
        weights = scales + (by == MT_BY_FLOAT ? 4 : 8);
    }
}

#endif

#define MT_DSP_COLUMNS_3X4_PLAIN(name, turn, bits, block, by)                                                \
    MT_DSP_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights,           \
                              int8_t *o0, int8_t *o1, int8_t *o2, int32_t quads)                             \
    {                                                                                                        \
        mt_dsp_columns_3x4(columns, end, weights, o0, o1, o2, quads, turn, bits, block, by, 0, 0);           \
    }
#define MT_DSP_COLUMNS_3X4_RANGE(name, turn, bits, block, by, clamped)                                       \
    MT_DSP_OPERATOR void name(const int32_t *columns, const int32_t *end, const uint32_t *weights,           \
                              int8_t *o0, int8_t *o1, int8_t *o2, int32_t quads,                             \
                              const struct mt_dsp_range *range)                                              \
    {                                                                                                        \
        const struct mt_dsp_range own = *range;                                                              \
        mt_dsp_columns_3x4(columns, end, weights, o0, o1, o2, quads, turn, bits, block, by, clamped, &own);  \
    }

#ifdef __cplusplus
}
#endif

#endif
