/* Internal to mtool: applications include mtool.h. */
/* Consistent Overhead Byte Stuffing (Cheshire and Baker, 1999): encodes bytes without zeros, so that a zero ends a
 * frame. Both directions work in place. */
#ifndef MT_COBS_H
#define MT_COBS_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes that encoding adds to `count` bytes. */
#define MT_COBS_OVERHEAD(count) ((count) / 254u + 1u)

/* Encode the `count` bytes at `source` to `target` and return the encoded size. They may overlap if `source` lies at
 * least MT_COBS_OVERHEAD(count) bytes above `target`. */
/*@ requires \valid_read(source + (0 .. count - 1));
    requires \valid(target + (0 .. count + count / 254)); */
size_t mt_cobs_encode(uint8_t *target, const uint8_t *source, size_t count);

/* Decode `count` bytes, none of them 0, in place; *decoded is the size of the result, less than `count`.
 * MT_BAD_FRAME: they are not an encoder's output. */
/*@ requires \valid(bytes + (0 .. count - 1)) && \valid(decoded); */
int32_t mt_cobs_decode(uint8_t *bytes, size_t count, size_t *decoded);

#endif
