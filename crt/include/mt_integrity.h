/* Internal to mtool: applications include <model>.h. */
/* What a model that is compiled with --guard checks around each run: its constants, the bytes beside its arena, and that
 * all its operators ran, in order (docs/guard.md). */
#ifndef MT_INTEGRITY_H
#define MT_INTEGRITY_H

#include <stdint.h>

struct mt_integrity_constant {
    const void *bytes;
    uint32_t count;
};

/* What changes: zero at the start. */
struct mt_integrity_state {
    volatile uint32_t flow; /* the operators that have run */
    uint32_t sum;           /* of the constants before the place below */
    uint32_t offset;        /* the next byte to check, and its constant */
    uint16_t constant;
    uint8_t is_marked;      /* the bytes beside the arena have been written */
    uint8_t is_checked;     /* all constants were right once, and no error since */
};

struct mt_integrity {
    struct mt_integrity_state *state;
    const struct mt_integrity_constant *constants;
    uint16_t count;
    uint16_t margin;     /* bytes on each side of the arena, a multiple of 4 */
    uint32_t part;       /* bytes of constants that each run checks */
    uint32_t sum, flow;  /* the right ones */
    uint32_t *arena;     /* with its margins; NULL: there is none */
    uint32_t arena_bytes;
};

/* Check the next part of the constants, and the arena; the first time, all constants.
 * MT_BAD_CONSTANT, MT_BAD_ARENA. After an error, the next run checks everything again. */
int32_t mt_integrity_begin(const struct mt_integrity *model);

/* Note that an operator runs; return 1. */
static inline int mt_integrity_flow(struct mt_integrity_state *state, uint32_t number)
{
    state->flow = state->flow * 33u + number + 1u;
    return 1;
}

/* Check the arena and the operators that ran. MT_BAD_ARENA, MT_BAD_FLOW. */
int32_t mt_integrity_end(const struct mt_integrity *model);

/* Check all constants and the arena, at any time between two runs. MT_BAD_CONSTANT, MT_BAD_ARENA. */
int32_t mt_integrity_check(const struct mt_integrity *model);

#endif
