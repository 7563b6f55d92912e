/* Internal to mtool: applications include mtool.h. */
/* Ed25519 signatures (RFC 8032): only what checks one. */
#ifndef MT_ED25519_H
#define MT_ED25519_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a signature of 64 bytes is that of a message, by the key whose public half is given. It takes about 2.5 KB of
 * stack. What it reads is public: its time may depend on it. */
int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
