/* The decisions describe one operation after another, until all new bytes are complete:
 *
 *     1 decision                   whether the operation has the bytes themselves, or differences from old bytes
 *     for differences              the change of the shift between new and old places: a number and a sign
 *     a number                     the count of bytes
 *     for each a number, a sign    the difference, or the byte itself, from -128 to 127 (modulo 256)
 *
 * A number is coded as Elias' gamma code of one more than its size: the count of bits below the highest in unary
 * (which needs no end mark at the largest possible count), then these bits, the highest first. A byte count is not
 * 0, and is coded without the addition. A 0 has no sign. The probability of a decision is learned from those before
 * it; for the lengths of differences, from those that followed differences of similar size. */
#include "mt_delta.h"

#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mtool.h"

#if MT_DELTA_PIECE < 16 || MT_DELTA_PIECE > 65535
#error "MT_DELTA_PIECE: 16 to 65535"
#endif

enum { HEADER, CODE, IS_GIVEN, LENGTH, BITS, SIGN, ALL };
enum { RUN, JUMP, DIFFERENCE, GIVEN };

#define MOST_BITS(kind) ((kind) < DIFFERENCE ? 23u : 7u)

/* The models' indices. */
#define OF_SIGN 0u                  /* by the kind of number; that of RUN, which has no sign, is used for IS_GIVEN */
#define OF_RUN 4u                   /* and for JUMP */
#define OF_DIFFERENCE (OF_RUN + 23u)
#define OF_GIVEN (OF_DIFFERENCE + 5u * 7u)
#define OF_HIGHEST (OF_GIVEN + 2u * 7u) /* the first bit of DIFFERENCE and GIVEN, by the count of bits */

#if OF_HIGHEST + 2u * 8u != MT_DELTA_MODELS
#error "MT_DELTA_MODELS is how many models there are"
#endif

#define EVEN 0x8000u
#define LEAST_RANGE 0x1000000u
#define RATE 5

void mt_delta_begin(struct mt_delta *delta, const uint8_t *old, uint32_t old_bytes, uint32_t room, mt_delta_sink *sink,
                    void *context)
{
    memset(delta, 0, sizeof *delta);
    delta->old = old;
    delta->old_bytes = old_bytes;
    delta->new_bytes = room;
    delta->sink = sink;
    delta->context = context;
    delta->range = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < MT_DELTA_MODELS; ++i) {
        delta->model[i] = EVEN;
    }
}

/* Take a byte before the first decision. */
static int32_t begin_with(struct mt_delta *delta, uint8_t byte)
{
    if (delta->part == CODE) {
        delta->code = delta->code << 8 | byte;
        if (++delta->bits == 4) {
            delta->part = IS_GIVEN;
        }
        return MT_OK;
    }
    delta->piece[delta->bits++] = byte;
    if (delta->bits < MT_DELTA_HEADER) {
        return MT_OK;
    }
    const uint32_t room = delta->new_bytes;
    delta->new_bytes = delta->left = mt_get_u32(delta->piece + 8);
    delta->bits = 0;
    delta->part = delta->left == 0 ? ALL : CODE;
    return memcmp(delta->piece, "MTD1", 4) == 0 && mt_get_u32(delta->piece + 4) == delta->old_bytes &&
                   delta->left <= room && mt_get_u32(delta->piece + 12) == mt_crc32(delta->old, (size_t)delta->old_bytes)
               ? MT_OK
               : MT_BAD_DELTA;
}

static uint8_t decide(struct mt_delta *delta, uint16_t *model)
{
    const uint32_t bound = (delta->range >> 16) * *model;
    if (delta->code < bound) {
        delta->range = bound;
        *model = (uint16_t)(*model + ((0x10000u - *model) >> RATE));
        return 0;
    }
    delta->code -= bound;
    delta->range -= bound;
    *model = (uint16_t)(*model - (*model >> RATE));
    return 1;
}

static void begin_number(struct mt_delta *delta, uint8_t kind)
{
    const uint32_t around = 2u * delta->last + delta->before;
    uint32_t first = OF_RUN;
    if (kind == DIFFERENCE) {
        first = OF_DIFFERENCE + 7u * (around < 2 ? around : around < 4 ? 2u : around < 8 ? 3u : 4u);
    } else if (kind == GIVEN) {
        first = OF_GIVEN + (around < 64 ? 0u : 7u);
    }
    delta->first = (uint8_t)first;
    delta->kind = kind;
    delta->bits = 0;
    delta->value = 1;
    delta->part = LENGTH;
}

static int32_t give_away(struct mt_delta *delta)
{
    const uint32_t count = delta->gathered;
    delta->gathered = 0;
    return count == 0 ? MT_OK : delta->sink(delta->context, delta->piece, count);
}

static int32_t put(struct mt_delta *delta, uint32_t byte)
{
    if (delta->kind == DIFFERENCE) {
        const uint32_t place = delta->new_bytes - delta->left + delta->shift;
        if (place >= delta->old_bytes) {
            return MT_BAD_DELTA;
        }
        byte += delta->old[place];
    }
    delta->piece[delta->gathered++] = (uint8_t)byte;
    --delta->left;
    if (--delta->run > 0) {
        begin_number(delta, delta->kind);
    } else {
        delta->part = delta->left == 0 ? ALL : IS_GIVEN;
    }
    return delta->gathered == MT_DELTA_PIECE ? give_away(delta) : MT_OK;
}

/* A number is complete, with its sign if it has one. */
static int32_t end_number(struct mt_delta *delta, uint8_t is_negative)
{
    const uint32_t size = delta->value - 1;
    const uint32_t number = is_negative ? 0u - size : size;
    if (delta->kind == JUMP) {
        delta->shift += number;
        begin_number(delta, RUN);
        return MT_OK;
    }
    if (delta->kind != RUN) {
        delta->before = delta->last;
        delta->last = (uint8_t)size;
        return put(delta, number);
    }
    delta->run = delta->value;
    delta->last = delta->before = 0;
    begin_number(delta, delta->is_given ? GIVEN : DIFFERENCE);
    return delta->run <= delta->left ? MT_OK : MT_BAD_DELTA;
}

/* The number is complete, or one more of its bits follows. */
static int32_t next_bit(struct mt_delta *delta)
{
    if (delta->bits_left > 0) {
        delta->part = BITS;
        return MT_OK;
    }
    if (delta->kind != RUN && delta->value > 1) {
        delta->part = SIGN;
        return MT_OK;
    }
    return end_number(delta, 0);
}

/* Take the next decision, and act on it. */
static int32_t step(struct mt_delta *delta)
{
    uint16_t even = EVEN, *model = &even;
    switch (delta->part) {
    case IS_GIVEN:
        delta->is_given = decide(delta, &delta->model[OF_SIGN + RUN]);
        begin_number(delta, delta->is_given ? RUN : JUMP);
        return MT_OK;
    case LENGTH:
        if (decide(delta, &delta->model[delta->first + delta->bits]) && ++delta->bits < MOST_BITS(delta->kind)) {
            return MT_OK;
        }
        delta->bits_left = delta->bits;
        return next_bit(delta);
    case BITS:
        if (delta->kind >= DIFFERENCE && delta->bits_left == delta->bits) {
            model = &delta->model[OF_HIGHEST + (delta->kind == GIVEN ? 8u : 0u) + delta->bits];
        }
        delta->value = delta->value << 1 | decide(delta, model);
        --delta->bits_left;
        return next_bit(delta);
    default:
        return end_number(delta, decide(delta, &delta->model[OF_SIGN + delta->kind]));
    }
}

int32_t mt_delta_take(struct mt_delta *delta, const uint8_t *bytes, uint32_t count)
{
    const uint8_t *const end = bytes + count;
    while (delta->status == MT_OK) {
        if (delta->part != HEADER && delta->part != CODE && delta->part != ALL && delta->range >= LEAST_RANGE) {
            delta->status = step(delta);
        } else if (bytes == end) {
            delta->status = give_away(delta);
            break;
        } else if (delta->part == ALL) {
            delta->status = MT_BAD_DELTA;
        } else if (delta->part <= CODE) {
            delta->status = begin_with(delta, *bytes++);
        } else {
            delta->range <<= 8;
            delta->code = delta->code << 8 | *bytes++;
        }
    }
    return delta->status;
}

int32_t mt_delta_end(const struct mt_delta *delta)
{
    return delta->status == MT_OK && delta->part != ALL ? MT_BAD_DELTA : delta->status;
}
