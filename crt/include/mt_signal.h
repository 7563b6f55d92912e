/* Internal to mtool: applications include mtool.h. */
/* Integer arithmetic of TensorFlow Lite Micro's Signal library (signal/src, Apache-2.0): bits, roots, logarithms,
 * gains.
 *
 * Results are the same, peculiarities included: a root below 2^32 is at most 65535, and sums wrap. */
#ifndef MT_SIGNAL_H
#define MT_SIGNAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of bits, from the highest one that is set; 32 for 0, as in the original. */
static inline int32_t mt_signal_bits(uint32_t x)
{
#if defined(__GNUC__) && __SIZEOF_INT__ == 4
    return x ? 32 - __builtin_clz(x) : 32;
#else
    int32_t bits = 0;
    for (uint32_t rest = x; rest; rest >>= 1)
        ++bits;
    return x ? bits : 32;
#endif
}

/* The square root, rounded (square_root_32.cc): bit by bit, from the highest possible one. */
static inline uint32_t mt_signal_root32(uint32_t x)
{
    if (!x)
        return 0;
    uint32_t root = 0;
    for (uint32_t bit = (uint32_t)1 << ((mt_signal_bits(x) - 1) & ~1); bit; bit >>= 2) {
        if (x >= root + bit) {
            x -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return x > root && root != 0xFFFF ? root + 1 : root;
}

/* The same for 64 bits (square_root_64.cc). */
static inline uint32_t mt_signal_root64(uint64_t x)
{
    const uint32_t high = (uint32_t)(x >> 32);
    if (!high)
        return mt_signal_root32((uint32_t)x);
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << (32 + ((mt_signal_bits(high) - 1) & ~1)); bit; bit >>= 2) {
        if (x >= root + bit) {
            x -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return (uint32_t)(x > root && root != UINT32_C(0xFFFFFFFF) ? root + 1 : root);
}

/* scale * log(x) for x > 1 (log.cc): the integer and fractional bits of log2(x); the fractional ones from a table
 * with 128 segments of log2(1 + f) - f, in steps of 2^-16. */
static inline uint32_t mt_signal_log(uint32_t x, uint32_t scale, const uint16_t *table)
{
    const int32_t whole = mt_signal_bits(x) - 1;
    const uint32_t rest = x - ((uint32_t)1 << whole);
    const int32_t fraction = (int32_t)(whole < 16 ? rest << (16 - whole) : rest >> (whole - 16));
    const int32_t segment = fraction >> 9, from = table[segment], to = table[segment + 1];
    const int32_t above = from + (((to - from) * (fraction & 511)) >> 16);
    const uint32_t binary = ((uint32_t)whole << 16) + (uint32_t)(fraction + above);
    const uint32_t natural = (uint32_t)(((uint64_t)45426 * binary + 32768) >> 16); /* log(2) in steps of 2^-16 */
    return (scale * natural + 32768) >> 16;
}

/* The gain for a noise estimate (pcan_argc_fixed.cc): a parabola for each power of two, from a table of four numbers
 * each. */
static inline int16_t mt_signal_gain(uint32_t x, const int16_t *table)
{
    if (x <= 2)
        return table[x];
    const int32_t bits = mt_signal_bits(x);
    const int16_t *const one = table + 4 * bits - 6;
    const int32_t fraction = (int32_t)((bits < 11 ? x << (11 - bits) : x >> (bits - 11)) & 0x3FF);
    const int32_t slope = ((one[2] * fraction) >> 5) + one[1] * 32;
    return (int16_t)(((slope * fraction + 16384) >> 15) + one[0]);
}

#ifdef __cplusplus
}
#endif

#endif
