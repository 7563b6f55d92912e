/* Internal to mtool: applications include mtool.h. */
/* Convolutions of float32 on Cortex-M, two pixels by eight output channels: for remainders of two pixels. Plain C
 * where mt_f32.h is. */
#ifndef MT_F32_TILE_2X8_H
#define MT_F32_TILE_2X8_H

#include "mt_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_F32_ASM

/* One step of k: two pixels (s24, s25) by eight channels (s16 to s23); the sums are s0 to s15, pixel by pixel. */
#define MT_F32_2X8_COLUMNS "vldmia %[c]!, {s24-s25}\n\t"
#define MT_F32_2X8_WIDENED \
    MT_F32_WIDEN2("s16", "s17", "s28") MT_F32_WIDEN2("s18", "s19", "s29") MT_F32_WIDEN2("s20", "s21", "s30") \
    MT_F32_WIDEN2("s22", "s23", "s31") MT_F32_2X8_COLUMNS
#define MT_F32_2X8_FLOATS "vldmia %[w]!, {s16-s23}\n\t" MT_F32_2X8_COLUMNS
#define MT_F32_2X8_HALVES "vldmia %[w]!, {s28-s31}\n\t" MT_F32_2X8_WIDENED
#define MT_F32_2X8_BYTES \
    "ldrd r4, r5, [%[w]], #8\n\t" MT_F32_SPLIT("r4", "s28", "s29") MT_F32_SPLIT("r5", "s30", "s31") MT_F32_2X8_WIDENED
#define MT_F32_2X8_MULADD(load) \
    load \
    "vmul.f32 s26, s24, s16\n\t" \
    "vmul.f32 s27, s24, s17\n\t" \
    "vmul.f32 s28, s24, s18\n\t" \
    "vmul.f32 s29, s24, s19\n\t" \
    "vmul.f32 s30, s24, s20\n\t" \
    "vmul.f32 s31, s24, s21\n\t" \
    "vadd.f32 s0, s0, s26\n\t" \
    "vadd.f32 s1, s1, s27\n\t" \
    "vadd.f32 s2, s2, s28\n\t" \
    "vadd.f32 s3, s3, s29\n\t" \
    "vadd.f32 s4, s4, s30\n\t" \
    "vadd.f32 s5, s5, s31\n\t" \
    "vmul.f32 s26, s24, s22\n\t" \
    "vmul.f32 s27, s24, s23\n\t" \
    "vmul.f32 s28, s25, s16\n\t" \
    "vmul.f32 s29, s25, s17\n\t" \
    "vmul.f32 s30, s25, s18\n\t" \
    "vmul.f32 s31, s25, s19\n\t" \
    "vadd.f32 s6, s6, s26\n\t" \
    "vadd.f32 s7, s7, s27\n\t" \
    "vadd.f32 s8, s8, s28\n\t" \
    "vadd.f32 s9, s9, s29\n\t" \
    "vadd.f32 s10, s10, s30\n\t" \
    "vadd.f32 s11, s11, s31\n\t" \
    "vmul.f32 s26, s25, s20\n\t" \
    "vmul.f32 s27, s25, s21\n\t" \
    "vmul.f32 s28, s25, s22\n\t" \
    "vmul.f32 s29, s25, s23\n\t" \
    "vadd.f32 s12, s12, s26\n\t" \
    "vadd.f32 s13, s13, s27\n\t" \
    "vadd.f32 s14, s14, s28\n\t" \
    "vadd.f32 s15, s15, s29\n\t"

#define MT_F32_2X8_FMA(load) \
    load \
    "vfma.f32 s0, s24, s16\n\t" \
    "vfma.f32 s1, s24, s17\n\t" \
    "vfma.f32 s2, s24, s18\n\t" \
    "vfma.f32 s3, s24, s19\n\t" \
    "vfma.f32 s4, s24, s20\n\t" \
    "vfma.f32 s5, s24, s21\n\t" \
    "vfma.f32 s6, s24, s22\n\t" \
    "vfma.f32 s7, s24, s23\n\t" \
    "vfma.f32 s8, s25, s16\n\t" \
    "vfma.f32 s9, s25, s17\n\t" \
    "vfma.f32 s10, s25, s18\n\t" \
    "vfma.f32 s11, s25, s19\n\t" \
    "vfma.f32 s12, s25, s20\n\t" \
    "vfma.f32 s13, s25, s21\n\t" \
    "vfma.f32 s14, s25, s22\n\t" \
    "vfma.f32 s15, s25, s23\n\t"

#define MT_F32_2X8_DOT(step, masked, ...) \
    MT_KEPT(__asm__ volatile("vldmia %[w]!, {s0-s7}\n\t" \
                     "vmov.f32 s8, s0\n\tvmov.f32 s9, s1\n\tvmov.f32 s10, s2\n\tvmov.f32 s11, s3\n\t" \
                     "vmov.f32 s12, s4\n\tvmov.f32 s13, s5\n\tvmov.f32 s14, s6\n\tvmov.f32 s15, s7\n\t" \
                     "1:\n\t" step step step step "cmp %[c], %[end]\n\t" \
                     "bne 1b\n\t" \
                     "vstmia %[o0]!, {s0-s7}\n\t" \
                     "vstmia %[o1]!, {s8-s15}" \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o0] "+&r"(o0), [o1] "+&r"(o1) \
                     : [end] "r"(end) masked \
                     : MT_F32_REGISTERS, __VA_ARGS__ "cc", "memory"))
#define MT_F32_2X8_BY(step, stored)                                         \
    do {                                                                    \
        if ((stored) == MT_F32_BYTES)                                       \
            MT_F32_2X8_DOT(step(MT_F32_2X8_BYTES), MT_F32_MASKED, "r4", "r5", "r6", );     \
        else if ((stored) == MT_F32_HALVES)                                 \
            MT_F32_2X8_DOT(step(MT_F32_2X8_HALVES), MT_F32_PLAIN, );                      \
        else                                                                \
            MT_F32_2X8_DOT(step(MT_F32_2X8_FLOATS), MT_F32_PLAIN, );                      \
    } while (0)

/* Two columns by all output channels, eight at a time. The columns are interleaved, two floats for each k; their
 * depth is a multiple of four. For each eight channels the weights are: biases (floats), then eight weights for each
 * k. */
MT_F32_INLINE void mt_f32_columns_2x8(const float *columns, const float *end, const uint32_t *weights, float *o0,
                                      float *o1, int32_t eights, enum mt_f32_stored stored, int fused, int relu)
{
    do {
        const float *c = columns;
        if (fused)
            MT_F32_2X8_BY(MT_F32_2X8_FMA, stored);
        else
            MT_F32_2X8_BY(MT_F32_2X8_MULADD, stored);
        if (relu) {
            MT_F32_RELU4(o0);
            MT_F32_RELU4(o0 - 4);
            MT_F32_RELU4(o1);
            MT_F32_RELU4(o1 - 4);
        }
    } while (--eights);
}

/* The same for columns deeper than 256. */
MT_F32_INLINE void mt_f32_columns_2x8_long(const float *columns, const float *last, const uint32_t *weights, float *p0, float *p1,
                             int32_t eights, enum mt_f32_stored stored, int fused, int relu)
{
    do {
        const float *c = columns;
        float sums[16] = {0}, rests[16] = {0}, block[16];
        do {
            const float *const end = last - c > 2 * MT_F32_BLOCK ? c + 2 * MT_F32_BLOCK : last;
            float *o0 = block, *o1 = block + 8;
            if (fused)
                MT_F32_2X8_BY(MT_F32_2X8_FMA, stored);
            else
                MT_F32_2X8_BY(MT_F32_2X8_MULADD, stored);
            for (int32_t i = 0; i < 16; ++i)
                mt_add_f32(sums + i, rests + i, block[i]);
        } while (c != last);
        for (int32_t q = 0; q < 8; ++q) {
            p0[q] = mt_total_f32(sums[q], rests[q]);
            p1[q] = mt_total_f32(sums[8 + q], rests[8 + q]);
        }
        p0 += 8;
        p1 += 8;
        if (relu) {
            MT_F32_RELU4(p0);
            MT_F32_RELU4(p0 - 4);
            MT_F32_RELU4(p1);
            MT_F32_RELU4(p1 - 4);
        }
    } while (--eights);
}

#else /* portable version */

MT_F32_INLINE void mt_f32_columns_2x8(const float *columns, const float *end, const uint32_t *weights, float *o0,
                                      float *o1, int32_t eights, enum mt_f32_stored stored, int fused, int relu)
{
    float *const o[2] = {o0, o1};
    mt_f32_tiles(columns, end, weights, o, eights, stored, fused, relu, 2, 8, (int32_t)(end - columns) / 2);
}

MT_F32_INLINE void mt_f32_columns_2x8_long(const float *columns, const float *end, const uint32_t *weights, float *o0, float *o1,
                             int32_t eights, enum mt_f32_stored stored, int fused, int relu)
{
    float *const o[2] = {o0, o1};
    mt_f32_tiles(columns, end, weights, o, eights, stored, fused, relu, 2, 8, MT_F32_BLOCK);
}

#endif

/* The instances that operators share. */
#define MT_F32_COLUMNS_2X8(function, name, type, stored, fused, relu) \
    MT_OPERATOR void function##_##name(const float *columns, const float *end, const type *weights, float *o0, float *o1, \
                          int32_t eights) \
    { \
        function(columns, end, (const uint32_t *)(const void *)weights, o0, o1, eights, stored, fused, relu); \
    }
#define MT_F32_COLUMNS_2X8_OF(function) \
    MT_F32_COLUMNS_2X8(function, muladd, float, MT_F32_FLOATS, 0, 0) \
    MT_F32_COLUMNS_2X8(function, muladd_relu, float, MT_F32_FLOATS, 0, 1) \
    MT_F32_COLUMNS_2X8(function, fma, float, MT_F32_FLOATS, 1, 0) \
    MT_F32_COLUMNS_2X8(function, fma_relu, float, MT_F32_FLOATS, 1, 1) \
    MT_F32_COLUMNS_2X8(function, halves_muladd, uint32_t, MT_F32_HALVES, 0, 0) \
    MT_F32_COLUMNS_2X8(function, halves_muladd_relu, uint32_t, MT_F32_HALVES, 0, 1) \
    MT_F32_COLUMNS_2X8(function, halves_fma, uint32_t, MT_F32_HALVES, 1, 0) \
    MT_F32_COLUMNS_2X8(function, halves_fma_relu, uint32_t, MT_F32_HALVES, 1, 1) \
    MT_F32_COLUMNS_2X8(function, bytes_muladd, uint32_t, MT_F32_BYTES, 0, 0) \
    MT_F32_COLUMNS_2X8(function, bytes_fma, uint32_t, MT_F32_BYTES, 1, 0)
MT_F32_COLUMNS_2X8_OF(mt_f32_columns_2x8)
MT_F32_COLUMNS_2X8_OF(mt_f32_columns_2x8_long)

#ifdef __cplusplus
}
#endif

#endif
