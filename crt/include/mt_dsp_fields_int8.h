/* Internal to mtool: applications include mtool.h. */
/* Weights of one or two bits and int8 inputs with SIMD32: one SMLAD makes four products. See mt_dsp.h.
 *
 * A halfword has the weights of two outputs, low + 2^14 * high, so that one sum of products has the sums of both, as
 * long as that of `low` has 14 bits: it is taken out after each block of inputs. A word has several such halfwords, side
 * by side those of two inputs, of which a mask keeps the bits when the word is rotated. Of two bits, `low` is stored as
 * the weight plus 2, `high` as a signed number; of one bit, 1 stands for 1 and 0 for -1: the sums are twice those of the
 * bits, less the sum of the inputs. */
#ifndef MT_DSP_FIELDS_INT8_H
#define MT_DSP_FIELDS_INT8_H

#include "mt_dsp.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MT_DSP_FIELD_HALF(bits) ((bits) == 1 ? 0x4001 : 0xC003)

/* Move the sum of `low`, without the 2 of each weight of two bits, out of `both`; `inputs` is the sum of the inputs. */
#define MT_DSP_TAKE_LOW(both, low, inputs, bits)                                             \
    do {                                                                                     \
        const uint32_t rest = (uint32_t)(both) - ((bits) == 2 ? 2 * (uint32_t)(inputs) : 0);   \
        const int32_t taken = (int32_t)(rest << 18) >> 18;                                   \
        (low) += taken;                                                                      \
        (both) = (int32_t)(rest - (uint32_t)taken);                                          \
    } while (0)

/* The sums of two outputs: of `low`, and of the rest of both; `inputs` is the sum of all inputs. */
#define MT_DSP_LOW_SUM(low, inputs, bits) ((bits) == 1 ? 2 * (low) - (inputs) : (low))
#define MT_DSP_HIGH_SUM(high, inputs, bits) ((bits) == 1 ? ((high) >> 13) - (inputs) : (high) >> 14)

#define MT_DSP_BLOCKS 16 /* the most blocks of inputs */

/* The sums of each `block` of `count` inputs; the last may be shorter. */
MT_DSP_INLINE void mt_dsp_totals(int32_t *totals, const int8_t *x, int32_t count, int32_t block)
{
    do {
        const int8_t *const end = x + (count < block ? count : block);
        int32_t sum = 0;
#ifdef MT_DSP_ASM
        for (; end - x >= 4; x += 4) {
            uint32_t four;
            memcpy(&four, x, 4);
            __asm__("sxtb16 r12, %[four]\n\t"
                    "smlad %[sum], r12, %[ones], %[sum]\n\t"
                    "sxtb16 r12, %[four], ror #8\n\t"
                    "smlad %[sum], r12, %[ones], %[sum]"
                    : [sum] "+&r"(sum)
                    : [four] "r"(four), [ones] "r"(0x10001)
                    : "r12");
        }
#endif
        while (x < end)
            sum += *x++;
        *totals++ = sum;
    } while ((count -= block) > 0);
}

#ifndef MT_DSP_FPU

/* Product number `turn` of a word, of eight of one bit or four of two. */
MT_DSP_INLINE int32_t mt_dsp_add_fields(int32_t x, uint32_t word, int32_t turn, int bits, int32_t sum)
{
    const int32_t by = bits == 1 ? turn / 2 * 4 + turn % 2 : 4 * turn;
    const uint32_t turned = by ? word >> by | word << (32 - by) : word;
    return (int32_t)mt_dsp_smlad(x, (int32_t)(turned & MT_DSP_FIELD_HALF(bits) * 0x10001u), (uint32_t)sum);
}

#endif

#ifdef __cplusplus
}
#endif

#endif
