/* Internal to mtool: applications include mtool.h. */
/* Depthwise 3x3 convolutions of int8 with Helium by dot products: a vector holds a 4x4 square of a channel's inputs,
 * which contains four adjacent 3x3 windows. Plain C where mt_mve.h is.
 *
 * `lines` has four lines of eight channels: 32 bytes per position, 4 of each channel, one of each line. A line is a
 * row or a column of the image, whichever leaves fewer positions unused. */
#ifndef MT_MVE_SQUARES_INT8_H
#define MT_MVE_SQUARES_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of all lines of a layer: the places of eight outputs, in the order in which they are stored, the bytes
 * to the next eight, the number of eights in a line, and the zero point. */
struct mt_mve_squares {
    uint16_t places[8];
    int32_t step, steps, zero_point;
};

#define MT_MVE_SQUARES_WEIGHTS 8 /* where the weights begin in a group of eight channels, 16 bytes each */
#define MT_MVE_SQUARES_NUMBERS 136 /* where each channel's bias and scale begin */

#ifdef MT_MVE_ASM

/* Two new lines of `count` positions, `step` bytes apart, replace the two oldest. */
MT_MVE_INLINE void mt_mve_next_lines(int8_t *lines, const int8_t *third, const int8_t *fourth, int32_t third_step,
                                     int32_t fourth_step, int32_t count)
{
    uint16_t *to = (uint16_t *)(void *)lines;
    const uint16x8_t newer = vidupq_n_u16(2, 4);
    for (; count; --count, third += third_step, fourth += fourth_step, to += 16) {
        uint16x8x2_t both;
        both.val[0] = vldrhq_gather_offset_u16(to, newer);
        both.val[1] = vsliq_n_u16(vldrbq_u16((const uint8_t *)third), vldrbq_u16((const uint8_t *)fourth), 8);
        vst2q_u16(to, both);
    }
}

/* Four windows from each of two squares, or one from each of eight. */
#define MT_MVE_SQUARES_OF_FOUR              \
    "vldrw.u32 q0, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r0, q0, %q[w0]\n\t"         \
    "vldrw.u32 q1, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r2, q0, %q[w1]\n\t"         \
    "vmladav.s8 r4, q0, %q[w2]\n\t"         \
    "vmladav.s8 r6, q0, %q[w3]\n\t"         \
    "vmladav.s8 r8, q1, %q[w0]\n\t"         \
    "vmladav.s8 r10, q1, %q[w1]\n\t"        \
    "vmladav.s8 r12, q1, %q[w2]\n\t"        \
    "vmladav.s8 lr, q1, %q[w3]\n\t"
#define MT_MVE_SQUARES_OF_ONE               \
    "vldrw.u32 q0, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r0, q0, %q[w0]\n\t"         \
    "vldrw.u32 q1, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r2, q1, %q[w0]\n\t"         \
    "vldrw.u32 q0, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r4, q0, %q[w0]\n\t"         \
    "vldrw.u32 q1, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r6, q1, %q[w0]\n\t"         \
    "vldrw.u32 q0, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r8, q0, %q[w0]\n\t"         \
    "vldrw.u32 q1, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r10, q1, %q[w0]\n\t"        \
    "vldrw.u32 q0, [%q[at], #64]!\n\t"      \
    "vmladav.s8 r12, q0, %q[w0]\n\t"        \
    "vldrw.u32 q1, [%q[at], #64]!\n\t"      \
    "vmladav.s8 lr, q1, %q[w0]\n\t"
/* The sums with the bias. */
#define MT_MVE_SQUARES_SUMS                 \
    "vmov q0[2], q0[0], r0, r4\n\t"         \
    "vmov q0[3], q0[1], r2, r6\n\t"         \
    "vmov q1[2], q1[0], r8, r12\n\t"        \
    "vmov q1[3], q1[1], r10, lr\n\t"        \
    "vadd.i32 q0, q0, %[bias]\n\t"          \
    "vadd.i32 q1, q1, %[bias]\n\t"
#define MT_MVE_SQUARES(squares, store, rest, ...)                                                                    \
    do {                                                                                                         \
        __asm__ volatile(squares MT_MVE_SQUARES_SUMS rest store                                                  \
                         : [at] "+w"(at)                                                                         \
                         : [o] "r"(o), [places] "w"(places), [w0] "w"(w0), [w1] "w"(w1), [w2] "w"(w2),           \
                           [w3] "w"(w3), [bias] "r"(bias), [scale] "r"(scale), [near] "r"(near), __VA_ARGS__     \
                         : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "cc", "memory");        \
        o += step;                                                                                               \
    } while (0)
#define MT_MVE_SQUARES_BY(squares, store, ...)                                                          \
    do {                                                                                                \
        if (odd)                                                                                        \
            MT_MVE_SQUARES(squares, store, MT_MVE_ODD_FLOATS("%[scale]", "%[near]"), __VA_ARGS__);      \
        else                                                                                            \
            MT_MVE_SQUARES(squares, store, MT_MVE_NEAR_FLOATS("%[scale]", "%[near]"), __VA_ARGS__);     \
    } while (0)
#define MT_MVE_SQUARES_ALL(squares) MT_MVE_SQUARES_BY(squares, "vstrb.16 q0, [%[o], %q[places]]", "i"(0))
#define MT_MVE_SQUARES_SOME(squares, wanted)                                                            \
    MT_MVE_SQUARES_BY(squares, "vmsr p0, %[some]\n\tvpst\n\tvstrbt.16 q0, [%[o], %q[places]]", [some] "r"(wanted))

/* The outputs of eight channels along a line, eight at a time: `four` from each two squares, or one from each of
 * eight. `wanted` selects the lanes that are stored, two bits each, `last` those of the last step; `some`: not all
 * are stored. */
MT_MVE_INLINE void mt_mve_square_lines(const int8_t *lines, int8_t *output, const int8_t *weights, int four, int some, int odd,
                                       uint32_t wanted, uint32_t last, const struct mt_mve_squares *how)
{
    const uint16x8_t places = vldrhq_u16(how->places);
    const uint32_t near = (odd ? 0 : MT_MVE_WHOLE_STEPS) + (uint32_t)how->zero_point;
    const int32_t step = how->step, steps = how->steps - 1;
    const uint32_t places_back = (four ? 128U : 512U) * (uint32_t)how->steps - 4U; /* to the next channel */
    const int32_t back = step * how->steps - 1;
    const int8_t *w = weights + MT_MVE_SQUARES_WEIGHTS, *const end = w + 128;
    const int32_t *number = (const int32_t *)(const void *)end;
    uint32x4_t at = vaddq_n_u32(vshlq_n_u32(vidupq_n_u32(0, 8), 2), (uint32_t)(uintptr_t)lines - 64U);
    int8_t *o = output;
    do {
        const int8x16_t w0 = vldrbq_s8(w);
        const int8x16_t w1 = four ? vldrbq_s8(w - 1) : w0;
        const int8x16_t w2 = four ? vldrbq_s8(w - 4) : w0;
        const int8x16_t w3 = four ? vldrbq_s8(w - 5) : w0;
        const int32_t bias = *number++, scale = *number++; /* the bits of a float */
        for (int32_t n = steps; n; --n)
            if (four && some)
                MT_MVE_SQUARES_SOME(MT_MVE_SQUARES_OF_FOUR, wanted);
            else if (four)
                MT_MVE_SQUARES_ALL(MT_MVE_SQUARES_OF_FOUR);
            else
                MT_MVE_SQUARES_ALL(MT_MVE_SQUARES_OF_ONE);
        if (four)
            MT_MVE_SQUARES_SOME(MT_MVE_SQUARES_OF_FOUR, last);
        else
            MT_MVE_SQUARES_SOME(MT_MVE_SQUARES_OF_ONE, last);
        at = vsubq_n_u32(at, places_back);
        o -= back;
    } while ((w += 16) != end);
}

#else /* portable version */

MT_MVE_INLINE void mt_mve_next_lines(int8_t *lines, const int8_t *third, const int8_t *fourth, int32_t third_step,
                                     int32_t fourth_step, int32_t count)
{
    for (; count; --count, third += third_step, fourth += fourth_step)
        for (int32_t i = 0; i < 8; ++i, lines += 4) {
            lines[0] = lines[2];
            lines[1] = lines[3];
            lines[2] = third[i];
            lines[3] = fourth[i];
        }
}

MT_MVE_INLINE void mt_mve_square_lines(const int8_t *lines, int8_t *output, const int8_t *weights, int four, int some, int odd,
                                       uint32_t wanted, uint32_t last, const struct mt_mve_squares *how)
{
    const struct mt_mve_range range = MT_MVE_RANGE((int16_t)how->zero_point, -128, 127);
    (void)some;
    (void)odd;
    for (int32_t n = how->steps; n; --n, lines += four ? 4 * 32 : 16 * 32, output += how->step)
        for (int32_t lane = 0; lane < 8; ++lane) {
            const int32_t sum_of = lane / 2 + lane % 2 * 4; /* the sums are stored alternately */
            const int32_t along = four ? sum_of / 4 * 2 + sum_of % 4 / 2 : 2 * sum_of, across = four ? sum_of % 2 : 0;
            if (!((n == 1 ? last : wanted) >> (2 * lane) & 1U))
                continue;
            for (int32_t i = 0; i < 8; ++i) {
                const int8_t *const w = weights + MT_MVE_SQUARES_WEIGHTS + 16 * i;
                const int8_t *const x = lines + 32 * along + across + 4 * i;
                int32_t sum;
                memcpy(&sum, weights + MT_MVE_SQUARES_NUMBERS + 8 * i, 4);
                for (int32_t k = 0; k < 9; ++k)
                    sum += x[k / 3 * 32 + k % 3] * w[k / 3 * 4 + k % 3];
                output[how->places[lane] + i] =
                    mt_mve_narrow(sum, weights + MT_MVE_SQUARES_NUMBERS + 8 * i + 4, 8, MT_BY_FLOAT, &range);
            }
        }
}

#endif

/* The instances that operators share. */
#define MT_MVE_SQUARE_LINES(name, four, some, odd)                                                       \
    MT_OPERATOR void name(const int8_t *lines, int8_t *output, const int8_t *weights, uint32_t wanted,   \
                          uint32_t last, const struct mt_mve_squares *how)                               \
    {                                                                                                    \
        mt_mve_square_lines(lines, output, weights, four, some, odd, wanted, last, how);                 \
    }
MT_MVE_SQUARE_LINES(mt_mve_squares_of_four, 1, 0, 0)
MT_MVE_SQUARE_LINES(mt_mve_squares_of_four_some, 1, 1, 0)
MT_MVE_SQUARE_LINES(mt_mve_squares_of_one, 0, 0, 0)
MT_MVE_SQUARE_LINES(mt_mve_squares_of_four_odd, 1, 0, 1) /* with an odd zero point */
MT_MVE_SQUARE_LINES(mt_mve_squares_of_four_some_odd, 1, 1, 1)
MT_MVE_SQUARE_LINES(mt_mve_squares_of_one_odd, 0, 0, 1)

/* Two new lines of `count` positions, `step` bytes apart, replace the two oldest; NULL: eight bytes of `pad` for
 * each position. */
MT_OPERATOR void mt_mve_turn(int8_t *lines, const int8_t *third, const int8_t *fourth, int32_t step, int32_t count,
                             const int8_t *pad)
{
    mt_mve_next_lines(lines, third ? third : pad, fourth ? fourth : pad, third ? step : 0, fourth ? step : 0, count);
}

#ifdef __cplusplus
}
#endif

#endif
