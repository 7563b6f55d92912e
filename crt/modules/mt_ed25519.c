/* Ed25519 with Monocypher's arithmetic and mtool's SHA-512. Monocypher is included here, so that the project's
 * warnings are off for it alone. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "../third_party/monocypher/monocypher.c"
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

#include "mt_ed25519.h"
#include "mt_sha512.h"

/* Whether an encoding is not a point, or a point whose order divides 8: anyone can sign for such a key. */
static int is_weak(const uint8_t encoded[32])
{
    ge point, scratch;
    fe neutral;
    if (ge_frombytes_neg_vartime(&point, encoded) != 0) {
        return 1;
    }
    for (int i = 0; i < 3; ++i) {
        ge_double(&point, &point, &scratch);
    }
    fe_0(neutral);
    return fe_isequal(point.X, neutral);
}

int mt_ed25519_is_right(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t *message,
                        uint32_t count)
{
    struct mt_sha512 sha;
    uint8_t hash[MT_SHA512_BYTES], reduced[32];
    if (is_weak(public_key) || is_weak(signature)) {
        return 0;
    }
    mt_sha512_begin(&sha);
    mt_sha512_add(&sha, signature, 32);
    mt_sha512_add(&sha, public_key, 32);
    mt_sha512_add(&sha, message, count);
    mt_sha512_end(&sha, hash);
    crypto_eddsa_reduce(reduced, hash);
    return crypto_eddsa_check_equation(signature, public_key, reduced) == 0;
}
