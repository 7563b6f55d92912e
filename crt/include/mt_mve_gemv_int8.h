/* Internal to mtool: applications include mtool.h. */
/* Dense layers of int8 with Helium: eight outputs at a time. Plain C where mt_mve.h is. */
#ifndef MT_MVE_GEMV_INT8_H
#define MT_MVE_GEMV_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

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
/* The same with weights of 4 or 2 bits: a byte has those of two or four outputs, the last signed, others with 8 or 2
 * added. Sums are of whole bytes and of their low fields; differences of two are shifted sums of an output. */
#define MT_MVE_FIELDS_OF_TWO(low, high)  \
    "vldrb.u8 q1, [%[w]], #16\n\t"       \
    "vmladava.s8 " high ", q0, q1\n\t"   \
    "vand q1, q1, q3\n\t"                \
    "vmladava.s8 " low ", q0, q1\n\t"
#define MT_MVE_ROW_4BIT                  \
    "vldrb.u8 q0, [%[x]], #16\n\t"       \
    MT_MVE_FIELDS_OF_TWO("r0", "r2") MT_MVE_FIELDS_OF_TWO("r4", "r6") MT_MVE_FIELDS_OF_TWO("r8", "r10") \
    MT_MVE_FIELDS_OF_TWO("r12", "lr")
#define MT_MVE_FIELDS_OF_FOUR(a, b, c, d) \
    "vldrb.u8 q1, [%[w]], #16\n\t"        \
    "vmladava.s8 " d ", q0, q1\n\t"       \
    "vand q1, q1, q2\n\t"                 \
    "vmladava.s8 " c ", q0, q1\n\t"       \
    "vand q1, q1, q3\n\t"                 \
    "vmladava.s8 " b ", q0, q1\n\t"       \
    "vand q1, q1, q4\n\t"                 \
    "vmladava.s8 " a ", q0, q1\n\t"
#define MT_MVE_ROW_2BIT                  \
    "vldrb.u8 q0, [%[x]], #16\n\t"       \
    MT_MVE_FIELDS_OF_FOUR("r0", "r2", "r4", "r6") MT_MVE_FIELDS_OF_FOUR("r8", "r10", "r12", "lr")
#define MT_MVE_MASK_4BIT "vmov.i8 q3, #15\n\t"
#define MT_MVE_MASKS_2BIT "vmov.i8 q2, #63\n\tvmov.i8 q3, #15\n\tvmov.i8 q4, #3\n\t"
#define MT_MVE_APART(low, high, bits) \
    "sub " high ", " high ", " low "\n\tasr " high ", " high ", #" bits "\n\t"
#define MT_MVE_MOVED(sum) "sub " sum ", " sum ", %[x]\n\t"
#define MT_MVE_TWO_APART(low, high) MT_MVE_APART(low, high, "4") MT_MVE_MOVED(low)
#define MT_MVE_FOUR_APART(a, b, c, d)                            \
    MT_MVE_APART(c, d, "6") MT_MVE_APART(b, c, "4") MT_MVE_MOVED(c) \
    MT_MVE_APART(a, b, "2") MT_MVE_MOVED(b) MT_MVE_MOVED(a)
#define MT_MVE_SUMS_4BIT "ldr %[x], %[moved]\n\t"                                                        \
    MT_MVE_TWO_APART("r0", "r2") MT_MVE_TWO_APART("r4", "r6") MT_MVE_TWO_APART("r8", "r10") \
    MT_MVE_TWO_APART("r12", "lr")
#define MT_MVE_SUMS_2BIT "ldr %[x], %[moved]\n\t"                                                        \
    MT_MVE_FOUR_APART("r0", "r2", "r4", "r6") MT_MVE_FOUR_APART("r8", "r10", "r12", "lr")
/* Convert eight sums to bytes: four and four outputs, or alternating. */
#define MT_MVE_ROWS_APART            \
    "vmov q0[2], q0[0], r0, r4\n\t"  \
    "vmov q0[3], q0[1], r2, r6\n\t"  \
    "vmov q1[2], q1[0], r8, r12\n\t" \
    "vmov q1[3], q1[1], r10, lr\n\t"
#define MT_MVE_ROWS_BY_TURNS         \
    "vmov q0[2], q0[0], r0, r8\n\t"  \
    "vmov q0[3], q0[1], r4, r12\n\t" \
    "vmov q1[2], q1[0], r2, r10\n\t" \
    "vmov q1[3], q1[1], r6, lr\n\t"  \
    "vldrw.32 q2, [%[w]], #16\n\t"   \
    "vldrw.32 q3, [%[w]], #16\n\t"
#define MT_MVE_ROWS_STORED            \
    "vqmovnb.s16 q0, q0\n\t"          \
    "vstrb.16 q0, [%[o]], #8"
#define MT_MVE_ROWS_RANGE                \
    "vqmovnb.s32 q0, q0\n\t"             \
    "vqmovnb.s32 q1, q1\n\t"             \
    "vqadd.s16 q0, q0, %q[zero]\n\t"     \
    "vqadd.s16 q1, q1, %q[zero]\n\t"     \
    "vmax.s16 q0, q0, %q[low]\n\t"       \
    "vmax.s16 q1, q1, %q[low]\n\t"       \
    "vmin.s16 q0, q0, %q[high]\n\t"      \
    "vmin.s16 q1, q1, %q[high]\n\t"      \
    "vstrb.32 q0, [%[o]], #4\n\t"        \
    "vstrb.32 q1, [%[o]], #4"
#define MT_MVE_NEAR_ROWS8            \
    MT_MVE_ROWS_BY_TURNS             \
    "vcvt.f32.s32 q0, q0\n\t"        \
    "vcvt.f32.s32 q1, q1\n\t"        \
    "vmul.f32 q0, q0, q2\n\t"        \
    "vmul.f32 q1, q1, q3\n\t"        \
    "vadd.f32 q0, q0, %q[near]\n\t"  \
    "vadd.f32 q1, q1, %q[near]\n\t"  \
    "vmovnt.i32 q0, q1\n\t" MT_MVE_ROWS_STORED
#define MT_MVE_ODD_ROWS8             \
    MT_MVE_ROWS_BY_TURNS             \
    "vcvt.f32.s32 q0, q0\n\t"        \
    "vcvt.f32.s32 q1, q1\n\t"        \
    "vmul.f32 q0, q0, q2\n\t"        \
    "vmul.f32 q1, q1, q3\n\t"        \
    "vcvtn.s32.f32 q0, q0\n\t"       \
    "vcvtn.s32.f32 q1, q1\n\t"       \
    "vmovnt.i32 q0, q1\n\t"          \
    "vqadd.s16 q0, q0, %q[zero]\n\t" MT_MVE_ROWS_STORED
/* With multipliers: doubled, for one more fractional bit than in mt_requantize_exact; the rounding shift adds the
 * half. (VQSHRN would do, but binutils 2.40 assembles it as VQRSHRN.) */
#define MT_MVE_EXACT_ROWS8(places)              \
    MT_MVE_ROWS_BY_TURNS                        \
    "ldr r0, %[offset]\n\t"                     \
    "vqdmlash.s32 q0, q2, r0\n\t"               \
    "vqdmlash.s32 q1, q3, r0\n\t"               \
    "vqrshrnb.s32 q0, q0, #" places "\n\t"       \
    "vqrshrnt.s32 q0, q1, #" places "\n\t" MT_MVE_ROWS_STORED
#define MT_MVE_FLOAT_ROWS8         \
    MT_MVE_ROWS_APART              \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vcvt.f32.s32 q0, q0\n\t"      \
    "vcvt.f32.s32 q1, q1\n\t"      \
    "vmul.f32 q0, q0, q2\n\t"      \
    "vmul.f32 q1, q1, q3\n\t"      \
    "vcvtn.s32.f32 q0, q0\n\t"     \
    "vcvtn.s32.f32 q1, q1\n\t" MT_MVE_ROWS_RANGE
#define MT_MVE_TWICE_ROWS8         \
    MT_MVE_ROWS_APART              \
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
    "vrshl.s32 q1, q1, q3\n\t" MT_MVE_ROWS_RANGE
#define MT_MVE_ONCE_ROWS8          \
    MT_MVE_ROWS_APART              \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vmulh.s32 q0, q0, q2\n\t"     \
    "vmulh.s32 q1, q1, q3\n\t"     \
    "vldrw.32 q2, [%[w]], #16\n\t" \
    "vldrw.32 q3, [%[w]], #16\n\t" \
    "vrshl.s32 q0, q0, q2\n\t"     \
    "vrshl.s32 q1, q1, q3\n\t" MT_MVE_ROWS_RANGE
#define MT_MVE_DENSE(head, blocks, scale, last, ...)                                                            \
    __asm__ volatile(head "ldmia %[w]!, {r0, r2, r4, r6, r8, r10, r12, lr}\n\t"                                 \
                     "1:\n\t" blocks "cmp %[x], %[end]\n\t"                                                     \
                     "bne 1b\n\t" scale                                                                         \
                     : [w] "+&r"(weights), [x] "+&r"(x), [o] "+&l"(output)                                      \
                     : [end] "r"(end), __VA_ARGS__                                                              \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", last, "cc", "memory")
#define MT_MVE_DENSE_RANGE [zero] "w"(zero), [low] "w"(low), [high] "w"(high)

#define MT_MVE_DENSE_TURNS(head, row, scale, last, ...)                                                 \
    do {                                                                                                \
        if (unroll == 8)                                                                                \
            MT_MVE_DENSE(head, row row row row row row row row, scale, last, __VA_ARGS__);              \
        else if (unroll == 4)                                                                           \
            MT_MVE_DENSE(head, row row row row, scale, last, __VA_ARGS__);                              \
        else if (unroll == 2)                                                                           \
            MT_MVE_DENSE(head, row row, scale, last, __VA_ARGS__);                                      \
        else                                                                                            \
            MT_MVE_DENSE(head, row, scale, last, __VA_ARGS__);                                          \
    } while (0)
#define MT_MVE_DENSE_BY(scale, ...)                                                             \
    do {                                                                                        \
        if (bits == 4)                                                                          \
            MT_MVE_DENSE_TURNS(MT_MVE_MASK_4BIT, MT_MVE_ROW_4BIT, MT_MVE_SUMS_4BIT scale, "q3", \
                               [moved] "m"(moved), __VA_ARGS__);                                \
        else if (bits == 2)                                                                     \
            MT_MVE_DENSE_TURNS(MT_MVE_MASKS_2BIT, MT_MVE_ROW_2BIT, MT_MVE_SUMS_2BIT scale, "q4", \
                               [moved] "m"(moved), __VA_ARGS__);                                \
        else                                                                                    \
            MT_MVE_DENSE_TURNS("", MT_MVE_ROW, scale, "q3", __VA_ARGS__);                       \
    } while (0)

/* Eight outputs of a dense layer at a time: biases, for each 16 inputs eight vectors of weights (of `bits` bits: as many
 * vectors of their fields), scales. `unroll` vectors of inputs per iteration; `end` is a multiple. */
MT_MVE_INLINE const int8_t *mt_mve_rows(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output,
                                        int32_t groups, int unroll, enum mt_scaling by,
                                        const struct mt_mve_range *range, int bits)
{
    const int16x8_t zero = vldrhq_s16(range->zero_point), low = vldrhq_s16(range->low), high = vldrhq_s16(range->high);
    const int32_t zero_point = range->zero_point[0];
    const uint32x4_t near = vdupq_n_u32(MT_MVE_WHOLE_STEPS + (uint32_t)zero_point);
    const int32_t offset = zero_point * (by == MT_EXACT_4 ? 32 : 4);
    int32_t moved = 0; /* by what is added to fields */
    if (bits < 8) {
        for (const int8_t *x = input; x != end; x += 16)
            moved = vaddvaq_s8(moved, vldrbq_s8(x));
        moved *= 1 << (bits - 1);
    }
    do {
        const int8_t *x = input;
        if (by == MT_TWICE)
            MT_MVE_DENSE_BY(MT_MVE_TWICE_ROWS8, MT_MVE_DENSE_RANGE);
        else if (by == MT_ONCE)
            MT_MVE_DENSE_BY(MT_MVE_ONCE_ROWS8, MT_MVE_DENSE_RANGE);
        else if (by == MT_BY_FLOAT)
            MT_MVE_DENSE_BY(MT_MVE_FLOAT_ROWS8, MT_MVE_DENSE_RANGE);
        else if (by == MT_BY_NEAR_FLOAT)
            MT_MVE_DENSE_BY(MT_MVE_NEAR_ROWS8, [near] "w"(near));
        else if (by == MT_BY_ODD_FLOAT)
            MT_MVE_DENSE_BY(MT_MVE_ODD_ROWS8, [zero] "w"(zero));
        else if (by == MT_EXACT_4)
            MT_MVE_DENSE_BY(MT_MVE_EXACT_ROWS8("5"), [offset] "m"(offset));
        else
            MT_MVE_DENSE_BY(MT_MVE_EXACT_ROWS8("2"), [offset] "m"(offset));
    } while (--groups);
    return weights;
}

/* The same without scales: the results are the sums. For each eight outputs vectors of 16 weights of each, the last
 * `rest` weights of each, if any, and their biases, which no vector of weights reads beyond. */
#define MT_MVE_LAST(sum)                          \
    "vldrb.u8 q1, [%[w]], #%c[rest]\n\t"         \
    "vmladava.s8 " sum ", q0, q1\n\t"
#define MT_MVE_LAST_ROW                           \
    "mov %[end], %[rest]\n\t"                    \
    "vctp.8 %[end]\n\t"                          \
    "vpst\n\t"                                   \
    "vldrbt.u8 q0, [%[x]]\n\t"                   \
    MT_MVE_LAST("r0") MT_MVE_LAST("r2") MT_MVE_LAST("r4") MT_MVE_LAST("r6") MT_MVE_LAST("r8") MT_MVE_LAST("r10") \
    MT_MVE_LAST("r12") MT_MVE_LAST("lr")
#define MT_MVE_SUMS(last)                                                                                       \
    __asm__ volatile("ldr r0, %[bytes]\n\t"                                                                    \
                     "add r0, %[w]\n\t"                                                                        \
                     "ldmia.w r0, {r0, r2, r4, r6, r8, r10, r12, lr}\n\t"                                      \
                     "cmp %[x], %[end]\n\t"                                                                    \
                     "beq 2f\n\t"                                                                              \
                     "1:\n\t" MT_MVE_ROW "cmp %[x], %[end]\n\t"                                               \
                     "bne 1b\n\t"                                                                              \
                     "2:\n\t" last MT_MVE_ROWS_APART                                                          \
                     "adds %[w], #32\n\t"                                                                      \
                     "vstrw.32 q0, [%[o]], #16\n\t"                                                            \
                     "vstrw.32 q1, [%[o]], #16"                                                                 \
                     : [w] "+&l"(weights), [x] "+&r"(x), [o] "+&l"(output), [end] "+&r"(whole)                  \
                     : [bytes] "m"(bytes), [rest] "i"(rest)                                                     \
                     : "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc", "memory", "p0")

MT_MVE_INLINE const int8_t *mt_mve_row_sums(const int8_t *input, const int8_t *end, const int8_t *weights,
                                            int32_t *output, int32_t groups, int rest)
{
    const int32_t bytes = 8 * (int32_t)(end - input);
    do {
        const int8_t *x = input, *whole = end - rest;
        if (rest)
            MT_MVE_SUMS(MT_MVE_LAST_ROW);
        else
            MT_MVE_SUMS("");
    } while (--groups);
    return weights;
}

#else /* portable version */

MT_MVE_INLINE const int8_t *mt_mve_rows(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output,
                                        int32_t groups, int unroll, enum mt_scaling by,
                                        const struct mt_mve_range *range, int bits)
{
    const int32_t depth = (int32_t)(end - input);
    const int by_turns = by != MT_BY_FLOAT && by != MT_TWICE && by != MT_ONCE, together = 8 / bits;
    int32_t moved = 0;
    (void)unroll;
    for (int32_t k = 0; k < depth; ++k)
        moved += input[k] * (1 << (bits - 1));
    for (; groups; --groups, weights += (by == MT_TWICE || by == MT_ONCE ? 96 : 64) + bits * depth, output += 8)
        for (int32_t q = 0, before = 0; q < 8; ++q) {
            const int32_t field = q % together, is_last = field == together - 1;
            int32_t sum;
            memcpy(&sum, weights + 4 * q, 4);
            for (int32_t k = 0; k < depth; ++k) {
                const int8_t byte = weights[32 + k / 16 * 16 * bits + q / together * 16 + k % 16];
                sum += input[k] * (is_last ? byte : byte & ((1 << bits * (field + 1)) - 1));
            }
            const int32_t own = (field ? (sum - before) >> bits * field : sum) - (is_last ? 0 : moved);
            before = sum;
            output[q] = mt_mve_narrow(own, weights + 32 + bits * depth + 4 * (by_turns ? q / 2 + q % 2 * 4 : q), 8, by, range);
        }
    return weights;
}

MT_MVE_INLINE const int8_t *mt_mve_row_sums(const int8_t *input, const int8_t *end, const int8_t *weights,
                                            int32_t *output, int32_t groups, int rest)
{
    const int32_t depth = (int32_t)(end - input), whole = depth - rest;
    for (; groups; --groups, weights += 8 * depth + 32, output += 8)
        for (int32_t q = 0; q < 8; ++q) {
            memcpy(output + q, weights + 8 * depth + 4 * q, 4);
            for (int32_t k = 0; k < whole; ++k)
                output[q] += input[k] * weights[k / 16 * 128 + q * 16 + k % 16];
            for (int32_t k = 0; k < rest; ++k)
                output[q] += input[whole + k] * weights[8 * whole + rest * q + k];
        }
    return weights;
}

#endif

#define MT_MVE_ROW_SUMS(name, rest)                                                                            \
    MT_OPERATOR const int8_t *name(const int8_t *input, const int8_t *end, const int8_t *weights,             \
                                   int32_t *output, int32_t groups)                                           \
    {                                                                                                         \
        return mt_mve_row_sums(input, end, weights, output, groups, rest);                                    \
    }

/* The instances that operators share. */
#define MT_MVE_ROWS(name, unroll, by, bits)                                                                       \
    MT_OPERATOR const int8_t *name(const int8_t *input, const int8_t *end, const int8_t *weights, int8_t *output, \
                                   int32_t groups, const struct mt_mve_range *range)                              \
    {                                                                                                             \
        return mt_mve_rows(input, end, weights, output, groups, unroll, by, range, bits);                         \
    }
#define MT_MVE_TURNS_OF_ROWS(name, by, bits) \
    MT_MVE_ROWS(name, 1, by, bits)           \
    MT_MVE_ROWS(name##_2, 2, by, bits)       \
    MT_MVE_ROWS(name##_4, 4, by, bits)       \
    MT_MVE_ROWS(name##_8, 8, by, bits)
#define MT_MVE_EACH_ROWS(kind, by)                        \
    MT_MVE_TURNS_OF_ROWS(mt_mve_dense##kind, by, 8)       \
    MT_MVE_TURNS_OF_ROWS(mt_mve_dense_4bit##kind, by, 4)  \
    MT_MVE_TURNS_OF_ROWS(mt_mve_dense_2bit##kind, by, 2)
MT_MVE_EACH_ROWS(, MT_BY_FLOAT)
MT_MVE_EACH_ROWS(_near, MT_BY_NEAR_FLOAT)
MT_MVE_EACH_ROWS(_odd, MT_BY_ODD_FLOAT)
MT_MVE_EACH_ROWS(_exact4, MT_EXACT_4)
MT_MVE_EACH_ROWS(_exact1, MT_EXACT_1)
MT_MVE_EACH_ROWS(_twice, MT_TWICE)
MT_MVE_EACH_ROWS(_once, MT_ONCE)

#ifdef __cplusplus
}
#endif

#endif
