/* Internal to mtool: applications include mtool.h. */
/* New bytes from old ones and a delta between them, as mtool makes it: a module that differs little from the one that is
 * there arrives as few bytes. The delta comes in pieces of any size, the old bytes are read where they lie, and the new
 * ones are given to a function in their order, so that they never lie in RAM.
 *
 *     mt_delta_begin(&delta, old, old_bytes, room, write, &slot);
 *     mt_delta_take(&delta, bytes, count);   for each piece, until all are there or one is refused
 *     mt_delta_end(&delta);
 *
 * A delta is not to be trusted: nothing outside of the old bytes is read, and no more new bytes are given away than
 * there is room for; what no encoder makes is refused, or makes other bytes. Check them before they are used.
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
#define MT_DELTA_PIECE 64u    /* new bytes that are given away at once; 16 to 65535 */
#endif

/* Take the next `count` of the new bytes, 1 to MT_DELTA_PIECE. What it returns ends the decoding unless it is MT_OK. */
typedef int32_t mt_delta_sink(void *context, const uint8_t *bytes, uint32_t count);

/* The decoder's own: about 240 bytes and MT_DELTA_PIECE. */
struct mt_delta {
    const uint8_t *old;
    mt_delta_sink *sink;
    void *context;
    uint32_t old_bytes;
    uint32_t new_bytes;  /* of the header; before it is there, how many there is room for */
    uint32_t left;       /* of the new bytes */
    int32_t status;      /* the first that was not MT_OK: all that comes after it is refused */
    uint32_t range;      /* of the range decoder */
    uint32_t code;
    uint32_t value;      /* of the number that is decoded */
    uint32_t shift;      /* from a byte's place among the new ones to its place among the old ones, modulo 2^32 */
    uint32_t run;        /* the operation's bytes that are left */
    uint16_t model[MT_DELTA_MODELS]; /* how likely a decision is 0, in 65536ths */
    uint16_t gathered;   /* new bytes in `piece` */
    uint8_t part;        /* of the delta, as those below: what is decoded */
    uint8_t kind;
    uint8_t is_given;
    uint8_t first;       /* model of the number's length */
    uint8_t bits;        /* of the number, below its highest; or bytes of the header or the code that have come */
    uint8_t bits_left;
    uint8_t last;        /* the sizes of the two differences before */
    uint8_t before;
    uint8_t piece[MT_DELTA_PIECE]; /* the header, while it comes; then new bytes */
};

/* Begin. `old` stays as it is until the end; the sink takes at most `room` bytes. */
void mt_delta_begin(struct mt_delta *delta, const uint8_t *old, uint32_t old_bytes, uint32_t room, mt_delta_sink *sink,
                    void *context);

/* Take the next `count` bytes of the delta, 0 or more; the sink gets all new bytes that follow from them.
 * MT_BAD_DELTA: it is malformed, of other old bytes, or of more new ones than there is room for. Else as the sink. */
int32_t mt_delta_take(struct mt_delta *delta, const uint8_t *bytes, uint32_t count);

/* Say whether all of the delta has come, and with it all of the new bytes. MT_BAD_DELTA: no. Else as mt_delta_take. */
int32_t mt_delta_end(const struct mt_delta *delta);

#ifdef __cplusplus
}
#endif

#endif
