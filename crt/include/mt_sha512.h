/* Internal to mtool: applications include mtool.h. */
/* SHA-512 (FIPS 180-4), a piece at a time. */
#ifndef MT_SHA512_H
#define MT_SHA512_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_SHA512_BYTES 64u

struct mt_sha512 {
    uint64_t state[8];
    uint32_t bytes;     /* so far; messages have less than 2^32 */
    uint8_t block[128];
};

void mt_sha512_begin(struct mt_sha512 *sha);
void mt_sha512_add(struct mt_sha512 *sha, const uint8_t *bytes, uint32_t count);
void mt_sha512_end(struct mt_sha512 *sha, uint8_t hash[MT_SHA512_BYTES]);

#ifdef __cplusplus
}
#endif

#endif
