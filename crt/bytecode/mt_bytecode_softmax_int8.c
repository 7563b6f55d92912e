/* Bytecode's int8 softmax. */
#include "mt_bytecode_bounds.h"

#define TABLE 256

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(softmax_int8, operands);
    const uint32_t elements = (uint32_t)call->rows * (uint32_t)call->length;
    (void)count;
    return mt_bytecode_are_sizes(&call->rows, 2) && mt_bytecode_reads(module, call->input, elements, 1) &&
           mt_bytecode_are_constants(module, call->exponentials, 4 * TABLE) &&
           mt_bytecode_writes(module, call->output, mt_bytecode_times(elements, 4), 4) &&
           /* the row must be unchanged since its largest element was found: the table's index ends there */
           mt_bytecode_are_apart(call->input, elements, call->output, mt_bytecode_times(elements, 4));
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(softmax_int8, operands);
    const int8_t *row = mt_bytecode_at(module, arena, call->input);
    const float *const last = (const float *)mt_bytecode_at(module, arena, call->exponentials) + TABLE - 1;
    float *output = (float *)(void *)(arena + call->output);
    (void)count;
    for (int32_t m = 0; m < call->rows; ++m, row += call->length, output += call->length) {
        int8_t top = row[0];
        float sum = 0.0f;
        for (int32_t i = 1; i < call->length; ++i)
            top = row[i] > top ? row[i] : top;
        for (int32_t i = 0; i < call->length; ++i)
            sum += last[row[i] - top];
        for (int32_t i = 0; i < call->length; ++i)
            output[i] = last[row[i] - top] / sum;
    }
}

MT_BYTECODE_KERNEL(softmax_int8);
