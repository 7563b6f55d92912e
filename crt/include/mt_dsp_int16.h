/* Internal to mtool: applications include mtool.h. */
/* Common parts of operators on int16 activations with SIMD32; the loops are those of mt_dsp.h as far as possible.
 *
 * Activations are int16 pairs as they are. int8 weights stay bytes, in the order (0, 2, 1, 3): SXTB16, without and with
 * a rotation by 8, gives the pairs (0, 1) and (2, 3). int16 weights are pairs already. Sums are int32 if the compiler
 * has proved that they fit, otherwise int64.
 *
 * Results are those of mt_requantize_wide and mt_requantize_long, bit for bit. */
#ifndef MT_DSP_INT16_H
#define MT_DSP_INT16_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As MT_DSP_RANGE, for two int16 biased by 32768. */
#define MT_DSP16_PAIR(value) ((uint32_t)((value)&65535) * 0x10001u)
#define MT_DSP16_RANGE(zero_point, low, high)                                                                       \
    {                                                                                                               \
        (zero_point) + 32768, MT_DSP16_PAIR(32767 - (high)), MT_DSP16_PAIR(65535 - (high) + (low)),                 \
            MT_DSP16_PAIR(low)                                                                                      \
    }

MT_DSP_INLINE int16_t mt_dsp16_narrow_long(int64_t sum, uint32_t scale_bits, const struct mt_dsp_range *range)
{
    float scale;
    memcpy(&scale, &scale_bits, 4);
    const int32_t low = (int16_t)(range->low & 65535), high = 32767 - (int32_t)(range->above & 65535);
    return (int16_t)mt_requantize_long(sum, scale, range->offset - 32768, low, high);
}

/* sum + x0 * w0 + x1 * w1, for two pairs. */
MT_DSP_INLINE int64_t mt_dsp16_mac_long(int32_t x, int32_t w, int64_t sum)
{
#ifdef MT_DSP_FPU
    __asm__("smlald %Q0, %R0, %1, %2" : "+r"(sum) : "r"(x), "r"(w));
    return sum;
#else
    const int32_t low = (int32_t)(int16_t)(x & 0xffff) * (int16_t)(w & 0xffff);
    const int32_t high = (int32_t)(int16_t)((uint32_t)x >> 16) * (int16_t)((uint32_t)w >> 16);
    return sum + low + high;
#endif
}

/* The pairs (0, 1) and (2, 3) of four packed bytes. */
MT_DSP_INLINE int32_t mt_dsp16_first(uint32_t word)
{
#ifdef MT_DSP_FPU
    int32_t pair;
    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(word));
    return pair;
#else
    return mt_dsp_sxtb16(word);
#endif
}

MT_DSP_INLINE int32_t mt_dsp16_second(uint32_t word)
{
#ifdef MT_DSP_FPU
    int32_t pair;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(word));
    return pair;
#else
    return mt_dsp_sxtb16(word >> 8 | word << 24);
#endif
}

#ifdef MT_DSP_FPU

/* Two clamped results in a: a's in the lower half, b's in the upper one. */
#define MT_DSP16_CLAMP2(a, b)                                                                   \
    __asm__("qadd %[va], %[va], %[offset]\n\t"                                                  \
            "qadd %[vb], %[vb], %[offset]\n\t"                                                  \
            "usat %[va], #16, %[va]\n\t"                                                        \
            "usat %[vb], #16, %[vb]\n\t"                                                        \
            "orr %[va], %[va], %[vb], lsl #16\n\t"                                              \
            "uqadd16 %[va], %[va], %[above]\n\t"                                                \
            "uqsub16 %[va], %[va], %[span]\n\t"                                                 \
            "uadd16 %[va], %[va], %[low]"                                                       \
            : [va] "+&r"(a), [vb] "+&r"(b)                                                      \
            : [offset] "r"(own.offset), [above] "r"(own.above), [span] "r"(own.span), [low] "r"(own.low) \
            : "cc")

#else

MT_DSP_INLINE int16_t mt_dsp16_narrow(uint32_t sum, uint32_t scale_bits, const struct mt_dsp_range *range)
{
    float scale;
    memcpy(&scale, &scale_bits, 4);
    const int32_t low = (int16_t)(range->low & 65535), high = 32767 - (int32_t)(range->above & 65535);
    return (int16_t)mt_requantize_wide((int32_t)sum, scale, range->offset - 32768, low, high);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
