#include "mt_cobs.h"

#include "mtool.h"

size_t mt_cobs_encode(uint8_t *target, const uint8_t *source, size_t count)
{
    size_t code = 0; /* where the length of the current block goes */
    size_t out = 1;
    for (size_t i = 0; i < count; ++i) {
        const uint8_t byte = source[i];
        if (byte != 0) {
            target[out++] = byte;
            if (out - code < 255 || i + 1 == count) {
                continue;
            } /* a block of 254 bytes stands for no zero; one that ends the data needs no block after it */
        }
        target[code] = (uint8_t)(out - code);
        code = out++;
    }
    target[code] = (uint8_t)(out - code);
    return out;
}

int32_t mt_cobs_decode(uint8_t *bytes, size_t count, size_t *decoded)
{
    uint8_t code = 255; /* of the current block; one of 254 bytes stands for no zero */
    uint8_t left = 0;   /* its bytes that follow */
    size_t out = 0;
    *decoded = 0;
    for (size_t in = 0; in < count; ++in) {
        if (left > 0) {
            bytes[out++] = bytes[in];
            --left;
            continue;
        }
        if (code != 255) {
            bytes[out++] = 0; /* between two blocks */
        }
        code = bytes[in];
        if (code == 0) {
            return MT_BAD_FRAME;
        }
        left = (uint8_t)(code - 1u);
    }
    if (left > 0) {
        return MT_BAD_FRAME;
    }
    *decoded = out;
    return MT_OK;
}
