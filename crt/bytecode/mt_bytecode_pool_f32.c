/* Bytecode's float32 pooling, over the part of a window inside the image. */
#include "mt_bytecode_bounds.h"
#include "mt_math.h"

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(pool_f32, operands);
    uint32_t read, results;
    (void)count;
    if (!mt_bytecode_are_sizes(&call->height, 9) || call->top < 0 || call->top >= call->kernel_height ||
        call->left < 0 || call->left >= call->kernel_width ||
        (call->out_height - 1) * call->stride_y - call->top >= call->height ||
        (call->out_width - 1) * call->stride_x - call->left >= call->width)
        return 0;
    read = mt_bytecode_times((uint32_t)call->height * (uint32_t)call->width, 4 * (uint32_t)call->channels);
    results = mt_bytecode_times((uint32_t)call->out_height * (uint32_t)call->out_width, 4 * (uint32_t)call->channels);
    return mt_bytecode_reads(module, call->input, read, 4) && mt_bytecode_writes(module, call->output, results, 4);
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(pool_f32, operands);
    const float *const input = mt_bytecode_at(module, arena, call->input);
    float *output = (float *)(void *)(arena + call->output);
    (void)count;
    for (int32_t y = 0; y < call->out_height; ++y)
        for (int32_t x = 0; x < call->out_width; ++x) {
            const int32_t top = y * call->stride_y - call->top, left = x * call->stride_x - call->left;
            const int32_t first = top < 0 ? 0 : top, start = left < 0 ? 0 : left;
            const int32_t bottom = least(top + call->kernel_height, call->height);
            const int32_t right = least(left + call->kernel_width, call->width);
            for (int32_t c = 0; c < call->channels; ++c) {
                float result = call->mean ? 0.0f : input[(first * call->width + start) * call->channels + c];
                for (int32_t row = first; row < bottom; ++row)
                    for (int32_t column = start; column < right; ++column) {
                        const float value = input[(row * call->width + column) * call->channels + c];
                        result = call->mean ? result + value : mt_max_f32(result, value);
                    }
                *output++ = call->mean ? result / (float)((bottom - first) * (right - start)) : result;
            }
        }
}

MT_BYTECODE_KERNEL(pool_f32);
