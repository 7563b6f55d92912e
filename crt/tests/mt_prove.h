/* For proofs with Frama-C's Eva (scripts/prove.py): values of which the analysis knows only the limits. */
#ifndef MT_PROVE_H
#define MT_PROVE_H

#include <stddef.h>
#include <stdint.h>

#include "__fc_builtin.h"

static inline uint32_t any(uint32_t low, uint32_t high)
{
    return Frama_C_unsigned_int_interval(low, high);
}

static inline void any_bytes(void *bytes, size_t count)
{
    if (count > 0) {
        Frama_C_make_unknown(bytes, count);
    }
}

/* Read `count` bytes: they must lie in one object, and have values. */
static inline void use_bytes(const uint8_t *bytes, size_t count)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
        sum ^= bytes[i];
    }
}

#endif
