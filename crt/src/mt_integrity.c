#include "mt_integrity.h"

#include "mt_crc32.h"
#include "mtool.h"

#define MARK 0x5AC3A53Cu

/* Add the next part of the constants to the sum, which is compared at their end. */
static int32_t check_part(const struct mt_integrity *model, struct mt_integrity_state *at)
{
    for (uint32_t left = model->part; left > 0 && at->constant < model->count;) {
        const struct mt_integrity_constant *const one = &model->constants[at->constant];
        const uint32_t rest = at->offset < one->count ? one->count - at->offset : 0;
        const uint32_t count = rest < left ? rest : left;
        at->sum = (at->sum << 1 | at->sum >> 31) ^ mt_crc32((const uint8_t *)one->bytes + at->offset, (size_t)count);
        at->offset += count;
        left -= count;
        if (count == rest) {
            at->offset = 0;
            ++at->constant;
        }
    }
    if (at->constant < model->count) {
        return MT_OK;
    }
    const int32_t status = at->sum == model->sum ? MT_OK : MT_BAD_CONSTANT;
    at->sum = 0;
    at->constant = 0;
    return status;
}

static int32_t check_arena(const struct mt_integrity *model)
{
    if (model->arena == NULL) {
        return MT_OK;
    }
    const uint32_t words = model->margin / 4u;
    uint32_t *const after = model->arena + words + (model->arena_bytes + 3u) / 4u;
    const int is_marked = model->state->is_marked;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < words; ++i) {
        if (!is_marked) {
            model->arena[i] = after[i] = MARK;
        }
        wrong |= (model->arena[i] ^ MARK) | (after[i] ^ MARK);
    }
    model->state->is_marked = 1;
    return wrong == 0 ? MT_OK : MT_BAD_ARENA;
}

int32_t mt_integrity_check(const struct mt_integrity *model)
{
    struct mt_integrity_state at = {0, 0, 0, 0, 0, 0};
    int32_t status = check_arena(model);
    do {
        status = status == MT_OK ? check_part(model, &at) : status;
    } while (status == MT_OK && (at.constant != 0 || at.offset != 0));
    model->state->is_checked = status == MT_OK;
    return status;
}

int32_t mt_integrity_begin(const struct mt_integrity *model)
{
    struct mt_integrity_state *const state = model->state;
    state->flow = 0;
    if (!state->is_checked) {
        return mt_integrity_check(model);
    }
    int32_t status = check_arena(model);
    status = status == MT_OK ? check_part(model, state) : status;
    state->is_checked = status == MT_OK;
    return status;
}

int32_t mt_integrity_end(const struct mt_integrity *model)
{
    const int32_t status = check_arena(model);
    return status == MT_OK && model->state->flow != model->flow ? MT_BAD_FLOW : status;
}
