/* Internal to mtool: applications include mtool.h. */
/* Dense layers of int8 with SIMD32: four or eight outputs at a time. Plain C where mt_dsp.h is. */
#ifndef MT_DSP_GEMV_INT8_H
#define MT_DSP_GEMV_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_DSP_ASM

/* Four outputs of a dense layer at a time: biases a, a + 256 * b, c, c + 256 * d, for each four inputs two words of
 * (a, b) and two of (c, d), scales a, b / 256, c, d / 256. `unroll` inputs per iteration; `end` is a multiple. */
#define MT_DSP_ROW4                        \
    "ldr r4, [%[x]], #4\n\t"               \
    "ldmia %[w]!, {r8, r9, r10, r11}\n\t"  \
    "sxtb16 r5, r4, ror #8\n\t"            \
    "sxtb16 r4, r4\n\t"                    \
    "sxtb16 r6, r8\n\t"                    \
    "smlad %[b], r4, r8, %[b]\n\t"         \
    "smlad %[a], r4, r6, %[a]\n\t"         \
    "sxtb16 r6, r10\n\t"                   \
    "smlad %[d], r4, r10, %[d]\n\t"        \
    "smlad %[c], r4, r6, %[c]\n\t"         \
    "sxtb16 r6, r9\n\t"                    \
    "smlad %[b], r5, r9, %[b]\n\t"         \
    "smlad %[a], r5, r6, %[a]\n\t"         \
    "sxtb16 r6, r11\n\t"                   \
    "smlad %[d], r5, r11, %[d]\n\t"        \
    "smlad %[c], r5, r6, %[c]\n\t"
#define MT_DSP_ROW8 MT_DSP_ROW4 MT_DSP_ROW4
#define MT_DSP_ROW16 MT_DSP_ROW8 MT_DSP_ROW8
#define MT_DSP_FIXED4(scale, scale_256)                     \
    "ldmia %[w]!, {r4, r5, r8, r9}\n\t"                     \
    scale("%[a]", "r4", "r5") scale_256("%[b]", "r8", "r9") \
    "ldmia %[w]!, {r4, r5, r8, r9}\n\t"                     \
    scale("%[c]", "r4", "r5") scale_256("%[d]", "r8", "r9")
#define MT_DSP_DENSE(macs, scale)                                                                                  \
    __asm__ volatile("ldrd %[a], %[b], [%[w]], #8\n\t"                                                             \
                     "ldrd %[c], %[d], [%[w]], #8\n\t"                                                             \
                     "1:\n\t" macs "ldr r4, %[e]\n\t"                                                              \
                     "cmp %[x], r4\n\t"                                                                            \
                     "bne 1b\n\t"                                                                                  \
                     "sub %[b], %[b], %[a]\n\t"                                                                    \
                     "sub %[d], %[d], %[c]\n\t" scale                                                              \
                     : [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d), [w] "+&r"(weights), [x] "+&r"(x)    \
                     : [e] "m"(end)                                                                                \
                     : "r4", "r5", "r6", "r8", "r9", "r10", "r11", MT_DSP_FLOATS "cc", "memory")

/* If four channels have no multipliers: z is the first scale; before each of the others is the zero point, m, or another
 * word. */
#ifdef MT_DSP_FPU
#define MT_DSP_FLOAT4_EXACT                    \
    "vldmia %[w]!, {s0, s1, s2, s3, s4, s5}\n\t" \
    "vmov %[m], s0\n\t"                        \
    "vmov s0, %[z]\n\t"                        \
    "vmov.f32 s2, s3\n\t"                      \
    "vmov.f32 s3, s5\n\t" MT_DSP_FLOAT4_OF
#define MT_DSP_SCALE4_EXACT(va, vb, vc, vd)                                                                                 \
    __asm__ volatile(MT_DSP_FLOAT4_EXACT                                                                                    \
                     : [a] "+&r"(va), [b] "+&r"(vb), [c] "+&r"(vc), [d] "+&r"(vd), [w] "+&r"(weights), [m] "+&r"(m)         \
                     : [z] "r"(z)                                                                                           \
                     : MT_DSP_FLOATS "memory")
#define MT_DSP_DENSE_BY_FLOAT() MT_DSP_DENSE_BY(MT_DSP_FLOAT4)
#else
#define MT_DSP_SCALE4(va, vb, vc, vd, w, first, step)                          \
    do {                                                                       \
        mt_dsp_by_float(&va, 1, (int32_t)(first));                             \
        mt_dsp_by_float(&vb, 1, (int32_t)(w)[1]);                              \
        mt_dsp_by_float(&vc, 1, (int32_t)(w)[1 + (step)]);                     \
        mt_dsp_by_float(&vd, 1, (int32_t)(w)[1 + 2 * (step)]);                 \
    } while (0)
#define MT_DSP_SCALE4_EXACT(va, vb, vc, vd)                     \
    do {                                                        \
        m = (int32_t)weights[0];                                \
        MT_DSP_SCALE4(va, vb, vc, vd, weights, z, 2);           \
        weights += 6;                                           \
    } while (0)
#define MT_DSP_DENSE_BY_FLOAT()                                 \
    do {                                                        \
        MT_DSP_DENSE_BY("");                                    \
        MT_DSP_SCALE4(a, b, c, d, weights, weights[0], 1);      \
        weights += 4;                                           \
    } while (0)
#endif
#define MT_DSP_NARROW4(a, b, c, d, by)                                                             \
    __asm__(MT_DSP_ADD_ZERO("%[va]") MT_DSP_ADD_ZERO("%[vb]") MT_DSP_ADD_ZERO("%[vc]")             \
                MT_DSP_ADD_ZERO("%[vd]")                                                           \
            : [va] "+&r"(a), [vb] "+&r"(b), [vc] "+&r"(c), [vd] "+&r"(d)                           \
            : [zero] "r"(by)                                                                       \
            : "cc")
/* Store four results, int8 already, clamped to limits. */
#define MT_DSP_STORE4(a, b, c, d)                                                               \
    do {                                                                                        \
        __asm__("bfi %[va], %[vb], #8, #8\n\t"                                                  \
                "bfi %[vc], %[vd], #8, #8\n\t"                                                  \
                "pkhbt %[va], %[va], %[vc], lsl #16"                                            \
                : [va] "+&r"(a), [vc] "+&r"(c)                                                  \
                : [vb] "r"(b), [vd] "r"(d));                                                    \
        if (clamped)                                                                            \
            __asm__("eor %[va], %[va], #0x80808080\n\t" MT_DSP_LIMITS4("%[va]")                 \
                    : [va] "+&r"(a)                                                             \
                    : [above] "r"(own.above), [span] "r"(own.span), [low] "r"(own.low)          \
                    : "cc");                                                                    \
        memcpy(output, &a, 4);                                                                  \
        output += 4;                                                                            \
    } while (0)

#define MT_DSP_DENSE_BY(scale)                 \
    do {                                       \
        if (unroll == 16)                      \
            MT_DSP_DENSE(MT_DSP_ROW16, scale); \
        else if (unroll == 8)                  \
            MT_DSP_DENSE(MT_DSP_ROW8, scale);  \
        else                                   \
            MT_DSP_DENSE(MT_DSP_ROW4, scale);  \
    } while (0)

MT_DSP_INLINE const uint32_t *mt_dsp_rows(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                          int8_t *output, int32_t groups, int unroll, enum mt_scaling by,
                                          int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    do {
        const int8_t *x = input;
        int32_t a, b, c, d;
        if (by == MT_TWICE && range)
            MT_DSP_DENSE_BY(MT_DSP_FIXED4(MT_DSP_TWICE, MT_DSP_TWICE_256));
        else if (by == MT_TWICE)
            MT_DSP_DENSE_BY(MT_DSP_FIXED4(MT_DSP_TWICE_RELU, MT_DSP_TWICE_RELU_256));
        else if (by == MT_ONCE)
            MT_DSP_DENSE_BY(MT_DSP_FIXED4(MT_DSP_ONCE, MT_DSP_ONCE_256));
        else if (by > MT_EXACT) {
            int32_t m, z;
            MT_DSP_DENSE_BY("");
            MT_DSP_NEXT(m, z, weights);
            if (MT_DSP_USUAL(m)) {
                MT_DSP_EXACT1(a, MT_EXACT_PLACES(by));
                MT_DSP_NEXT(m, z, weights);
                MT_DSP_EXACT1(b, MT_EXACT_PLACES(by) + 8);
                MT_DSP_NEXT(m, z, weights);
                MT_DSP_EXACT1(c, MT_EXACT_PLACES(by));
                MT_DSP_NEXT(m, z, weights);
                MT_DSP_EXACT1(d, MT_EXACT_PLACES(by) + 8);
            } else {
                MT_DSP_SCALE4_EXACT(a, b, c, d);
                MT_DSP_NARROW4(a, b, c, d, m);
            }
            MT_DSP_STORE4(a, b, c, d);
            continue;
        } else
            MT_DSP_DENSE_BY_FLOAT();
        if (range)
            __asm__ volatile("qadd %[a], %[a], %[offset]\n\t"
                             "qadd %[b], %[b], %[offset]\n\t"
                             "qadd %[c], %[c], %[offset]\n\t"
                             "qadd %[d], %[d], %[offset]"
                             : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d)
                             : [offset] "r"(own.offset)
                             : "cc");
        __asm__ volatile("usat %[a], #8, %[a]\n\t"
                         "usat %[b], #8, %[b]\n\t"
                         "usat %[c], #8, %[c]\n\t"
                         "usat %[d], #8, %[d]\n\t"
                         "orr %[a], %[a], %[b], lsl #8\n\t"
                         "orr %[c], %[c], %[d], lsl #8\n\t"
                         "orr %[a], %[a], %[c], lsl #16"
                         : [a] "+&r"(a), [b] "+&r"(b), [c] "+&r"(c), [d] "+&r"(d)
                         :
                         : "cc");
        if (range)
            __asm__ volatile(MT_DSP_LIMITS4("%[a]")
                             : [a] "+&r"(a)
                             : [above] "r"(own.above), [span] "r"(own.span), [low] "r"(own.low)
                             : "cc");
        else
            a ^= (int32_t)0x80808080u;
        memcpy(output, &a, 4);
        output += 4;
    } while (--groups);
    return weights;
}

/* Eight outputs at a time, with MT_EXACT: biases a, a + 256 * b, c, ..., for each four inputs two words of (a, b),
 * two of (c, d) and so on. Registers are named in LDM's order: sums r0 to r5, r8, r9, inputs r10, r11, weights r12,
 * lr. 31 instructions of four bytes each for four inputs. */
#define MT_DSP_PAIR8(a, b)                 \
    "ldrd r12, lr, [%[w]], #8\n\t"         \
    "smlad " b ", r10, r12, " b "\n\t"     \
    "sxtb16 r12, r12\n\t"                  \
    "smlad " a ", r10, r12, " a "\n\t"     \
    "smlad " b ", r11, lr, " b "\n\t"      \
    "sxtb16 lr, lr\n\t"                    \
    "smlad " a ", r11, lr, " a "\n\t"
#define MT_DSP_ROW8_4 "ldr r10, [%[x]], #4\n\t" MT_DSP_ROW8_OF
#define MT_DSP_ROW8_OF                 \
    "sxtb16 r11, r10, ror #8\n\t"      \
    "sxtb16 r10, r10\n\t"              \
    MT_DSP_PAIR8("r0", "r1") MT_DSP_PAIR8("r2", "r3") MT_DSP_PAIR8("r4", "r5") MT_DSP_PAIR8("r8", "r9")
#define MT_DSP_ROW8_4_SIZE 124 /* size of MT_DSP_ROW8_4 */
#define MT_DSP_EXACT_PAIR(a, b) MT_DSP_EXACT(a, "r10", "r11", "%[n]") MT_DSP_EXACT(b, "r12", "lr", "%[k]")
#define MT_DSP_NEXT_PAIR "ldmia %[w]!, {r10, r11, r12, lr}\n\t"

MT_DSP_INLINE const uint32_t *mt_dsp_rows8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int8_t *output, int32_t groups, int turn, enum mt_scaling by, int clamped,
                                           const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int32_t skip = MT_DSP_ROW8_4_SIZE * (-((int32_t)(end - input) / 4) & (turn - 1)); /* the loop's bytes to skip */
    do {
        const int8_t *x = input;
        int32_t a, b, c, d, e, f, g, h, m;
        {
            register int32_t r0 __asm__("r0"), r1 __asm__("r1"), r2 __asm__("r2"), r3 __asm__("r3"), r4 __asm__("r4"),
                r5 __asm__("r5"), r8 __asm__("r8"), r9 __asm__("r9"), r10 __asm__("r10");
            __asm__ volatile("ldmia %[w]!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t" MT_DSP_IN_TURNS(
                                 "", MT_DSP_ROW8_4, MT_DSP_ROW8_4_SIZE, "r12", "ldr r12, %[end]\n\tcmp %[x], r12\n\t") "\n\t"
                             "sub r1, r1, r0\n\t"
                             "sub r3, r3, r2\n\t"
                             "sub r5, r5, r4\n\t"
                             "sub r9, r9, r8\n\t"
                             "ldr r10, [%[w]]"
                             : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3), "=&r"(r4), "=&r"(r5), "=&r"(r8), "=&r"(r9),
                               "=&r"(r10), [w] "+&r"(weights), [x] "+&r"(x)
                             : [end] "m"(end), [skip] "m"(skip), [turn] "i"(turn)
                             : "r11", "r12", "lr", "cc", "memory");
            if (MT_DSP_USUAL(r10)) {
                __asm__ volatile(MT_DSP_NEXT_PAIR MT_DSP_EXACT_PAIR("r0", "r1")
                                 MT_DSP_NEXT_PAIR MT_DSP_EXACT_PAIR("r2", "r3")
                                 MT_DSP_NEXT_PAIR MT_DSP_EXACT_PAIR("r4", "r5")
                                 MT_DSP_NEXT_PAIR MT_DSP_EXACT_PAIR("r8", "r9")
                                 : "+&r"(r0), "+&r"(r1), "+&r"(r2), "+&r"(r3), "+&r"(r4), "+&r"(r5), "+&r"(r8),
                                   "+&r"(r9), "+&r"(r10), [w] "+&r"(weights)
                                 : [n] "i"(MT_EXACT_PLACES(by)), [k] "i"(MT_EXACT_PLACES(by) + 8)
                                 : "r11", "r12", "lr", "cc", "memory");
                m = 1;
            } else
                m = 0;
            a = r0, b = r1, c = r2, d = r3, e = r4, f = r5, g = r8, h = r9;
        }
        if (!MT_DSP_USUAL(m)) {
            int32_t z = (int32_t)weights[1];
            weights += 2;
            MT_DSP_SCALE4_EXACT(a, b, c, d);
            MT_DSP_NARROW4(a, b, c, d, m); /* now: padding channels have no zero point */
            z = (int32_t)weights[1];
            weights += 2;
            MT_DSP_SCALE4_EXACT(e, f, g, h);
            MT_DSP_NARROW4(e, f, g, h, m);
        }
        MT_DSP_STORE4(a, b, c, d);
        MT_DSP_STORE4(e, f, g, h);
    } while (--groups);
    return weights;
}

/* The same without scales: the results are the sums. Words of b have no sign. The last `rest` inputs, fewer than four,
 * have words of weights too; there is a word of inputs before them. */
#define MT_DSP_LAST_1 "ldrb r10, [%[x]]\n\t"
#define MT_DSP_LAST_2 "ldrh r10, [%[x]]\n\t"
#define MT_DSP_LAST_3 MT_DSP_LAST_2 "ldrb r11, [%[x], #2]\n\torr r10, r10, r11, lsl #16\n\t"
#define MT_DSP_SUMS(last)                                                                                            \
    __asm__ volatile("ldmia %[w]!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t" MT_DSP_IN_TURNS(                            \
                         "", MT_DSP_ROW8_4, MT_DSP_ROW8_4_SIZE, "r12", "ldr r12, %[end]\n\tcmp %[x], r12\n\t") "\n\t" \
                     last "ldr r10, %[o]\n\t"                                                                       \
                     "sub r1, r1, r0\n\t"                                                                           \
                     "sub r3, r3, r2\n\t"                                                                           \
                     "sub r5, r5, r4\n\t"                                                                           \
                     "sub r9, r9, r8\n\t"                                                                           \
                     "asr r1, r1, #8\n\t"                                                                           \
                     "asr r3, r3, #8\n\t"                                                                           \
                     "asr r5, r5, #8\n\t"                                                                           \
                     "asr r9, r9, #8\n\t"                                                                           \
                     "stmia r10!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t"                                             \
                     "str r10, %[o]"                                                                                \
                     : [w] "+&r"(weights), [x] "+&r"(x), [o] "+m"(output)                                           \
                     : [end] "m"(whole), [skip] "m"(skip), [turn] "i"(turn)                                         \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory")

MT_DSP_INLINE const uint32_t *mt_dsp_sums8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int32_t *output, int32_t groups, int turn, int rest)
{
    const int8_t *const whole = end - rest;
    const int32_t skip = MT_DSP_ROW8_4_SIZE * (-((int32_t)(whole - input) / 4) & (turn - 1));
    do {
        const int8_t *x = input;
        if (rest == 1)
            MT_DSP_SUMS(MT_DSP_LAST_1 MT_DSP_ROW8_OF);
        else if (rest == 2)
            MT_DSP_SUMS(MT_DSP_LAST_2 MT_DSP_ROW8_OF);
        else if (rest == 3)
            MT_DSP_SUMS(MT_DSP_LAST_3 MT_DSP_ROW8_OF);
        else
            MT_DSP_SUMS("");
    } while (--groups);
    return weights;
}

#else /* portable version */

/* Some sums at a time, an even number; those of b are still a + 256 * b. */
MT_DSP_INLINE const uint32_t *mt_dsp_sums_of(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                             uint32_t *sums, int32_t outputs, int32_t rest)
{
    memcpy(sums, weights, (size_t)outputs * 4);
    weights += outputs;
    for (const int8_t *x = input; x < end; x += 4, weights += outputs) {
        uint32_t word = 0;
        memcpy(&word, x, x + 4 > end ? (size_t)rest : 4);
        for (int32_t half = 0; half < 2; ++half) {
            const int32_t pair = mt_dsp_sxtb16(half ? word >> 8 | word << 24 : word);
            for (int32_t j = 0; j < outputs; j += 2) {
                const uint32_t both = weights[j + half];
                sums[j] = mt_dsp_smlad(pair, mt_dsp_sxtb16(both), sums[j]);
                sums[j + 1] = mt_dsp_smlad(pair, (int32_t)both, sums[j + 1]);
            }
        }
    }
    return weights;
}

/* Some outputs at a time, an even number. */
MT_DSP_INLINE const uint32_t *mt_dsp_rows_of(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                             int8_t *output, int32_t groups, int32_t outputs, enum mt_scaling by,
                                             const struct mt_dsp_range *range)
{
    for (; groups; --groups, output += outputs) {
        uint32_t sums[8];
        const uint32_t *first;
        weights = first = mt_dsp_sums_of(input, end, weights, sums, outputs, 0);
        for (int32_t j = 0; j < outputs; ++j, weights += by == MT_BY_FLOAT ? 1 : 2)
            output[j] = mt_dsp_narrow(j % 2 ? sums[j] - sums[j - 1] : sums[j], j % 2 ? 256 : 1, weights, first, by, range);
    }
    return weights;
}

MT_DSP_INLINE const uint32_t *mt_dsp_rows(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                          int8_t *output, int32_t groups, int unroll, enum mt_scaling by,
                                          int clamped, const struct mt_dsp_range *range)
{
    (void)unroll;
    (void)clamped;
    return mt_dsp_rows_of(input, end, weights, output, groups, 4, by, range);
}

MT_DSP_INLINE const uint32_t *mt_dsp_rows8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int8_t *output, int32_t groups, int turn, enum mt_scaling by, int clamped,
                                           const struct mt_dsp_range *range)
{
    (void)turn;
    (void)clamped;
    return mt_dsp_rows_of(input, end, weights, output, groups, 8, by, range);
}

MT_DSP_INLINE const uint32_t *mt_dsp_sums8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int32_t *output, int32_t groups, int turn, int rest)
{
    (void)turn;
    for (; groups; --groups, output += 8) {
        uint32_t sums[8];
        weights = mt_dsp_sums_of(input, end, weights, sums, 8, rest);
        for (int32_t j = 0; j < 8; ++j)
            output[j] = j % 2 ? (int32_t)(sums[j] - sums[j - 1]) >> 8 : (int32_t)sums[j];
    }
    return weights;
}

#endif

/* The instances that operators share, inlined where they are called. */
#define MT_DSP_ROWS_PLAIN(name, unroll, by)                                                           \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int8_t *output, int32_t groups)                                  \
    {                                                                                                 \
        return mt_dsp_rows(input, end, weights, output, groups, unroll, by, 0, 0);                    \
    }
#define MT_DSP_ROWS_RANGE(name, unroll, by, clamped)                                                  \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int8_t *output, int32_t groups, const struct mt_dsp_range *range) \
    {                                                                                                 \
        const struct mt_dsp_range own = *range;                                                       \
        return mt_dsp_rows(input, end, weights, output, groups, unroll, by, clamped, &own);           \
    }
#define MT_DSP_SUMS8(name, turn, rest)                                                                  \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int32_t *output, int32_t groups)                                 \
    {                                                                                                 \
        return mt_dsp_sums8(input, end, weights, output, groups, turn, rest);                         \
    }
#define MT_DSP_ROWS8_PLAIN(name, unroll, by)                                                           \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int8_t *output, int32_t groups)                                  \
    {                                                                                                 \
        return mt_dsp_rows8(input, end, weights, output, groups, unroll, by, 0, 0);                    \
    }
#define MT_DSP_ROWS8_RANGE(name, unroll, by, clamped)                                                  \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int8_t *output, int32_t groups, const struct mt_dsp_range *range) \
    {                                                                                                 \
        const struct mt_dsp_range own = *range;                                                       \
        return mt_dsp_rows8(input, end, weights, output, groups, unroll, by, clamped, &own);           \
    }

#ifdef __cplusplus
}
#endif

#endif
