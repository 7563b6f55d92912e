/* Bytecode's sums of two int8 tensors, each multiplied by a number. */
#include "mt_bytecode_bounds.h"
#include "mt_math.h"

static uint32_t magnitude(int32_t value)
{
    return value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(add_int8, operands);
    const uint32_t factors = mt_bytecode_plus(magnitude(call->left_factor), magnitude(call->right_factor));
    uint32_t most = mt_bytecode_plus(mt_bytecode_times(128, factors), magnitude(call->offset));
    (void)count;
    if (call->count < 1 || call->shift < 1 || call->shift > 30 || !mt_bytecode_is_range(&call->range))
        return 0;
    most = mt_bytecode_plus(most, UINT32_C(1) << call->shift); /* for rounding */
    return most < UINT32_C(0x80000000) && mt_bytecode_reads(module, call->left, (uint32_t)call->count, 1) &&
           mt_bytecode_reads(module, call->right, (uint32_t)call->count, 1) &&
           mt_bytecode_writes(module, call->output, (uint32_t)call->count, 1);
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(add_int8, operands);
    const int8_t *a = mt_bytecode_at(module, arena, call->left), *b = mt_bytecode_at(module, arena, call->right);
    const int32_t left = call->left_factor, right = call->right_factor, offset = call->offset, shift = call->shift;
    const int32_t low = call->range.low, high = call->range.high, elements = call->count;
    int8_t *const output = (int8_t *)arena + call->output;
    (void)count;
    if (call->even) {
        for (int32_t i = 0; i < elements; ++i) {
            const int32_t steps = mt_shift_even(a[i] * left + b[i] * right + offset, shift);
            output[i] = (int8_t)mt_clamp(steps + call->range.zero_point, low, high);
        }
        return;
    }
    for (int32_t i = 0; i < elements; ++i)
        output[i] = (int8_t)mt_clamp((a[i] * left + b[i] * right + offset) >> shift, low, high);
}

MT_BYTECODE_KERNEL(add_int8);
