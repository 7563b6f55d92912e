/* Bytecode's int8 dense layers: eight outputs at a time. */
#include <string.h>

#include "mt_bytecode_bounds.h"
#include "mt_dsp_gemv_int8.h"

#define GROUP 8

MT_DSP_ROWS8_RANGE(rows8, 4, 8, 0, MT_EXACT_4, 1)

static uint32_t padded(const struct mt_bytecode_dense_int8 *call)
{
    return ((uint32_t)call->depth + 3) / 4 * 4;
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(dense_int8, operands);
    const uint32_t depth = padded(call), groups = ((uint32_t)call->outputs + GROUP - 1) / GROUP;
    const uint32_t each = GROUP * (depth / 4 + 3); /* words of a group */
    const uint32_t *words;
    (void)count;
    if (!mt_bytecode_are_sizes(&call->rows, 3) || !mt_bytecode_is_range(&call->range))
        return 0;
    if (!mt_bytecode_are_constants(module, call->weights, mt_bytecode_times(groups, 4 * each)) ||
        !mt_bytecode_is_scratch(module, call->scratch, GROUP + (call->depth % 4 ? depth : 0), call->input,
                                (uint32_t)call->rows * (uint32_t)call->depth, call->output,
                                (uint32_t)call->rows * (uint32_t)call->outputs))
        return 0;
    words = mt_bytecode_at(module, 0, call->weights);
    for (uint32_t group = 0; group < groups; ++group, words += each) {
        const uint32_t *const tail = words + each - 2 * GROUP;
        if (!mt_bytecode_are_pair(tail))
            return 0;
        for (uint32_t pair = 1; tail[0] && pair < GROUP / 2; ++pair)
            if (!mt_bytecode_is_offset(tail[4 * pair + 1]) || !mt_bytecode_is_offset(tail[4 * pair + 3]))
                return 0;
    }
    return 1;
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(dense_int8, operands);
    const struct mt_dsp_range range = MT_DSP_RANGE(call->range.zero_point, call->range.low, call->range.high);
    const int8_t *input = mt_bytecode_at(module, arena, call->input);
    int8_t *output = (int8_t *)arena + call->output, *const staging = (int8_t *)arena + call->scratch;
    const int32_t groups = call->outputs / GROUP, rest = call->outputs % GROUP, depth = (int32_t)padded(call);
    (void)count;
    for (int32_t row = 0; row < call->rows; ++row, input += call->depth, output += call->outputs) {
        const uint32_t *words = mt_bytecode_at(module, arena, call->weights);
        const int8_t *x = input;
        if (depth > call->depth) {
            int8_t *const filled = staging + GROUP;
            memcpy(filled, input, (size_t)call->depth);
            memset(filled + call->depth, 0, (size_t)(depth - call->depth));
            x = filled;
        }
        if (groups)
            words = rows8(x, x + depth, words, output, groups, &range);
        if (rest) {
            rows8(x, x + depth, words, staging, 1, &range);
            memcpy(output + groups * GROUP, staging, (size_t)rest);
        }
    }
}

MT_BYTECODE_KERNEL(dense_int8);
