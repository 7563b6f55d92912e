/* Internal to mtool: applications include mtool.h. */
/* Ed25519 signatures (RFC 8032): verification only. */
#ifndef MT_ED25519_H
#define MT_ED25519_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a 64-byte signature of a message is valid for a public key. Takes about 2.5 KB of stack. All inputs are
 * public: its time may depend on them. */
int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count);

#ifdef __cplusplus
}
#endif

#endif
