/* Internal to mtool: applications include mtool.h. */
/* Dense layers of int8 with SIMD32: four or eight outputs at a time. Plain C where mt_dsp.h is. */
#ifndef MT_DSP_GEMV_INT8_H
#define MT_DSP_GEMV_INT8_H

#include "mt_dsp_fields_int8.h"

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
#define MT_DSP_ENDS8       \
    "sub r1, r1, r0\n\t"   \
    "sub r3, r3, r2\n\t"   \
    "sub r5, r5, r4\n\t"   \
    "sub r9, r9, r8\n\t"

/* The same with weights of 4 bits: a halfword has those of four outputs, n0 + 16 * n1 + 256 * n3 + 4096 * n2, where n2
 * is signed and the others are 8 more than the weight. Sums of the whole halfwords and of their lower 4, 8 and 12 bits
 * differ by each output's sum; 8 times the sum of the inputs is subtracted before. Biases are those of the four sums. */
#define MT_DSP_QUAD(x, word, n0, n1, n2, n3)   \
    "smlad " n2 ", " x ", " word ", " n2 "\n\t" \
    "bic " word ", " word ", #0xF000F000\n\t" \
    "smlad " n3 ", " x ", " word ", " n3 "\n\t" \
    "uxtb16 " word ", " word "\n\t"           \
    "smlad " n1 ", " x ", " word ", " n1 "\n\t" \
    "and " word ", " word ", #0x000F000F\n\t" \
    "smlad " n0 ", " x ", " word ", " n0 "\n\t"
#define MT_DSP_QUADS(n0, n1, n2, n3)                                             \
    "ldrd r12, lr, [%[w]], #8\n\t" MT_DSP_QUAD("r10", "r12", n0, n1, n2, n3) \
        MT_DSP_QUAD("r11", "lr", n0, n1, n2, n3)
#define MT_DSP_ROW8_4_BITS "ldr r10, [%[x]], #4\n\t" MT_DSP_ROW8_BITS_OF
#define MT_DSP_ROW8_BITS_OF          \
    "sxtb16 r11, r10, ror #8\n\t"    \
    "sxtb16 r10, r10\n\t" MT_DSP_QUADS("r0", "r1", "r2", "r3") MT_DSP_QUADS("r4", "r5", "r8", "r9")
#define MT_DSP_ROW8_4_BITS_SIZE 132 /* size of MT_DSP_ROW8_4_BITS */
#define MT_DSP_LESS_INPUTS              \
    "ldr r10, %[eight]\n\t"             \
    "sub r0, r0, r10\n\t"               \
    "sub r4, r4, r10\n\t"               \
    "add r11, r10, r10, lsl #4\n\t"     \
    "sub r1, r1, r11\n\t"               \
    "sub r5, r5, r11\n\t"               \
    "add r11, r11, r10, lsl #8\n\t"     \
    "sub r2, r2, r11\n\t"               \
    "sub r3, r3, r11\n\t"               \
    "sub r8, r8, r11\n\t"               \
    "sub r9, r9, r11\n\t"
#define MT_DSP_ENDS_QUAD(n0, n1, n2, n3)   \
    "sub " n2 ", " n2 ", " n3 "\n\t"     \
    "asr " n2 ", " n2 ", #12\n\t"        \
    "sub " n3 ", " n3 ", " n1 "\n\t"     \
    "sub " n1 ", " n1 ", " n0 "\n\t"     \
    "lsl " n1 ", " n1 ", #4\n\t"
#define MT_DSP_ENDS8_BITS MT_DSP_ENDS_QUAD("r0", "r1", "r2", "r3") MT_DSP_ENDS_QUAD("r4", "r5", "r8", "r9")
#define MT_DSP_DENSE8(begins, row, size, ends)                                                                     \
    __asm__ volatile("ldmia %[w]!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t" begins MT_DSP_IN_TURNS(                   \
                         "", row, size, "r12", "ldr r12, %[end]\n\tcmp %[x], r12\n\t") "\n\t" ends               \
                     "ldr r10, [%[w]]"                                                                             \
                     : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3), "=&r"(r4), "=&r"(r5), "=&r"(r8), "=&r"(r9),     \
                       "=&r"(r10), [w] "+&r"(weights), [x] "+&r"(x)                                                \
                     : [end] "m"(end), [skip] "m"(skip), [turn] "i"(turn), [eight] "m"(eight)                      \
                     : "r11", "r12", "lr", "cc", "memory")
#define MT_DSP_EXACT_PAIR(a, b) MT_DSP_EXACT(a, "r10", "r11", "%[n]") MT_DSP_EXACT(b, "r12", "lr", "%[k]")
#define MT_DSP_NEXT_PAIR "ldmia %[w]!, {r10, r11, r12, lr}\n\t"

/* Weights of one or two bits: see mt_dsp_fields_int8.h. Biases of eight outputs, then for each four inputs a word for
 * each bit. Sums of two outputs each in r0 to r3, inputs r10 and r11, weights r12 and lr, the mask r4. */
#define MT_DSP_FIELD(x, word, sum)     \
    "and r5, r4, " word "\n\t"         \
    "smlad " sum ", " x ", r5, " sum "\n\t"
#define MT_DSP_FIELDS(x, word, a, b, c, d)                                                            \
    MT_DSP_FIELD(x, word ", ror #" #a, "r0") MT_DSP_FIELD(x, word ", ror #" #b, "r1")                  \
        MT_DSP_FIELD(x, word ", ror #" #c, "r2") MT_DSP_FIELD(x, word ", ror #" #d, "r3")
#define MT_DSP_ROW8_4_FIELDS(load, words)    \
    "ldr r10, [%[x]], #4\n\t" load           \
    "sxtb16 r11, r10, ror #8\n\t"            \
    "sxtb16 r10, r10\n\t" words
#define MT_DSP_ROW8_4_1 \
    MT_DSP_ROW8_4_FIELDS("ldr r12, [%[w]], #4\n\t", MT_DSP_FIELDS("r10", "r12", 0, 1, 4, 5) MT_DSP_FIELDS("r11", "r12", 8, 9, 12, 13))
#define MT_DSP_ROW8_4_2 \
    MT_DSP_ROW8_4_FIELDS("ldrd r12, lr, [%[w]], #8\n\t", MT_DSP_FIELDS("r10", "r12", 0, 4, 8, 12) MT_DSP_FIELDS("r11", "lr", 0, 4, 8, 12))
#define MT_DSP_ROW8_4_FIELDS_SIZE 80 /* size of MT_DSP_ROW8_4_1 */
#define MT_DSP_DENSE_FIELDS(row)                                                                                    \
    __asm__ volatile("movw r4, %[mask]\n\tmovt r4, %[mask]\n\t" MT_DSP_IN_TURNS( \
                         "", row, MT_DSP_ROW8_4_FIELDS_SIZE, "r12", "ldr r12, %[end]\n\tcmp %[x], r12\n\t")         \
                     : "+&r"(r0), "+&r"(r1), "+&r"(r2), "+&r"(r3), [w] "+&r"(weights), [x] "+&r"(x)                 \
                     : [end] "m"(stop), [skip] "m"(skip), [turn] "i"(turn), [mask] "i"(MT_DSP_FIELD_HALF(bits))     \
                     : "r4", "r5", "r10", "r11", "r12", "lr", "cc", "memory")

/* Eight sums; `totals` are those of each `block` of inputs, or of all where weights have one bit. */
MT_DSP_INLINE const uint32_t *mt_dsp_sums_of_fields(const int8_t *x, int32_t count, const uint32_t *weights,
                                                    int32_t *sums, const int32_t *totals, int turn, int bits,
                                                    int32_t block)
{
    register int32_t r0 __asm__("r0") = 0, r1 __asm__("r1") = 0, r2 __asm__("r2") = 0, r3 __asm__("r3") = 0;
    const uint32_t *const biases = weights;
    const int8_t *const end = x + count;
    int32_t low[4] = {0, 0, 0, 0}, total = *totals;
    weights += 8;
    do {
        const int8_t *const stop = end - x < block ? end : x + block;
        const int32_t skip = (int32_t)(-((uint32_t)(stop - x) / 4) & (uint32_t)(turn - 1)) * MT_DSP_ROW8_4_FIELDS_SIZE;
        if (bits == 1)
            MT_DSP_DENSE_FIELDS(MT_DSP_ROW8_4_1);
        else
            MT_DSP_DENSE_FIELDS(MT_DSP_ROW8_4_2);
        if (bits == 2)
            total = *totals++;
        MT_DSP_TAKE_LOW(r0, low[0], total, bits);
        MT_DSP_TAKE_LOW(r1, low[1], total, bits);
        MT_DSP_TAKE_LOW(r2, low[2], total, bits);
        MT_DSP_TAKE_LOW(r3, low[3], total, bits);
    } while (x != end);
    MT_UNROLL(4)
    for (int32_t j = 0; j < 4; ++j) {
        const int32_t high = j == 0 ? r0 : j == 1 ? r1 : j == 2 ? r2 : r3;
        sums[2 * j] = (int32_t)biases[2 * j] + MT_DSP_LOW_SUM(low[j], total, bits);
        sums[2 * j + 1] = (int32_t)biases[2 * j + 1] + MT_DSP_HIGH_SUM(high, total, bits);
    }
    return weights;
}

MT_DSP_INLINE const uint32_t *mt_dsp_rows8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int8_t *output, int32_t groups, int turn, int bits, int32_t block,
                                           enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    const struct mt_dsp_range none = {0, 0, 0, 0}, own = range ? *range : none;
    const int32_t four = bits == 4 ? MT_DSP_ROW8_4_BITS_SIZE : MT_DSP_ROW8_4_SIZE;
    const int32_t count = (int32_t)(end - input), skip = four * (-(count / 4) & (turn - 1)); /* the loop's bytes to skip */
    int32_t totals[MT_DSP_BLOCKS], eight = 0;
    if (bits < 8)
        mt_dsp_totals(totals, input, count, bits == 2 ? block : count);
    if (bits == 4)
        eight = 8 * totals[0];
    do {
        const int8_t *x = input;
        int32_t a, b, c, d, e, f, g, h, m;
        {
            register int32_t r0 __asm__("r0"), r1 __asm__("r1"), r2 __asm__("r2"), r3 __asm__("r3"), r4 __asm__("r4"),
                r5 __asm__("r5"), r8 __asm__("r8"), r9 __asm__("r9"), r10 __asm__("r10");
            if (bits == 4)
                MT_DSP_DENSE8(MT_DSP_LESS_INPUTS, MT_DSP_ROW8_4_BITS, MT_DSP_ROW8_4_BITS_SIZE, MT_DSP_ENDS8_BITS);
            else if (bits == 8)
                MT_DSP_DENSE8("", MT_DSP_ROW8_4, MT_DSP_ROW8_4_SIZE, MT_DSP_ENDS8);
            else {
                int32_t sums[8];
                weights = mt_dsp_sums_of_fields(x, count, weights, sums, totals, turn, bits, block);
                r0 = sums[0], r1 = sums[1] << 8, r2 = sums[2], r3 = sums[3] << 8;
                r4 = sums[4], r5 = sums[5] << 8, r8 = sums[6], r9 = sums[7] << 8, r10 = (int32_t)*weights;
            }
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
#define MT_DSP_LAST_0(row) ""
#define MT_DSP_LAST_1(row) "ldrb r10, [%[x]]\n\t" row
#define MT_DSP_LAST_2(row) "ldrh r10, [%[x]]\n\t" row
#define MT_DSP_LAST_3(row) "ldrh r10, [%[x]]\n\tldrb r11, [%[x], #2]\n\torr r10, r10, r11, lsl #16\n\t" row
#define MT_DSP_ENDS_SUMS MT_DSP_ENDS8 \
    "asr r1, r1, #8\n\t"            \
    "asr r3, r3, #8\n\t"            \
    "asr r5, r5, #8\n\t"            \
    "asr r9, r9, #8\n\t"
#define MT_DSP_ENDS_SUMS_BITS MT_DSP_ENDS8_BITS \
    "asr r1, r1, #8\n\t"                      \
    "asr r3, r3, #8\n\t"                      \
    "asr r5, r5, #8\n\t"                      \
    "asr r9, r9, #8\n\t"
#define MT_DSP_SUMS(begins, row, size, last, ends)                                                                  \
    __asm__ volatile("ldmia %[w]!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t" begins MT_DSP_IN_TURNS(                    \
                         "", row, size, "r12", "ldr r12, %[end]\n\tcmp %[x], r12\n\t") "\n\t"                     \
                     last ends "ldr r10, %[o]\n\t"                                                                  \
                     "stmia r10!, {r0, r1, r2, r3, r4, r5, r8, r9}\n\t"                                             \
                     "str r10, %[o]"                                                                                \
                     : [w] "+&r"(weights), [x] "+&r"(x), [o] "+m"(output)                                           \
                     : [end] "m"(whole), [skip] "m"(skip), [turn] "i"(turn), [eight] "m"(eight)                     \
                     : "r0", "r1", "r2", "r3", "r4", "r5", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory")
#define MT_DSP_SUMS_OF(last)                                                                             \
    do {                                                                                                 \
        if (bits == 4)                                                                                   \
            MT_DSP_SUMS(MT_DSP_LESS_INPUTS, MT_DSP_ROW8_4_BITS, MT_DSP_ROW8_4_BITS_SIZE,                 \
                        last(MT_DSP_ROW8_BITS_OF), MT_DSP_ENDS_SUMS_BITS);                               \
        else                                                                                             \
            MT_DSP_SUMS("", MT_DSP_ROW8_4, MT_DSP_ROW8_4_SIZE, last(MT_DSP_ROW8_OF), MT_DSP_ENDS_SUMS);  \
    } while (0)

MT_DSP_INLINE const uint32_t *mt_dsp_sums8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int32_t *output, int32_t groups, int turn, int rest, int bits,
                                           int32_t block, const int32_t *totals)
{
    const int32_t eight = bits == 4 ? 8 * *totals : 0;
    const int8_t *const whole = end - rest;
    const int32_t four = bits == 4 ? MT_DSP_ROW8_4_BITS_SIZE : MT_DSP_ROW8_4_SIZE;
    const int32_t skip = four * (-((int32_t)(whole - input) / 4) & (turn - 1));
    for (; bits < 4 && groups; --groups, output += 8)
        weights = mt_dsp_sums_of_fields(input, (int32_t)(end - input), weights, output, totals, turn, bits, block);
    while (groups--) {
        const int8_t *x = input;
        if (rest == 1)
            MT_DSP_SUMS_OF(MT_DSP_LAST_1);
        else if (rest == 2)
            MT_DSP_SUMS_OF(MT_DSP_LAST_2);
        else if (rest == 3)
            MT_DSP_SUMS_OF(MT_DSP_LAST_3);
        else
            MT_DSP_SUMS_OF(MT_DSP_LAST_0);
    }
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

/* Eight sums of weights of 4 bits; those of odd outputs are times 256 and have their predecessor's added. */
MT_DSP_INLINE const uint32_t *mt_dsp_sums_of_bits(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                                  uint32_t *sums, int32_t rest)
{
    const uint32_t *words = weights + 8;
    for (int32_t j = 0; j < 8; j += 4) {
        sums[j] = weights[j];
        sums[j + 1] = (weights[j + 1] - weights[j]) << 4;
        sums[j + 2] = (uint32_t)((int32_t)(weights[j + 2] - weights[j + 3]) >> 12);
        sums[j + 3] = weights[j + 3] - weights[j + 1];
    }
    for (const int8_t *x = input; x < end; x += 4)
        for (int32_t half = 0; half < 4; ++half) {
            const uint32_t word = *words++;
            for (int32_t k = 0; k < 2; ++k) {
                const int32_t place = half % 2 + 2 * k;
                const int32_t element = x + 4 > end && place >= rest ? 0 : x[place], n = (int32_t)(word >> 16 * k & 0xFFFF);
                uint32_t *const four = sums + half / 2 * 4;
                four[0] += (uint32_t)(element * ((n & 15) - 8));
                four[1] += (uint32_t)(element * ((n >> 4 & 15) - 8)) << 8;
                four[2] += (uint32_t)(element * (((n >> 12 & 15) ^ 8) - 8));
                four[3] += (uint32_t)(element * ((n >> 8 & 15) - 8)) << 8;
            }
        }
    for (int32_t j = 0; j < 8; j += 2)
        sums[j + 1] += sums[j];
    return words;
}

/* Eight sums of weights of one or two bits. */
MT_DSP_INLINE const uint32_t *mt_dsp_sums_of_fields(const int8_t *x, int32_t count, const uint32_t *weights,
                                                    int32_t *sums, int bits, int32_t block)
{
    const uint32_t *const biases = weights;
    int32_t both[4] = {0}, low[4] = {0}, total;
    mt_dsp_totals(&total, x, count, count);
    weights += 8;
    for (int32_t k = 0; k < count; k += 4, x += 4, weights += bits) {
        uint32_t word;
        memcpy(&word, x, 4);
        for (int32_t j = 0; j < 8; ++j)
            both[j % 4] = mt_dsp_add_fields(mt_dsp_sxtb16(j > 3 ? word >> 8 | word << 24 : word),
                                            bits == 2 && j > 3 ? weights[1] : *weights, bits == 2 ? j % 4 : j, bits,
                                            both[j % 4]);
        if ((k + 4) % block == 0 || k + 4 == count) {
            int32_t inputs;
            mt_dsp_totals(&inputs, x - k % block, k % block + 4, block);
            for (int32_t j = 0; j < 4; ++j)
                MT_DSP_TAKE_LOW(both[j], low[j], inputs, bits);
        }
    }
    for (int32_t j = 0; j < 4; ++j) {
        sums[2 * j] = (int32_t)biases[2 * j] + MT_DSP_LOW_SUM(low[j], total, bits);
        sums[2 * j + 1] = (int32_t)biases[2 * j + 1] + MT_DSP_HIGH_SUM(both[j], total, bits);
    }
    return weights;
}

/* Some outputs at a time, an even number. */
MT_DSP_INLINE const uint32_t *mt_dsp_rows_of(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                             int8_t *output, int32_t groups, int32_t outputs, int bits, int32_t block,
                                             enum mt_scaling by, const struct mt_dsp_range *range)
{
    for (; groups; --groups, output += outputs) {
        uint32_t sums[8];
        const uint32_t *first;
        if (bits < 4) {
            int32_t whole[8];
            weights = mt_dsp_sums_of_fields(input, (int32_t)(end - input), weights, whole, bits, block);
            for (int32_t j = 0; j < 8; ++j)
                sums[j] = j % 2 ? ((uint32_t)whole[j] << 8) + sums[j - 1] : (uint32_t)whole[j];
        } else
            weights = bits == 4 ? mt_dsp_sums_of_bits(input, end, weights, sums, 0)
                                : mt_dsp_sums_of(input, end, weights, sums, outputs, 0);
        first = weights;
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
    return mt_dsp_rows_of(input, end, weights, output, groups, 4, 8, 0, by, range);
}

MT_DSP_INLINE const uint32_t *mt_dsp_rows8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int8_t *output, int32_t groups, int turn, int bits, int32_t block,
                                           enum mt_scaling by, int clamped, const struct mt_dsp_range *range)
{
    (void)turn;
    (void)clamped;
    return mt_dsp_rows_of(input, end, weights, output, groups, 8, bits, block, by, range);
}

MT_DSP_INLINE const uint32_t *mt_dsp_sums8(const int8_t *input, const int8_t *end, const uint32_t *weights,
                                           int32_t *output, int32_t groups, int turn, int rest, int bits,
                                           int32_t block, const int32_t *totals)
{
    (void)turn;
    (void)totals;
    for (; groups; --groups, output += 8) {
        uint32_t sums[8];
        if (bits < 4) {
            weights = mt_dsp_sums_of_fields(input, (int32_t)(end - input), weights, output, bits, block);
            continue;
        }
        weights = bits == 4 ? mt_dsp_sums_of_bits(input, end, weights, sums, rest)
                            : mt_dsp_sums_of(input, end, weights, sums, 8, rest);
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
#define MT_DSP_SUMS8(name, turn, rest)                                                                \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int32_t *output, int32_t groups)                                 \
    {                                                                                                 \
        return mt_dsp_sums8(input, end, weights, output, groups, turn, rest, 8, 0, 0);                \
    }
/* With weights of fewer bits; `totals` are the sums of each `block` of inputs, or of all unless weights have two. */
#define MT_DSP_SUMS8_BITS(name, turn, rest, bits, block)                                              \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int32_t *output, int32_t groups, const int32_t *totals)          \
    {                                                                                                 \
        return mt_dsp_sums8(input, end, weights, output, groups, turn, rest, bits, block, totals);    \
    }
#define MT_DSP_ROWS8_PLAIN(name, unroll, bits, block, by)                                             \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights, \
                                     int8_t *output, int32_t groups)                                  \
    {                                                                                                 \
        return mt_dsp_rows8(input, end, weights, output, groups, unroll, bits, block, by, 0, 0);      \
    }
#define MT_DSP_ROWS8_RANGE(name, unroll, bits, block, by, clamped)                                     \
    MT_OPERATOR const uint32_t *name(const int8_t *input, const int8_t *end, const uint32_t *weights,  \
                                     int8_t *output, int32_t groups, const struct mt_dsp_range *range) \
    {                                                                                                  \
        const struct mt_dsp_range own = *range;                                                        \
        return mt_dsp_rows8(input, end, weights, output, groups, unroll, bits, block, by, clamped, &own); \
    }

#ifdef __cplusplus
}
#endif

#endif
