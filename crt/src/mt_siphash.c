#include "mt_siphash.h"

#ifdef MT_LINK_KEY
#include "mt_bytes.h"

const uint8_t mt_link_key[MT_SIPHASH_KEY_BYTES] = MT_LINK_KEY;

static uint64_t rotated(uint64_t word, unsigned count)
{
    return word << count | word >> (64u - count);
}

static void mix(uint64_t *v, unsigned rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[1] = rotated(v[1], 13) ^ v[0];
        v[0] = rotated(v[0], 32);
        v[2] += v[3];
        v[3] = rotated(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotated(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotated(v[1], 17) ^ v[2];
        v[2] = rotated(v[2], 32);
    }
}

uint64_t mt_siphash(const uint8_t *key, const uint8_t *bytes, size_t count)
{
    const uint64_t low = mt_get_u64(key), high = mt_get_u64(key + 8);
    uint64_t v[4] = {low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d),
                     low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573)};
    const size_t whole = count & ~(size_t)7u;
    uint64_t word;
    for (size_t at = 0; at <= whole; at += 8u) {
        if (at < whole) {
            word = mt_get_u64(bytes + at);
        } else { /* the last word has the rest, zeros, and the count */
            word = (uint64_t)(count & 0xFFu) << 56;
            for (size_t i = whole; i < count; ++i) {
                word |= (uint64_t)bytes[i] << 8u * (i & 7u);
            }
        }
        v[3] ^= word;
        mix(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xFFu;
    mix(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
#endif
