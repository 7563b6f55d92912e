/* Whatever delta arrives, its decoder reads only the old bytes and keeps only its own: each step, from every state. */
#include "../modules/mt_delta.c"

#include "mt_prove.h"

#define OLD 20u

static uint8_t old[OLD];
static struct mt_delta delta;

static int32_t sink(void *context, const uint8_t *piece, uint32_t count)
{
    (void)context;
    use_bytes(piece, count);
    return (int32_t)any(0, 31);
}

/* Begin in any state of this part of a delta. */
static void begin_at(uint8_t part, uint8_t kind)
{
    mt_delta_begin(&delta, old, OLD, any(0, UINT32_MAX), sink, NULL);
    any_bytes(delta.model, sizeof delta.model);
    any_bytes(delta.piece, sizeof delta.piece);
    delta.part = part;
    delta.kind = kind;
    delta.is_given = (uint8_t)any(0, 1);
    delta.left = any(1, UINT32_MAX);
    delta.range = any(0, UINT32_MAX);
    delta.code = any(0, UINT32_MAX);
    delta.value = any(1, 0xFFFFFFu);
    delta.shift = any(0, UINT32_MAX);
    delta.run = any(1, UINT32_MAX);
    delta.last = (uint8_t)any(0, 255);
    delta.before = (uint8_t)any(0, 255);
    delta.gathered = (uint16_t)any(0, MT_DELTA_PIECE - 1u);
    if (kind < DIFFERENCE) {
        delta.first = OF_RUN;
    } else if (kind == DIFFERENCE) {
        delta.first = (uint8_t)(OF_DIFFERENCE + 7u * any(0, 4));
    } else {
        delta.first = (uint8_t)(OF_GIVEN + 7u * any(0, 1));
    }
}

int main(void)
{
    any_bytes(old, sizeof old);
    for (uint8_t bits = 0; bits < MT_DELTA_HEADER; ++bits) {
        begin_at(HEADER, RUN);
        delta.bits = bits;
        (void)begin_with(&delta, (uint8_t)any(0, 255));
    }
    begin_at(CODE, RUN);
    delta.bits = (uint8_t)any(0, 3);
    (void)begin_with(&delta, (uint8_t)any(0, 255));
    for (uint8_t kind = RUN; kind <= GIVEN; ++kind) {
        for (uint8_t part = IS_GIVEN; part <= SIGN; ++part) {
            begin_at(part, kind);
            delta.bits = (uint8_t)any(part == BITS, MOST_BITS(kind) - (part != BITS));
            delta.bits_left = (uint8_t)any(1, MOST_BITS(kind));
            (void)step(&delta);
        }
    }
    begin_at(ALL, RUN);
    delta.gathered = (uint16_t)any(0, MT_DELTA_PIECE);
    (void)give_away(&delta);
    (void)mt_delta_end(&delta);
    return 0;
}
