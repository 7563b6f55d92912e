#include "mtool.h"

#include <stddef.h>

#include "mt_protocol.h"

const struct mt_model *mt_model_at(const struct mt_model *first, uint8_t index)
{
    for (; first != NULL && index > 0; --index) {
        first = first->next;
    }
    return first;
}

int32_t mt_model_find(const struct mt_model *model, uint8_t kind, uint8_t index, uint32_t offset, uint32_t length,
                      uint8_t **bytes)
{
    struct mt_tensor tensor = {model->arena, model->arena_bytes};
    if (kind == MT_INPUTS && index < model->input_count) {
        tensor = model->inputs[index];
    } else if (kind == MT_OUTPUTS && index < model->output_count) {
        tensor = model->outputs[index];
    } else if (kind == MT_ARENA_BYTES && index > 0 && index <= model->pool_count) {
        tensor = model->pools[index - 1];
    } else if (kind != MT_ARENA_BYTES || index != 0 || model->arena == NULL) {
        return MT_BAD_INDEX;
    }
    if (offset > tensor.bytes || length > tensor.bytes - offset) {
        return MT_BAD_RANGE;
    }
    if (length > 0) { /* an empty tensor may have no address */
        *bytes = (uint8_t *)tensor.data + (size_t)offset;
    }
    return MT_OK;
}
