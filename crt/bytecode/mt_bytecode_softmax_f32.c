/* Bytecode's float32 softmax; it may be computed in place. */
#include "mt_bytecode_bounds.h"
#include "mt_float.h"
#include "mt_math.h"

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(softmax_f32, operands);
    const uint32_t bytes = mt_bytecode_times((uint32_t)call->rows * (uint32_t)call->length, 4);
    (void)count;
    return mt_bytecode_are_sizes(&call->rows, 2) && mt_bytecode_reads(module, call->input, bytes, 4) &&
           mt_bytecode_writes(module, call->output, bytes, 4);
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(softmax_f32, operands);
    const float *row = mt_bytecode_at(module, arena, call->input);
    float *output = (float *)(void *)(arena + call->output);
    (void)count;
    for (int32_t m = 0; m < call->rows; ++m, row += call->length, output += call->length) {
        float top = row[0], sum = 0.0f;
        for (int32_t i = 1; i < call->length; ++i)
            top = mt_max_f32(top, row[i]);
        for (int32_t i = 0; i < call->length; ++i) {
            output[i] = expf(row[i] - top);
            sum += output[i];
        }
        for (int32_t i = 0; i < call->length; ++i)
            output[i] /= sum;
    }
}

MT_BYTECODE_KERNEL(softmax_f32);
