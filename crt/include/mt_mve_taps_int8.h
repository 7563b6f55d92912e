/* Internal to mtool: applications include mtool.h. */
/* Taps of int8 depthwise convolutions with Helium: common parts of their loops. Assembly only. */
#ifndef MT_MVE_TAPS_INT8_H
#define MT_MVE_TAPS_INT8_H

#include "mt_mve.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Two taps of a depthwise vector: their products fit into 16 bits (weights are -127 to 127), even and odd lanes
 * separately. */
#define MT_MVE_TAPS2(x0, x1, w0, w1)      \
    "vldrb.u8 q4, " x0 "\n\t"             \
    "vldrb.u8 q5, [%[w], #" w0 "]\n\t"    \
    "vmullb.s8 q6, q4, q5\n\t"            \
    "vmullt.s8 q5, q4, q5\n\t"            \
    "vldrb.u8 q4, " x1 "\n\t"             \
    "vldrb.u8 q7, [%[w], #" w1 "]\n\t"    \
    "vmullb.s8 q7, q4, q7\n\t"            \
    "vadd.i16 q6, q6, q7\n\t"             \
    "vldrb.u8 q7, [%[w], #" w1 "]\n\t"    \
    "vmullt.s8 q7, q4, q7\n\t"            \
    "vadd.i16 q5, q5, q7\n\t" MT_MVE_WIDEN
#define MT_MVE_TAPS1(x0, w0)              \
    "vldrb.u8 q4, " x0 "\n\t"             \
    "vldrb.u8 q5, [%[w], #" w0 "]\n\t"    \
    "vmullb.s8 q6, q4, q5\n\t"            \
    "vmullt.s8 q5, q4, q5\n\t" MT_MVE_WIDEN
#define MT_MVE_WIDEN             \
    "vmovlb.s16 q4, q6\n\t"      \
    "vmovlt.s16 q6, q6\n\t"      \
    "vadd.i32 q0, q0, q4\n\t"    \
    "vmovlb.s16 q4, q5\n\t"      \
    "vadd.i32 q1, q1, q6\n\t"    \
    "vmovlt.s16 q5, q5\n\t"      \
    "vadd.i32 q2, q2, q4\n\t"    \
    "vadd.i32 q3, q3, q5\n\t"
/* A vector of sums, with the scaling at `at` and, for multipliers, `places` after the weights. */
#define MT_MVE_FLOAT(sum, free, at, places)   \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"  \
    "vcvt.f32.s32 " sum ", " sum "\n\t"       \
    "vmul.f32 " sum ", " sum ", " free "\n\t" \
    "vcvtn.s32.f32 " sum ", " sum "\n\t"
#define MT_MVE_TWICE(sum, free, at, places)       \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"      \
    "vqrdmulh.s32 " sum ", " sum ", " free "\n\t" \
    "vshr.s32 " free ", " sum ", #31\n\t"         \
    "vadd.i32 " sum ", " sum ", " free "\n\t"     \
    "vldrw.32 " free ", [%[w], #" places "]\n\t"  \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"
#define MT_MVE_TWICE_RELU(sum, free, at, places)  \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"      \
    "vqrdmulh.s32 " sum ", " sum ", " free "\n\t" \
    "vldrw.32 " free ", [%[w], #" places "]\n\t"  \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"
#define MT_MVE_ONCE(sum, free, at, places)       \
    "vldrw.32 " free ", [%[w], #" at "]\n\t"     \
    "vmulh.s32 " sum ", " sum ", " free "\n\t"   \
    "vldrw.32 " free ", [%[w], #" places "]\n\t" \
    "vrshl.s32 " sum ", " sum ", " free "\n\t"

#endif

#ifdef __cplusplus
}
#endif

#endif
