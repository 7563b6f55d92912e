/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8, 3x3 with stride 1, by Winograd's F(2x2, 3x3), with SIMD32: four products instead of nine.
 *
 * A tile is 2x2 outputs, of 4x4 inputs d: Y = A'[(G g G') * (B' d B)]A, with * element by element and ' for transposed.
 * G is doubled to make everything an integer: the sums are four times the convolution's, and as additions wrap around,
 * they are right if those fit into 32 bits. Two adjacent tiles are a block, of 4x6 inputs; sums of two tiles by four
 * output channels stay in registers.
 *
 * Columns: for each of the 16 elements of B' d B in the order below, for each two input channels (c, c + 2) a word of
 * each tile. For each four output channels the weights are, for each column of the elements: four biases, and for each
 * of its elements and each two input channels four words. The elements and their columns are ordered 1, 2, 0, 3: the
 * products of 0 and 3 (with the opposite sign) are added to the sum and the difference of 1 and 2. At the end are the
 * first words of the four channels' scalings, then the second ones.
 *
 * Results are those of the other schedules, bit for bit. Plain C where mt_dsp.h is. */
#ifndef MT_DSP_WINOGRAD_INT8_H
#define MT_DSP_WINOGRAD_INT8_H

#include "mt_dsp.h"
#include "mt_unpack.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MT_DSP_BLOCK_COLUMNS 6 /* of inputs */
#define MT_DSP_BLOCK_SUMS 40   /* words: 8 pixels by 4 channels, and 8 intermediate ones */

/* The results of a channel, whose sums are four times too large, scaled with its packed words. */
MT_DSP_INLINE void mt_dsp_narrow_fourfold(const int32_t *sums, const uint32_t *words, int8_t *results, int32_t step,
                                          enum mt_scaling by, const struct mt_dsp_range *range)
{
    const int32_t zero_point = range->offset - 128, low = (int8_t)(range->low & 255);
    const int32_t high = 127 - (int32_t)(range->above & 255);
    const int32_t first = (int32_t)words[0], second = by == MT_BY_FLOAT ? 0 : (int32_t)words[4];
    float scale;
    memcpy(&scale, words + (by > MT_EXACT ? 4 : 0), 4);
    for (int32_t p = 0; p < 8; ++p, sums += 4, results += step)
        if (by > MT_EXACT && first) {
            const int32_t places = MT_EXACT_PLACES(by) + 2;
            *results = (int8_t)mt_clamp(mt_requantize_exact(*sums, first, second, places), low, high);
        } else if (by == MT_TWICE || by == MT_ONCE) {
            *results = (int8_t)mt_clamp(mt_scaled(by, *sums / 4, first, second) + zero_point, low, high);
        } else {
            *results = (int8_t)mt_requantize_wide(*sums, scale, zero_point, low, high);
        }
}

#ifdef MT_DSP_FPU

MT_DSP_INLINE int32_t mt_dsp_even(uint32_t word)
{
    int32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(word));
    return pair;
}

MT_DSP_INLINE int32_t mt_dsp_odd(uint32_t word)
{
    int32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
}

MT_DSP_INLINE int32_t mt_dsp_add16(int32_t a, int32_t b)
{
    int32_t sum;
    __asm__("sadd16 %0, %1, %2" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

MT_DSP_INLINE int32_t mt_dsp_sub16(int32_t a, int32_t b)
{
    int32_t difference;
    __asm__("ssub16 %0, %1, %2" : "=r"(difference) : "r"(a), "r"(b));
    return difference;
}

#else

MT_DSP_INLINE int32_t mt_dsp_even(uint32_t word)
{
    return mt_dsp_sxtb16(word);
}

MT_DSP_INLINE int32_t mt_dsp_odd(uint32_t word)
{
    return mt_dsp_sxtb16(word >> 8 | word << 24);
}

MT_DSP_INLINE int32_t mt_dsp_add16(int32_t a, int32_t b)
{
    const uint32_t x = (uint32_t)a, y = (uint32_t)b;
    return (int32_t)(((x + y) & 0xffffu) | ((x & 0xffff0000u) + (y & 0xffff0000u)));
}

MT_DSP_INLINE int32_t mt_dsp_sub16(int32_t a, int32_t b)
{
    const uint32_t x = (uint32_t)a, y = (uint32_t)b;
    return (int32_t)(((x - y) & 0xffffu) | ((x & 0xffff0000u) - (y & 0xffff0000u)));
}

#endif

/* One row of B' d, from rows a and b of the inputs, times B: both tiles, four channels at a time. The element of
 * column 1 is written to `out`, the others follow `step` words apart. */
MT_DSP_INLINE void mt_dsp_winograd_row(int32_t *out, const int8_t *a, const int8_t *b, int adds, int32_t pixel,
                                       int32_t words, int32_t step)
{
    for (; words; --words, a += 4, b += 4, out += 4) {
        int32_t even[MT_DSP_BLOCK_COLUMNS], odd[MT_DSP_BLOCK_COLUMNS];
        MT_UNROLL(6)
        for (int32_t x = 0; x < MT_DSP_BLOCK_COLUMNS; ++x) {
            uint32_t from_a, from_b;
            memcpy(&from_a, a + x * pixel, 4);
            memcpy(&from_b, b + x * pixel, 4);
            even[x] = adds ? mt_dsp_add16(mt_dsp_even(from_a), mt_dsp_even(from_b))
                           : mt_dsp_sub16(mt_dsp_even(from_a), mt_dsp_even(from_b));
            odd[x] = adds ? mt_dsp_add16(mt_dsp_odd(from_a), mt_dsp_odd(from_b))
                          : mt_dsp_sub16(mt_dsp_odd(from_a), mt_dsp_odd(from_b));
            if (x == 2 || x == 4) { /* a tile's elements except the last */
                int32_t *const to = out + (x == 4);
                to[0] = mt_dsp_add16(even[x - 1], even[x]);
                to[2] = mt_dsp_add16(odd[x - 1], odd[x]);
                to[step] = mt_dsp_sub16(even[x], even[x - 1]);
                to[step + 2] = mt_dsp_sub16(odd[x], odd[x - 1]);
                to[2 * step] = mt_dsp_sub16(even[x - 2], even[x]);
                to[2 * step + 2] = mt_dsp_sub16(odd[x - 2], odd[x]);
            } else if (x == 3 || x == 5) {
                int32_t *const to = out + 3 * step + (x == 5);
                to[0] = mt_dsp_sub16(even[x - 2], even[x]);
                to[2] = mt_dsp_sub16(odd[x - 2], odd[x]);
            }
        }
    }
}

/* The columns of a block. Rows of inputs are `pitch` bytes apart, pixels `pixel`; words: of four channels; padded:
 * words of four that a column holds; excess channels of the last one must be zero. */
MT_DSP_INLINE void mt_dsp_winograd_columns(int32_t *columns, const int8_t *x, int32_t pitch, int32_t pixel, int32_t words,
                                           int32_t padded)
{
    static const int8_t rows[3][2] = {{2, 1}, {0, 2}, {1, 3}}; /* elements 2, 0 and 3; element 1 is the sum of two rows */
    mt_dsp_winograd_row(columns, x + pitch, x + 2 * pitch, 1, pixel, words, 16 * padded);
    for (int32_t i = 0; i < 3; ++i)
        mt_dsp_winograd_row(columns + (i + 1) * 4 * padded, x + rows[i][0] * pitch, x + rows[i][1] * pitch, 0, pixel,
                            words, 16 * padded);
}

/* The weights of four output channels, as mt_dsp_winograd_weights returns them, but for biases and scalings: the
 * elements are `step` words apart, `count` is four for each four input channels. G' g G by columns; inner ones before
 * outer ones, as there are registers for two. */
#ifdef MT_DSP_FPU

#define MT_DSP_TAPS3(rotated)          \
    "ldmia lr!, {r2, r3, r4}\n\t"      \
    "sxtb16 r2, r2" rotated "\n\t"     \
    "sxtb16 r3, r3" rotated "\n\t"     \
    "sxtb16 r4, r4" rotated "\n\t"
#define MT_DSP_INNER_TAPS(rotated, left, right) \
    MT_DSP_TAPS3(rotated)                       \
    "sadd16 r4, r2, r4\n\t"                     \
    "sadd16 " left ", r4, r3\n\t"               \
    "ssub16 " right ", r4, r3\n\t"
#define MT_DSP_OUTER_TAPS(rotated, left, right) \
    MT_DSP_TAPS3(rotated)                       \
    "sadd16 " left ", r2, r2\n\t"               \
    "ssub16 r4, r11, r4\n\t"                    \
    "sadd16 " right ", r4, r4\n\t"
/* Four elements of a column; `next`: goes to the next one. */
#define MT_DSP_NEXT_COLUMN "add r0, r0, r1, lsl #2\n\tadd r0, r0, #16\n\t"
#define MT_DSP_ELEMENTS(g0, g1, g2, next)  \
    "sadd16 r2, " g0 ", " g2 "\n\t"        \
    "ssub16 " g0 ", " g0 ", " g2 "\n\t"    \
    "sadd16 r3, r2, " g1 "\n\t"            \
    "str r3, [r0]\n\t"                     \
    "ssub16 r3, r2, " g1 "\n\t"            \
    "str r3, [r0, r1]\n\t"                 \
    "sadd16 r3, r2, " g0 "\n\t"            \
    "str r3, [r0, r1, lsl #1]\n\t"         \
    "ssub16 r3, " g0 ", r2\n\t"            \
    "str r3, [r0, r12]\n\t" next
#define MT_DSP_WEIGHTS2(rotated)                                                                      \
    MT_DSP_INNER_TAPS(rotated, "r5", "r8") MT_DSP_INNER_TAPS(rotated, "r6", "r9")                     \
    MT_DSP_INNER_TAPS(rotated, "r7", "r10") MT_DSP_ELEMENTS("r5", "r6", "r7", MT_DSP_NEXT_COLUMN)     \
    MT_DSP_ELEMENTS("r8", "r9", "r10", MT_DSP_NEXT_COLUMN)                                            \
    "sub lr, lr, #36\n\t"                                                                             \
    MT_DSP_OUTER_TAPS(rotated, "r5", "r8") MT_DSP_OUTER_TAPS(rotated, "r6", "r9")                     \
    MT_DSP_OUTER_TAPS(rotated, "r7", "r10") MT_DSP_ELEMENTS("r5", "r6", "r7", MT_DSP_NEXT_COLUMN)     \
    MT_DSP_ELEMENTS("r8", "r9", "r10", "sub r0, r0, r12, lsl #2\n\t") /* three columns back, but for 48 bytes */

MT_DSP_INLINE void mt_dsp_winograd_taps(uint32_t *to, const uint32_t *taps, int32_t step, int32_t count)
{
    __asm__ volatile("ldr r0, %[to]\n\t"
                     "ldr r1, %[step]\n\t"
                     "ldr lr, %[taps]\n\t"
                     "lsl r1, r1, #2\n\t"
                     "add r12, r1, r1, lsl #1\n\t"
                     "mov r11, #0\n\t"
                     "1:\n\t" MT_DSP_WEIGHTS2("")
                     "sub r0, r0, #32\n\t"
                     "sub lr, lr, #36\n\t" MT_DSP_WEIGHTS2(", ror #8")
                     "sub r0, r0, #60\n\t"
                     "ldr r2, %[count]\n\t"
                     "subs r2, r2, #1\n\t"
                     "str r2, %[count]\n\t"
                     "beq 2f\n\t"
                     "tst r2, #3\n\t"
                     "it eq\n\t"
                     "addeq r0, r0, #16\n\t" /* two words of each output channel */
                     "b 1b\n\t"
                     "2:"
                     : [count] "+m"(count)
                     : [to] "m"(to), [step] "m"(step), [taps] "m"(taps)
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "lr", "cc",
                       "memory");
}

#else

/* Four elements from three taps, `step` apart: twice G, with the last one's sign turned. */
MT_DSP_INLINE void mt_dsp_winograd_elements(int32_t *to, int32_t g0, int32_t g1, int32_t g2, int32_t step)
{
    const int32_t sum = mt_dsp_add16(g0, g2), less = mt_dsp_sub16(g0, g2);
    to[0] = mt_dsp_add16(sum, g1);
    to[step] = mt_dsp_sub16(sum, g1);
    to[2 * step] = mt_dsp_add16(sum, less);
    to[3 * step] = mt_dsp_sub16(less, sum);
}

MT_DSP_INLINE void mt_dsp_winograd_taps(uint32_t *to, const uint32_t *taps, int32_t step, int32_t count)
{
    for (int32_t i = 0; i < count; ++i, taps += 9)
        for (int32_t odd = 0; odd < 2; ++odd) {
            int32_t columns[4][3], g[9];
            for (int32_t t = 0; t < 9; ++t)
                g[t] = odd ? mt_dsp_odd(taps[t]) : mt_dsp_even(taps[t]);
            for (int32_t y = 0; y < 3; ++y)
                mt_dsp_winograd_elements(&columns[0][y], g[3 * y], g[3 * y + 1], g[3 * y + 2], 3);
            for (int32_t j = 0; j < 4; ++j)
                mt_dsp_winograd_elements((int32_t *)to + (i / 4 * 8) + 4 * odd + i % 4 + j * (4 * step + 4), columns[j][0],
                                         columns[j][1], columns[j][2], step);
        }
}

#endif

/* The weights of `fours` times four output channels as mt_dsp_winograd reads them. `from` has four biases, for each
 * four input channels and each output channel nine words, the taps by rows, and the words of the scalings; words: of
 * four input channels; padded: those in a column, in which the others' weights stay arbitrary, as inputs are 0 there;
 * numbers: words of scalings. Returns the end of what it has read. */
MT_OPERATOR const uint32_t *mt_dsp_winograd_weights(uint32_t *to, const uint32_t *from, int32_t fours, int32_t words,
                                                    int32_t padded, int32_t numbers)
{
    const int32_t step = 8 * padded, column = 4 * step + 4;
    for (; fours; --fours, to += 4 * column + numbers) {
        memcpy(to, from, 16);
        for (int32_t j = 1; j < 4; ++j)
            memset(to + j * column, 0, 16);
        from += 4;
        mt_dsp_winograd_taps(to + 4, from, step, 4 * words);
        from += 36 * words;
        memcpy(to + 4 * column, from, sizeof(*to) * (size_t)numbers);
        from += numbers;
    }
    return from;
}

/* The same of packed weights: four output channels are unpacked at a time, into `row`. */
MT_OPERATOR const uint32_t *mt_dsp_winograd_unpacked(uint32_t *to, const uint32_t *from, int32_t fours, int32_t words,
                                                     int32_t padded, int32_t numbers, uint32_t *row)
{
    for (; fours; --fours, to += 128 * padded + 16 + numbers) {
        from = mt_unpack(row, from);
        mt_dsp_winograd_weights(to, row, 1, words, padded, numbers);
    }
    return from;
}

#ifdef MT_DSP_FPU

/* Two input channels: 16 multiply-accumulates in 11 instructions. The first tile's sums are in r4 to r7. */
#define MT_DSP_BLOCK2                  \
    "ldrd r0, r1, [r12], #8\n\t"       \
    "ldrd r2, r3, [lr], #8\n\t"        \
    "smlad r4, r0, r2, r4\n\t"         \
    "smlad r8, r1, r2, r8\n\t"         \
    "smlad r5, r0, r3, r5\n\t"         \
    "smlad r9, r1, r3, r9\n\t"         \
    "ldrd r2, r3, [lr], #8\n\t"        \
    "smlad r6, r0, r2, r6\n\t"         \
    "smlad r10, r1, r2, r10\n\t"       \
    "smlad r7, r0, r3, r7\n\t"         \
    "smlad r11, r1, r3, r11\n\t"
#define MT_DSP_BLOCK8 MT_DSP_BLOCK2 MT_DSP_BLOCK2 MT_DSP_BLOCK2 MT_DSP_BLOCK2
#define MT_DSP_BLOCK16 MT_DSP_BLOCK8 MT_DSP_BLOCK8
#define MT_DSP_BLOCK32 MT_DSP_BLOCK16 MT_DSP_BLOCK16
/* All input channels, unless one iteration has them all. */
#define MT_DSP_TURNS(macs)      \
    "ldr r0, %[turns]\n\t"      \
    "8:\n\t"                    \
    "str r0, %[left]\n\t" macs  \
    "ldr r0, %[left]\n\t"       \
    "subs r0, r0, #1\n\t"       \
    "bne 8b\n\t"
/* Move the eight sums to and from FPU registers, combining them in pairs. */
#define MT_DSP_KEEP8(a, b, c, d, e, f, g, h) \
    "vmov " a ", " b ", r4, r5\n\t"          \
    "vmov " c ", " d ", r6, r7\n\t"          \
    "vmov " e ", " f ", r8, r9\n\t"          \
    "vmov " g ", " h ", r10, r11\n\t"
#define MT_DSP_PAIRS(each, a, b, c, d, e, f, g, h) \
    each("r4", "r5", a, b) each("r6", "r7", c, d) each("r8", "r9", e, f) each("r10", "r11", g, h)
#define MT_DSP_S0(of, what) of(what, "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")
#define MT_DSP_S8(of, what) of(what, "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15")
#define MT_DSP_S16(of, what) of(what, "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23")
#define MT_DSP_S24(of, what) of(what, "s24", "s25", "s26", "s27", "s28", "s29", "s30", "s31")
#define MT_DSP_PUT(x, y, s, t) "vmov " s ", " t ", " x ", " y "\n\t"
#define MT_DSP_GET(x, y, s, t) "vmov " x ", " y ", " s ", " t "\n\t"
/* From the stored p and the sum p + q: stores p - q. */
#define MT_DSP_MINUS(x, y, s, t)        \
    "vmov r0, r1, " s ", " t "\n\t"     \
    "rsb r0, " x ", r0, lsl #1\n\t"     \
    "rsb r1, " y ", r1, lsl #1\n\t"     \
    "vmov " s ", " t ", r0, r1\n\t"
/* From the stored p, and q: stores p + q, and leaves p - q. */
#define MT_DSP_BOTH(x, y, s, t)         \
    "vmov r0, r1, " s ", " t "\n\t"     \
    "add r2, r0, " x "\n\t"             \
    "add r3, r1, " y "\n\t"             \
    "sub " x ", r0, " x "\n\t"          \
    "sub " y ", r1, " y "\n\t"          \
    "vmov " s ", " t ", r2, r3\n\t"
#define MT_DSP_PLUS(x, y, s, t)         \
    "vmov r0, r1, " s ", " t "\n\t"     \
    "add " x ", " x ", r0\n\t"          \
    "add " y ", " y ", r1\n\t"
#define MT_DSP_PLUS_WAITING(x, y, at)   \
    "ldrd r2, r3, [r0, #" at "]\n\t"    \
    "add " x ", " x ", r2\n\t"          \
    "add " y ", " y ", r3\n\t"
#define MT_DSP_ALL "{r4, r5, r6, r7, r8, r9, r10, r11}\n\t"
#define MT_DSP_STORE8(at) "ldr r0, %[sums]\n\tadd r0, r0, #" at "\n\tstmia r0, " MT_DSP_ALL
#define MT_DSP_LOAD8(at) "ldr r0, %[sums]\n\tadd r0, r0, #" at "\n\tldmia r0, " MT_DSP_ALL

/* The sums of a block and four output channels. For each column of the elements in turn: the sums of both rows of
 * outputs. Columns 1 and 2 are added and subtracted; column 0 is added to the sum, column 3 to the difference. */
#define MT_DSP_BLOCK(macs)                                                                                              \
    MT_KEPT(__asm__ volatile("mov r0, #0\n\t"                                                                           \
                     "str r0, %[column]\n\t"                                                                            \
                     "ldr r12, %[c]\n\t"                                                                                \
                     "ldr lr, %[w]\n\t"                                                                                 \
                     "1:\n\t"                                                                                           \
                     "ldrd r4, r5, [lr], #8\n\t"                                                                        \
                     "ldrd r6, r7, [lr], #8\n\t"                                                                        \
                     "mov r8, r4\n\t"                                                                                   \
                     "mov r9, r5\n\t"                                                                                   \
                     "mov r10, r6\n\t"                                                                                  \
                     "mov r11, r7\n\t" macs MT_DSP_S0(MT_DSP_PAIRS, MT_DSP_PUT)                                         \
                     macs MT_DSP_S0(MT_DSP_PAIRS, MT_DSP_MINUS) macs MT_DSP_STORE8("128")                               \
                     MT_DSP_S0(MT_DSP_PAIRS, MT_DSP_GET) macs                                                           \
                     "ldr r0, %[column]\n\t"                                                                            \
                     "cmp r0, #1\n\t"                                                                                   \
                     "bgt 3f\n\t"                                                                                       \
                     "beq 2f\n\t"                                                                                       \
                     MT_DSP_S16(MT_DSP_PAIRS, MT_DSP_PUT) MT_DSP_LOAD8("128") MT_DSP_S8(MT_DSP_PAIRS, MT_DSP_PUT)       \
                     "b 5f\n\t"                                                                                         \
                     "2:\n\t"                                                                                           \
                     MT_DSP_S16(MT_DSP_PAIRS, MT_DSP_BOTH) MT_DSP_STORE8("96") MT_DSP_LOAD8("128")                      \
                     MT_DSP_S8(MT_DSP_PAIRS, MT_DSP_BOTH) MT_DSP_S24(MT_DSP_PAIRS, MT_DSP_PUT)                          \
                     "b 5f\n\t"                                                                                         \
                     "3:\n\t"                                                                                           \
                     "cmp r0, #2\n\t"                                                                                   \
                     "bne 4f\n\t"                                                                                       \
                     MT_DSP_S16(MT_DSP_PAIRS, MT_DSP_PLUS) MT_DSP_STORE8("64") MT_DSP_LOAD8("128")                      \
                     MT_DSP_S8(MT_DSP_PAIRS, MT_DSP_PLUS) MT_DSP_STORE8("0")                                            \
                     "5:\n\t"                                                                                           \
                     "ldr r0, %[column]\n\t"                                                                            \
                     "add r0, r0, #1\n\t"                                                                               \
                     "str r0, %[column]\n\t"                                                                            \
                     "b 1b\n\t"                                                                                         \
                     "4:\n\t"                                                                                           \
                     "ldr r0, %[sums]\n\t"                                                                              \
                     MT_DSP_PLUS_WAITING("r4", "r5", "96") MT_DSP_PLUS_WAITING("r6", "r7", "104")                       \
                     MT_DSP_PLUS_WAITING("r8", "r9", "112") MT_DSP_PLUS_WAITING("r10", "r11", "120")                    \
                     MT_DSP_STORE8("96") MT_DSP_LOAD8("128") MT_DSP_S24(MT_DSP_PAIRS, MT_DSP_PLUS)                      \
                     MT_DSP_STORE8("32")                                                                                \
                     "str lr, %[w]"                                                                                     \
                     : [w] "+m"(weights), [column] "=m"(column), [left] "=m"(left)                                      \
                     : [c] "m"(columns), [sums] "m"(sums), [turns] "m"(turns)                                           \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "lr", "s0",     \
                       "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15",  \
                       "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", "s28",       \
                       "s29", "s30", "s31", "cc", "memory"))

/* The results of a pixel, for four channels with multipliers in r0 to r3 and offsets in r4 to r7. */
#define MT_DSP_FOURFOLD1(value, m, z) MT_DSP_EXACT(value, m, z, "%[n]")
#define MT_DSP_FOURFOLD4                                                      \
    "ldmia r12!, {r8, r9, r10, r11}\n\t"                                      \
    MT_DSP_FOURFOLD1("r8", "r0", "r4") MT_DSP_FOURFOLD1("r9", "r1", "r5")     \
    MT_DSP_FOURFOLD1("r10", "r2", "r6") MT_DSP_FOURFOLD1("r11", "r3", "r7")   \
    "bfi r8, r9, #8, #8\n\t"                                                  \
    "bfi r10, r11, #8, #8\n\t"                                                \
    "pkhbt r8, r8, r10, lsl #16\n\t"                                          \
    "str r8, [lr]\n\t"                                                        \
    "ldr r8, %[step]\n\t"                                                     \
    "add lr, lr, r8\n\t"
#define MT_DSP_FOURFOLD()                                                                                              \
    __asm__ volatile("ldr r12, %[w]\n\t"                                                                               \
                     "ldr lr, %[to]\n\t"                                                                               \
                     "ldmia r12, {r0, r1, r2, r3, r4, r5, r6, r7}\n\t"                                                 \
                     "ldr r12, %[sums]\n\t"                                                                            \
                     MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4                               \
                     MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4 MT_DSP_FOURFOLD4                               \
                     :                                                                                                 \
                     : [w] "m"(weights), [to] "m"(results), [sums] "m"(sums), [step] "m"(step),                        \
                       [n] "i"(MT_EXACT_PLACES(by) + 2)                                                                \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "lr", "cc",    \
                       "memory")

/* Four results, clamped. */
MT_DSP_INLINE void mt_dsp_limit4(int8_t *results, const struct mt_dsp_range *range)
{
    uint32_t word;
    memcpy(&word, results, 4);
    __asm__("eor %[x], %[x], #0x80808080\n\t" MT_DSP_LIMITS4("%[x]")
            : [x] "+r"(word)
            : [above] "r"(range->above), [span] "r"(range->span), [low] "r"(range->low)
            : "cc");
    memcpy(results, &word, 4);
}

#endif

/* A block by all output channels, four at a time. A pixel's results are `step` bytes after those of the previous
 * one: the first row's even columns, its odd ones, the second row's. turns: of the loop, with `unroll` input
 * channels each; `whole`: one turn. `clamped`: the range has limits. */
MT_DSP_INLINE void mt_dsp_winograd(const int32_t *columns, const uint32_t *weights, int32_t *sums, int8_t *results,
                                   int32_t fours, int32_t step, int32_t turns, int unroll, int whole, enum mt_scaling by,
                                   int clamped, const struct mt_dsp_range *range)
{
    for (; fours; --fours, results += 4) {
#ifdef MT_DSP_FPU
        int32_t column, left;
        if (whole && unroll == 32)
            MT_DSP_BLOCK(MT_DSP_BLOCK32);
        else if (whole && unroll == 16)
            MT_DSP_BLOCK(MT_DSP_BLOCK16);
        else if (whole)
            MT_DSP_BLOCK(MT_DSP_BLOCK8);
        else if (unroll == 32)
            MT_DSP_BLOCK(MT_DSP_TURNS(MT_DSP_BLOCK32));
        else if (unroll == 16)
            MT_DSP_BLOCK(MT_DSP_TURNS(MT_DSP_BLOCK16));
        else
            MT_DSP_BLOCK(MT_DSP_TURNS(MT_DSP_BLOCK8));
        if (by > MT_EXACT) {
            MT_DSP_FOURFOLD();
            if (clamped)
                for (int32_t p = 0; p < 8; ++p)
                    mt_dsp_limit4(results + p * step, range);
            for (int32_t s = 0; s < 4; ++s) /* channels without a multiplier */
                if (!MT_DSP_USUAL(weights[s]))
                    mt_dsp_narrow_fourfold(sums + s, weights + s, results + s, step, by, range);
            weights += 8;
            continue;
        }
#else
        const int32_t pairs = (whole ? 1 : turns) * unroll / 2; /* of input channels */
        uint32_t rows[4][2][8]; /* the sums of both rows of outputs, for each column of elements */
        const int32_t *c = columns;
        (void)clamped;
        for (int32_t j = 0; j < 4; ++j) {
            uint32_t elements[4][8];
            const uint32_t *const biases = weights;
            weights += 4;
            for (int32_t i = 0; i < 4; ++i) {
                memset(elements[i], 0, sizeof(elements[i]));
                for (int32_t k = 0; k < pairs; ++k, c += 2, weights += 4)
                    for (int32_t s = 0; s < 8; ++s)
                        elements[i][s] = mt_dsp_smlad(c[s / 4], (int32_t)weights[s % 4], elements[i][s]);
            }
            for (int32_t s = 0; s < 8; ++s) {
                rows[j][0][s] = biases[s % 4] + elements[0][s] + elements[1][s] + elements[2][s];
                rows[j][1][s] = biases[s % 4] + elements[0][s] - elements[1][s] + elements[3][s];
            }
        }
        for (int32_t s = 0; s < 16; ++s) {
            const uint32_t one = rows[0][s / 8][s % 8], two = rows[1][s / 8][s % 8];
            sums[s / 8 * 16 + s % 8] = (int32_t)(one + two + rows[2][s / 8][s % 8]);
            sums[s / 8 * 16 + 8 + s % 8] = (int32_t)(one - two + rows[3][s / 8][s % 8]);
        }
#endif
        for (int32_t s = 0; s < 4; ++s)
            mt_dsp_narrow_fourfold(sums + s, weights + s, results + s, step, by, range);
        weights += by == MT_BY_FLOAT ? 4 : 8;
    }
}

/* The instances that operators share, as in mt_dsp_tile_3x2_int8.h. */
#define MT_DSP_WINOGRAD(name, unroll, whole, by, clamped)                                                              \
    MT_OPERATOR void name(const int32_t *columns, const uint32_t *weights, int32_t *sums, int8_t *results,            \
                          int32_t fours, int32_t step, int32_t turns, const struct mt_dsp_range *range)                \
    {                                                                                                                  \
        const struct mt_dsp_range own = *range;                                                                        \
        mt_dsp_winograd(columns, weights, sums, results, fours, step, turns, unroll, whole, by, clamped, &own);        \
    }
#define MT_DSP_EACH_WINOGRAD(kind, by)                              \
    MT_DSP_WINOGRAD(mt_dsp_winograd##kind##_8, 8, 0, by, 1)         \
    MT_DSP_WINOGRAD(mt_dsp_winograd##kind##_16, 16, 0, by, 1)       \
    MT_DSP_WINOGRAD(mt_dsp_winograd##kind##_32, 32, 0, by, 1)       \
    MT_DSP_WINOGRAD(mt_dsp_winograd_whole##kind##_8, 8, 1, by, 1)   \
    MT_DSP_WINOGRAD(mt_dsp_winograd_whole##kind##_16, 16, 1, by, 1) \
    MT_DSP_WINOGRAD(mt_dsp_winograd_whole##kind##_32, 32, 1, by, 1)
MT_DSP_EACH_WINOGRAD(, MT_BY_FLOAT)
MT_DSP_EACH_WINOGRAD(_twice, MT_TWICE)
MT_DSP_EACH_WINOGRAD(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
