/* Internal to mtool: applications include mtool.h. */
/* Convolutions of float32 on Cortex-M: four pixels by four output channels. Plain C where mt_f32.h is. */
#ifndef MT_F32_TILE_4X4_H
#define MT_F32_TILE_4X4_H

#include "mt_f32.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_F32_ASM

/* Two pixels by four channels (s16 to s19): their sums are s0 to s7, or s8 to s15. */
#define MT_F32_4X4_MUL(x, y)       \
    "vmul.f32 s24, " x ", s16\n\t" \
    "vmul.f32 s25, " x ", s17\n\t" \
    "vmul.f32 s26, " x ", s18\n\t" \
    "vmul.f32 s27, " x ", s19\n\t" \
    "vmul.f32 s28, " y ", s16\n\t" \
    "vmul.f32 s29, " y ", s17\n\t" \
    "vmul.f32 s30, " y ", s18\n\t" \
    "vmul.f32 s31, " y ", s19\n\t"
#define MT_F32_4X4_ADD(a, b, c, d, e, f, g, h) \
    "vadd.f32 " a ", " a ", s24\n\t"           \
    "vadd.f32 " b ", " b ", s25\n\t"           \
    "vadd.f32 " c ", " c ", s26\n\t"           \
    "vadd.f32 " d ", " d ", s27\n\t"           \
    "vadd.f32 " e ", " e ", s28\n\t"           \
    "vadd.f32 " f ", " f ", s29\n\t"           \
    "vadd.f32 " g ", " g ", s30\n\t"           \
    "vadd.f32 " h ", " h ", s31\n\t"
#define MT_F32_4X4_FMA4(a, b, c, d, x) \
    "vfma.f32 " a ", " x ", s16\n\t"   \
    "vfma.f32 " b ", " x ", s17\n\t"   \
    "vfma.f32 " c ", " x ", s18\n\t"   \
    "vfma.f32 " d ", " x ", s19\n\t"
/* One step of k: four pixels (s20 to s23) by four channels; the sums are pixel by pixel. */
#define MT_F32_4X4_COLUMNS "vldmia %[c]!, {s20-s23}\n\t"
#define MT_F32_4X4_WIDENED MT_F32_WIDEN2("s16", "s17", "s24") MT_F32_WIDEN2("s18", "s19", "s25") MT_F32_4X4_COLUMNS
#define MT_F32_4X4_FLOATS "vldmia %[w]!, {s16-s19}\n\t" MT_F32_4X4_COLUMNS
#define MT_F32_4X4_HALVES "vldmia %[w]!, {s24-s25}\n\t" MT_F32_4X4_WIDENED
#define MT_F32_4X4_BYTES "ldr r5, [%[w]], #4\n\t" MT_F32_SPLIT("r5", "s24", "s25") MT_F32_4X4_WIDENED
#define MT_F32_4X4_MULADD(load)                                         \
    load                                                                \
    MT_F32_4X4_MUL("s20", "s21")                                        \
    MT_F32_4X4_ADD("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")      \
    MT_F32_4X4_MUL("s22", "s23")                                        \
    MT_F32_4X4_ADD("s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15")
#define MT_F32_4X4_FMA(load)                                            \
    load                                                                \
    MT_F32_4X4_FMA4("s0", "s1", "s2", "s3", "s20")                      \
    MT_F32_4X4_FMA4("s4", "s5", "s6", "s7", "s21")                      \
    MT_F32_4X4_FMA4("s8", "s9", "s10", "s11", "s22")                    \
    MT_F32_4X4_FMA4("s12", "s13", "s14", "s15", "s23")

#define MT_F32_4X4_DOT(step, masked, ...) \
    MT_KEPT(__asm__ volatile("vldmia %[w]!, {s16-s19}\n\t" \
                     "vmov.f32 s0, s16\n\tvmov.f32 s1, s17\n\tvmov.f32 s2, s18\n\tvmov.f32 s3, s19\n\t" \
                     "vmov.f32 s4, s16\n\tvmov.f32 s5, s17\n\tvmov.f32 s6, s18\n\tvmov.f32 s7, s19\n\t" \
                     "vmov.f32 s8, s16\n\tvmov.f32 s9, s17\n\tvmov.f32 s10, s18\n\tvmov.f32 s11, s19\n\t" \
                     "vmov.f32 s12, s16\n\tvmov.f32 s13, s17\n\tvmov.f32 s14, s18\n\tvmov.f32 s15, s19\n\t" \
                     "1:\n\t" step step step step "cmp %[c], %[end]\n\t" \
                     "bne 1b\n\t" \
                     "vstmia %[o0]!, {s0-s3}\n\t" \
                     "vstmia %[o1]!, {s4-s7}\n\t" \
                     "vstmia %[o2]!, {s8-s11}\n\t" \
                     "vstmia %[o3]!, {s12-s15}" \
                     : [w] "+&r"(weights), [c] "+&r"(c), [o0] "+&r"(o0), [o1] "+&r"(o1), [o2] "+&r"(o2), [o3] "+&r"(o3) \
                     : [end] "r"(end) masked \
                     : MT_F32_REGISTERS, __VA_ARGS__ "cc", "memory"))
#define MT_F32_4X4_BY(step, stored)                                         \
    do {                                                                    \
        if ((stored) == MT_F32_BYTES)                                       \
            MT_F32_4X4_DOT(step(MT_F32_4X4_BYTES), MT_F32_MASKED, "r5", "r6", );           \
        else if ((stored) == MT_F32_HALVES)                                 \
            MT_F32_4X4_DOT(step(MT_F32_4X4_HALVES), MT_F32_PLAIN, );                      \
        else                                                                \
            MT_F32_4X4_DOT(step(MT_F32_4X4_FLOATS), MT_F32_PLAIN, );                      \
    } while (0)

/* Four columns by all output channels, four at a time. The columns are interleaved, four floats for each k; their
 * depth is a multiple of four. For each four channels the weights are: biases (floats), then four weights for each
 * k. */
MT_F32_INLINE void mt_f32_columns(const float *columns, const float *end, const uint32_t *weights, float *o0, float *o1,
                                  float *o2, float *o3, int32_t quads, enum mt_f32_stored stored, int fused, int relu)
{
    do {
        const float *c = columns;
        if (fused)
            MT_F32_4X4_BY(MT_F32_4X4_FMA, stored);
        else
            MT_F32_4X4_BY(MT_F32_4X4_MULADD, stored);
        if (relu) {
            MT_F32_RELU4(o0);
            MT_F32_RELU4(o1);
            MT_F32_RELU4(o2);
            MT_F32_RELU4(o3);
        }
    } while (--quads);
}

/* The same for columns deeper than 256. */
MT_F32_INLINE void mt_f32_columns_long(const float *columns, const float *last, const uint32_t *weights, float *p0, float *p1, float *p2, float *p3,
                             int32_t quads, enum mt_f32_stored stored, int fused, int relu)
{
    do {
        const float *c = columns;
        float sums[16] = {0}, rests[16] = {0}, block[16];
        do {
            const float *const end = last - c > 4 * MT_F32_BLOCK ? c + 4 * MT_F32_BLOCK : last;
            float *o0 = block, *o1 = block + 4, *o2 = block + 8, *o3 = block + 12;
            if (fused)
                MT_F32_4X4_BY(MT_F32_4X4_FMA, stored);
            else
                MT_F32_4X4_BY(MT_F32_4X4_MULADD, stored);
            for (int32_t i = 0; i < 16; ++i)
                mt_add_f32(sums + i, rests + i, block[i]);
        } while (c != last);
        for (int32_t q = 0; q < 4; ++q) {
            p0[q] = mt_total_f32(sums[q], rests[q]);
            p1[q] = mt_total_f32(sums[4 + q], rests[4 + q]);
            p2[q] = mt_total_f32(sums[8 + q], rests[8 + q]);
            p3[q] = mt_total_f32(sums[12 + q], rests[12 + q]);
        }
        p0 += 4;
        p1 += 4;
        p2 += 4;
        p3 += 4;
        if (relu) {
            MT_F32_RELU4(p0);
            MT_F32_RELU4(p1);
            MT_F32_RELU4(p2);
            MT_F32_RELU4(p3);
        }
    } while (--quads);
}

#else /* portable version */

MT_F32_INLINE void mt_f32_columns(const float *columns, const float *end, const uint32_t *weights, float *o0, float *o1,
                                  float *o2, float *o3, int32_t quads, enum mt_f32_stored stored, int fused, int relu)
{
    float *const o[4] = {o0, o1, o2, o3};
    mt_f32_tiles(columns, end, weights, o, quads, stored, fused, relu, 4, 4, (int32_t)(end - columns) / 4);
}

MT_F32_INLINE void mt_f32_columns_long(const float *columns, const float *end, const uint32_t *weights, float *o0, float *o1, float *o2, float *o3,
                             int32_t quads, enum mt_f32_stored stored, int fused, int relu)
{
    float *const o[4] = {o0, o1, o2, o3};
    mt_f32_tiles(columns, end, weights, o, quads, stored, fused, relu, 4, 4, MT_F32_BLOCK);
}

#endif

/* The instances that operators share. */
#define MT_F32_COLUMNS(function, name, type, stored, fused, relu) \
    MT_OPERATOR void function##_##name(const float *columns, const float *end, const type *weights, float *o0, float *o1, float *o2, \
                          float *o3, int32_t quads) \
    { \
        function(columns, end, (const uint32_t *)(const void *)weights, o0, o1, o2, o3, quads, stored, fused, relu); \
    }
#define MT_F32_COLUMNS_OF(function) \
    MT_F32_COLUMNS(function, muladd, float, MT_F32_FLOATS, 0, 0) \
    MT_F32_COLUMNS(function, muladd_relu, float, MT_F32_FLOATS, 0, 1) \
    MT_F32_COLUMNS(function, fma, float, MT_F32_FLOATS, 1, 0) \
    MT_F32_COLUMNS(function, fma_relu, float, MT_F32_FLOATS, 1, 1) \
    MT_F32_COLUMNS(function, halves_muladd, uint32_t, MT_F32_HALVES, 0, 0) \
    MT_F32_COLUMNS(function, halves_muladd_relu, uint32_t, MT_F32_HALVES, 0, 1) \
    MT_F32_COLUMNS(function, halves_fma, uint32_t, MT_F32_HALVES, 1, 0) \
    MT_F32_COLUMNS(function, halves_fma_relu, uint32_t, MT_F32_HALVES, 1, 1) \
    MT_F32_COLUMNS(function, bytes_muladd, uint32_t, MT_F32_BYTES, 0, 0) \
    MT_F32_COLUMNS(function, bytes_fma, uint32_t, MT_F32_BYTES, 1, 0)
MT_F32_COLUMNS_OF(mt_f32_columns)
MT_F32_COLUMNS_OF(mt_f32_columns_long)

#ifdef __cplusplus
}
#endif

#endif
