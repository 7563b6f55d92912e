/* Internal to mtool: applications include mtool.h. */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a message authentication code of 64 bits. Only firmware with a link key
 * (mt_key.h) has it. */
#ifndef MT_SIPHASH_H
#define MT_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#include "mt_key.h"

#define MT_SIPHASH_KEY_BYTES 16u

#ifdef MT_LINK_KEY
extern const uint8_t mt_link_key[MT_SIPHASH_KEY_BYTES];

/* Return the code of `count` bytes under a key of MT_SIPHASH_KEY_BYTES. */
uint64_t mt_siphash(const uint8_t *key, const uint8_t *bytes, size_t count);
#endif

#endif
