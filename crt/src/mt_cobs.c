#include "mt_cobs.h"

#include "mtool.h"

size_t mt_cobs_encode(uint8_t *target, const uint8_t *source, size_t count)
{
    uint8_t *code = target; /* where the length of the current block goes */
    uint8_t *out = target + 1;
    for (size_t i = 0; i < count; ++i) {
        const uint8_t byte = source[i];
        if (byte != 0) {
            *out++ = byte;
        }
        /* A block of 254 bytes stands for no zero; one that ends the data needs no block after it. */
        if (byte == 0 || (out - code == 255 && i + 1 < count)) {
            *code = (uint8_t)(out - code);
            code = out++;
        }
    }
    *code = (uint8_t)(out - code);
    return (size_t)(out - target);
}

int32_t mt_cobs_decode(uint8_t *bytes, size_t count, size_t *decoded)
{
    uint8_t *out = bytes;
    const uint8_t *in = bytes;
    const uint8_t *const end = bytes + count;
    *decoded = 0;
    while (in < end) {
        const uint8_t code = *in++;
        if (code == 0 || (size_t)(end - in) < (size_t)code - 1u) {
            return MT_BAD_FRAME;
        }
        for (const uint8_t *block_end = in + (code - 1); in < block_end;) {
            *out++ = *in++;
        }
        if (code != 255 && in < end) {
            *out++ = 0;
        }
    }
    *decoded = (size_t)(out - bytes);
    return MT_OK;
}
