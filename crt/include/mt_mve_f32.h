/* Internal to mtool: applications include mtool.h. */
/* Common parts of float32 operators with Helium (Armv8.1-M MVE with floating point): vectors of four channels.
 *
 * Each output is summed in the order of mt_f32.h, with fused products, so that the results are those of its functions
 * with `fused`, except for denormal numbers, which Helium flushes to zero. Independent loads are placed between
 * multiplications, because the core executes both at once. Plain C where mt_mve.h is.
 *
 * `least` is 0 for a ReLU and MT_MVE_F32_ANY for none: a float's bits compare with it like an int32_t's. */
#ifndef MT_MVE_F32_H
#define MT_MVE_F32_H

#include "mt_half.h"
#include "mt_float.h"
#include "mt_mve.h"

#ifdef MT_MVE_ASM
#define MT_MVE_F32_INLINE MT_MVE_INLINE
#else
#define MT_MVE_F32_INLINE static inline
#endif

#define MT_MVE_F32_ANY INT32_MIN

#ifdef __cplusplus
extern "C" {
#endif

#ifdef MT_MVE_ASM

/* Four weights in a register, by its number: floats, or float16 that are widened by VCVTB.F32.F16, which assemblers
 * up to binutils 2.40 give the wrong registers. */
#define MT_MVE_F32_FLOATS(q) "vldrw.32 q" #q ", [%[w]], #16\n\t"
#define MT_MVE_F32_HALVES(q) "vldrh.u32 q" #q ", [%[w]], #8\n\t.inst.w 0xfe3f0e01 + " #q " * 0x2002\n\t"

/* Add vectors of floats to sums, and the rounding errors to `rests`; at the end both are added (mt_add_f32,
 * mt_total_f32). */
MT_MVE_F32_INLINE void mt_mve_f32_add_blocks(const float *block, float32x4_t *sums, float32x4_t *rests, int32_t vectors)
{
    for (int32_t i = 0; i < vectors; ++i) {
        const float32x4_t part = vldrwq_f32(block + 4 * i), next = vaddq_f32(sums[i], part);
        rests[i] = vaddq_f32(rests[i], vsubq_f32(part, vsubq_f32(next, sums[i])));
        sums[i] = next;
    }
}

MT_MVE_F32_INLINE float32x4_t mt_mve_f32_total(float32x4_t sum, float32x4_t rest)
{
    const float32x4_t total = vaddq_f32(sum, rest);
    return vpselq_f32(total, sum, vcmpeqq_f32(total, total));
}

#else

/* Number i of the weights: floats, or two float16 per word. */
MT_MVE_F32_INLINE float mt_mve_f32_weight(const uint32_t *weights, int32_t i, int halves)
{
    union mt_bits32 bits;
    if (halves)
        return mt_f16_load((uint16_t)(weights[i / 2] >> i % 2 * 16 & 0xFFFFu));
    bits.u = weights[i];
    return bits.f;
}

MT_MVE_F32_INLINE float mt_mve_f32_at_least(float value, int32_t least)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits = bits < least ? least : bits;
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

#endif

#ifdef __cplusplus
}
#endif

#endif
