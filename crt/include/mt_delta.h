/* Internal to mtool: applications include mtool.h. */
/* Decode a delta from old bytes to new ones: a module that differs little from the stored one is
 * sent as few bytes. The delta comes in pieces of any size, the old bytes are read in place, and the new
 * ones are passed to a function in order, so they are never in RAM as a whole.
 *
 *     mt_delta_begin(&delta, old, old_bytes, room, write, &slot);
 *     mt_delta_take(&delta, bytes, count);   for each piece, until the last one or an error
 *     mt_delta_end(&delta);
 *
 * The delta need not be trusted: nothing outside of the old bytes is read, and no more new bytes are written than
 * fit; an invalid delta is refused, or produces wrong bytes. Check them before use.
 *
 * The bytes of a delta are a header ("MTD1", the number of old bytes, of new bytes, and the CRC-32 of the old ones, each
 * 4 bytes, the lowest first) and a stream of binary decisions of a range coder with adaptive probabilities, as LZMA's.
 * mt_delta.c describes them; mtool/manifest/delta.py makes them. */
#ifndef MT_DELTA_H
#define MT_DELTA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_DELTA_HEADER 16u   /* bytes */
#define MT_DELTA_MODELS 92u   /* probabilities */
#ifndef MT_DELTA_PIECE
#define MT_DELTA_PIECE 64u    /* new bytes that are passed on at once; 16 to 65535 */
#endif

/* Receive the next `count` new bytes, 1 to MT_DELTA_PIECE. A status other than MT_OK ends the decoding. */
typedef int32_t mt_delta_sink(void *context, const uint8_t *bytes, uint32_t count);

/* The decoder's state: about 240 bytes and MT_DELTA_PIECE. */
struct mt_delta {
    const uint8_t *old;
    mt_delta_sink *sink;
    void *context;
    uint32_t old_bytes;
    uint32_t new_bytes;  /* from the header; before it has arrived, the capacity */
    uint32_t left;       /* the remaining new bytes */
    int32_t status;      /* the first error: everything after it is refused */
    uint32_t range;      /* of the range decoder */
    uint32_t code;
    uint32_t value;      /* of the current number */
    uint32_t shift;      /* from a byte's place among the new ones to its place among the old ones, modulo 2^32 */
    uint32_t run;        /* the operation's remaining bytes */
    uint16_t model[MT_DELTA_MODELS]; /* the probability of 0, in 65536ths */
    uint16_t gathered;   /* new bytes in `piece` */
    uint8_t part;        /* the current part of the delta, as the fields below */
    uint8_t kind;
    uint8_t is_given;
    uint8_t first;       /* model of the number's length */
    uint8_t bits;        /* of the number, below its highest; or received bytes of the header or the code */
    uint8_t bits_left;
    uint8_t last;        /* the sizes of the two previous differences */
    uint8_t before;
    uint8_t piece[MT_DELTA_PIECE]; /* the header, while it arrives; then new bytes */
};

/* Begin. `old` must not change until the end; the sink accepts at most `room` bytes. */
/*@ requires \valid(delta) && \valid_read(old + (0 .. old_bytes - 1)); */
void mt_delta_begin(struct mt_delta *delta, const uint8_t *old, uint32_t old_bytes, uint32_t room, mt_delta_sink *sink,
                    void *context);

/* Decode the next `count` bytes of the delta, 0 or more; the sink receives all new bytes that follow from them.
 * MT_BAD_DELTA: it is malformed, starts from other old bytes, or has more new bytes than fit. Others: the sink's. */
/*@ requires \valid(delta) && \valid_read(bytes + (0 .. count - 1)); */
int32_t mt_delta_take(struct mt_delta *delta, const uint8_t *bytes, uint32_t count);

/* Check that the delta and the new bytes are complete. MT_BAD_DELTA: they are not. Others: as for mt_delta_take. */
int32_t mt_delta_end(const struct mt_delta *delta);

#ifdef __cplusplus
}
#endif

#endif
