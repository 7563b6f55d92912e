/* Internal to mtool: applications include mtool.h. */
/* Convolutions of 8 bits, 3x3 with stride 1, by Winograd's F(2x2, 3x3), for cores without SIMD: four products instead
 * of nine.
 *
 * As mt_dsp_winograd_int8.h describes it, except for the order of the numbers: columns have for each element and
 * input channel an int16 of each tile, weights for each element and input channel those of four output channels.
 * Four times a sum is the sum of three numbers of each row and column of elements, which the caller computes
 * (MT_WINOGRAD_LEFT, MT_WINOGRAD_RIGHT). */
#ifndef MT_WINOGRAD_H
#define MT_WINOGRAD_H

#include <stdint.h>
#include <string.h>

#include "mt_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block's columns. Rows of inputs are `pitch` bytes apart, pixels `pixel`; depth: channels, padded. */
#define MT_WINOGRAD_COLUMNS(name, type)                                                                               \
    MT_INLINE void name(int16_t *columns, const type *x, int32_t pitch, int32_t pixel, int32_t channels, int32_t depth) \
    {                                                                                                                 \
        static const int8_t rows[4][3] = { {1, 2, 1}, {2, 1, -1}, {0, 2, -1}, {1, 3, -1} };                           \
        for (int32_t i = 0; i < 4; ++i) {                                                                             \
            const type *a = x + rows[i][0] * pitch, *b = x + rows[i][1] * pitch;                                      \
            const int32_t sign = rows[i][2], step = 8 * depth;                                                        \
            int16_t *to = columns + i * 2 * depth;                                                                    \
            for (int32_t c = 0; c < channels; ++c, ++a, ++b, to += 2) {                                               \
                const int32_t d0 = a[0] + sign * b[0], d1 = a[pixel] + sign * b[pixel];                               \
                const int32_t d2 = a[2 * pixel] + sign * b[2 * pixel], d3 = a[3 * pixel] + sign * b[3 * pixel];       \
                const int32_t d4 = a[4 * pixel] + sign * b[4 * pixel], d5 = a[5 * pixel] + sign * b[5 * pixel];       \
                to[0] = (int16_t)(d1 + d2);                                                                           \
                to[1] = (int16_t)(d3 + d4);                                                                           \
                to[step] = (int16_t)(d2 - d1);                                                                        \
                to[step + 1] = (int16_t)(d4 - d3);                                                                    \
                to[2 * step] = (int16_t)(d0 - d2);                                                                    \
                to[2 * step + 1] = (int16_t)(d2 - d4);                                                                \
                to[3 * step] = (int16_t)(d1 - d3);                                                                    \
                to[3 * step + 1] = (int16_t)(d3 - d5);                                                                \
            }                                                                                                         \
        }                                                                                                             \
    }
MT_WINOGRAD_COLUMNS(mt_winograd_columns_int8, int8_t)
MT_WINOGRAD_COLUMNS(mt_winograd_columns_uint8, uint8_t)

/* The weights of `outputs` channels as mt_winograd_sums reads them, from int8 [outputs, 3, 3, channels]; depth: channels,
 * padded with arbitrary weights, as columns are 0 there; offset: is added to each weight. Inner columns of elements come
 * before outer ones, as there are registers for two. */
#if defined(__GNUC__)
#define MT_WINOGRAD_HERE(value) __asm__ volatile("" : "+r"(value)::"memory") /* not derived beforehand, nor narrower */
#else
#define MT_WINOGRAD_HERE(value) (void)0
#endif
#define MT_WINOGRAD_ELEMENTS(g)                              \
    do {                                                     \
        int32_t sum = (g)[0] + (g)[2], less = (g)[0] - (g)[2]; \
        MT_WINOGRAD_HERE(sum);                               \
        MT_WINOGRAD_HERE(less);                              \
        at[0] = (int16_t)(sum + (g)[1]);                     \
        at[step] = (int16_t)(sum - (g)[1]);                  \
        at[2 * step] = (int16_t)(sum + less);                \
        at[3 * step] = (int16_t)(less - sum);                \
        at += 4 * step;                                      \
        MT_WINOGRAD_HERE(at);                                \
    } while (0)
static MT_ALONE void mt_winograd_weights(int16_t *to, const int8_t *weights, int32_t outputs, int32_t channels,
                                         int32_t depth, int32_t offset)
{
    static const int8_t ones[4] = {3, 1, 2, -2}; /* from three taps of 1 */
    const int32_t step = 4 * depth;
    for (int32_t n = 0; n < outputs; ++n, weights += 8 * channels)
        for (int32_t c = 0; c < channels; ++c, ++weights) {
            int16_t *at = to + (n / 4 * 16 * depth + c) * 4 + n % 4;
            const int8_t *g = weights;
            int32_t left[3], right[3];
            MT_WINOGRAD_HERE(at);
            MT_WINOGRAD_HERE(g);
            MT_UNROLL(3)
            for (int32_t y = 0; y < 3; ++y, g += 3 * channels) {
                const int32_t sum = g[0] + g[2 * channels], middle = g[channels];
                left[y] = sum + middle;
                right[y] = sum - middle;
                MT_WINOGRAD_HERE(g);
            }
            MT_WINOGRAD_ELEMENTS(left);
            MT_WINOGRAD_ELEMENTS(right);
            g = weights;
            MT_WINOGRAD_HERE(g);
            MT_UNROLL(3)
            for (int32_t y = 0; y < 3; ++y, g += 3 * channels) {
                left[y] = 2 * g[0];
                right[y] = -2 * g[2 * channels];
                MT_WINOGRAD_HERE(g);
            }
            MT_WINOGRAD_ELEMENTS(left);
            MT_WINOGRAD_ELEMENTS(right);
        }
    for (int32_t i = 0; offset && i < outputs + 3 - (outputs + 3) % 4; ++i)
        for (int32_t j = 0; j < 4; ++j, to += step)
            for (int32_t k = 0; k < step; ++k)
                to[k] = (int16_t)(to[k] + offset * ones[i % 4] * ones[j]);
}

/* From a channel's sums m, with columns of elements 16 apart: four times the outputs of a tile's columns. */
#define MT_WINOGRAD_LEFT(m) ((int32_t)((m)[0] + (m)[16] + (m)[32]) >> 2)
#define MT_WINOGRAD_RIGHT(m) ((int32_t)((m)[0] - (m)[16] + (m)[48]) >> 2)
#define MT_WINOGRAD_SUMS 72 /* words: 4 columns of elements by 2 rows of outputs by 8, and 8 intermediate ones */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && defined(__thumb2__) && !defined(MT_PORTABLE)

/* An input channel: 8 multiply-accumulates in 14 instructions. Sums of the first tile are in r4 to r7. */
#define MT_WINOGRAD_MAC                \
    "ldrsh r0, [r12], #2\n\t"          \
    "ldrsh r1, [r12], #2\n\t"          \
    "ldrsh r2, [lr], #2\n\t"           \
    "mla r4, r0, r2, r4\n\t"           \
    "mla r8, r1, r2, r8\n\t"           \
    "ldrsh r2, [lr], #2\n\t"           \
    "mla r5, r0, r2, r5\n\t"           \
    "mla r9, r1, r2, r9\n\t"           \
    "ldrsh r2, [lr], #2\n\t"           \
    "mla r6, r0, r2, r6\n\t"           \
    "mla r10, r1, r2, r10\n\t"         \
    "ldrsh r2, [lr], #2\n\t"           \
    "mla r7, r0, r2, r7\n\t"           \
    "mla r11, r1, r2, r11\n\t"
/* All input channels, four per iteration. */
#define MT_WINOGRAD_DOT                                                       \
    "ldr r3, %[turns]\n\t"                                                    \
    "8:\n\t" MT_WINOGRAD_MAC MT_WINOGRAD_MAC MT_WINOGRAD_MAC MT_WINOGRAD_MAC  \
    "subs r3, r3, #1\n\t"                                                     \
    "bne 8b\n\t"
#define MT_WINOGRAD_ALL "{r4, r5, r6, r7, r8, r9, r10, r11}\n\t"
#define MT_WINOGRAD_MINUS2(x, y, at)   \
    "ldrd r0, r1, [r2, #" at "]\n\t"   \
    "rsb r0, " x ", r0, lsl #1\n\t"    \
    "rsb r1, " y ", r1, lsl #1\n\t"    \
    "strd r0, r1, [r2, #" at "]\n\t"

/* The sums of a block and four output channels. turns: of four input channels each. */
static MT_ALONE void mt_winograd_sums(const int16_t *columns, const int16_t *weights, uint32_t *sums, int32_t turns)
{
    uint32_t *waiting = sums + 64, *const end = sums + 64;
    MT_KEPT(__asm__ volatile("ldr r12, %[c]\n\t"
                     "ldr lr, %[w]\n\t"
                     "1:\n\t"
                     "mov r4, #0\n\t"
                     "mov r5, #0\n\t"
                     "mov r6, #0\n\t"
                     "mov r7, #0\n\t"
                     "mov r8, #0\n\t"
                     "mov r9, #0\n\t"
                     "mov r10, #0\n\t"
                     "mov r11, #0\n\t" MT_WINOGRAD_DOT
                     "ldr r2, %[waiting]\n\t"
                     "stmia r2, " MT_WINOGRAD_ALL MT_WINOGRAD_DOT
                     "ldr r2, %[waiting]\n\t"
                     MT_WINOGRAD_MINUS2("r4", "r5", "0") MT_WINOGRAD_MINUS2("r6", "r7", "8")
                     MT_WINOGRAD_MINUS2("r8", "r9", "16") MT_WINOGRAD_MINUS2("r10", "r11", "24") MT_WINOGRAD_DOT
                     "ldr r2, %[sums]\n\t"
                     "stmia r2!, " MT_WINOGRAD_ALL
                     "str r2, %[sums]\n\t"
                     "ldr r2, %[waiting]\n\t"
                     "ldmia r2, " MT_WINOGRAD_ALL MT_WINOGRAD_DOT
                     "ldr r2, %[sums]\n\t"
                     "stmia r2!, " MT_WINOGRAD_ALL
                     "str r2, %[sums]\n\t"
                     "ldr r3, %[end]\n\t"
                     "cmp r2, r3\n\t"
                     "bne 1b"
                     : [sums] "+m"(sums)
                     : [c] "m"(columns), [w] "m"(weights), [waiting] "m"(waiting), [turns] "m"(turns), [end] "m"(end)
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "lr", "cc",
                       "memory"));
}

#else

/* Products are added before more is loaded: otherwise GCC 12 runs out of registers (RISC-V). */
#if defined(__GNUC__) && defined(__OPTIMIZE__)
#define MT_WINOGRAD_ADDED                                                                                            \
    __asm__ volatile("" : "+r"(a0), "+r"(a1), "+r"(a2), "+r"(a3), "+r"(b0), "+r"(b1), "+r"(b2), "+r"(b3)::"memory")
#else
#define MT_WINOGRAD_ADDED (void)0
#endif
/* All input channels, four per iteration. */
#define MT_WINOGRAD_DOT()                                                                                             \
    for (int32_t k = 0; k < turns; ++k) {                                                                             \
        MT_UNROLL(4)                                                                                                  \
        for (int32_t l = 0; l < 4; ++l) {                                                                             \
            const int32_t a = c[0], b = c[1], w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];                             \
            a0 += (uint32_t)(a * w0);                                                                                 \
            b0 += (uint32_t)(b * w0);                                                                                 \
            a1 += (uint32_t)(a * w1);                                                                                 \
            b1 += (uint32_t)(b * w1);                                                                                 \
            a2 += (uint32_t)(a * w2);                                                                                 \
            b2 += (uint32_t)(b * w2);                                                                                 \
            a3 += (uint32_t)(a * w3);                                                                                 \
            b3 += (uint32_t)(b * w3);                                                                                 \
            c += 2;                                                                                                   \
            w += 4;                                                                                                   \
            MT_WINOGRAD_ADDED;                                                                                        \
        }                                                                                                             \
    }                                                                                                                 \
    (void)0
/* The eight sums from and to memory. */
#define MT_WINOGRAD_KEEP(to)                                                                                          \
    (to)[0] = a0;                                                                                                     \
    (to)[1] = a1;                                                                                                     \
    (to)[2] = a2;                                                                                                     \
    (to)[3] = a3;                                                                                                     \
    (to)[4] = b0;                                                                                                     \
    (to)[5] = b1;                                                                                                     \
    (to)[6] = b2;                                                                                                     \
    (to)[7] = b3

static MT_ALONE void mt_winograd_sums(const int16_t *columns, const int16_t *weights, uint32_t *sums, int32_t turns)
{
    const int16_t *c = columns, *w = weights;
    for (int32_t j = 0; j < 4; ++j, sums += 16) {
        uint32_t first[8], both[8];
        uint32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
        MT_WINOGRAD_DOT();
        MT_WINOGRAD_KEEP(first);
        MT_WINOGRAD_DOT();
        MT_WINOGRAD_KEEP(both);
        MT_WINOGRAD_DOT();
        MT_WINOGRAD_KEEP(sums);
        a0 = 2 * first[0] - both[0];
        a1 = 2 * first[1] - both[1];
        a2 = 2 * first[2] - both[2];
        a3 = 2 * first[3] - both[3];
        b0 = 2 * first[4] - both[4];
        b1 = 2 * first[5] - both[5];
        b2 = 2 * first[6] - both[6];
        b3 = 2 * first[7] - both[7];
        MT_WINOGRAD_DOT();
        MT_WINOGRAD_KEEP(sums + 8);
    }
}

#endif

#ifdef __cplusplus
}
#endif

#endif
