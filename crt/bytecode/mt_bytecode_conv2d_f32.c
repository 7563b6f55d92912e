/* Bytecode's float32 convolutions and dense layers, in plain C. */
#include <string.h>

#include "mt_bytecode_bounds.h"
#include "mt_float.h"
#include "mt_math.h"

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(conv2d_f32, operands);
    uint32_t read, results, weights;
    (void)count;
    if (!mt_bytecode_are_sizes(&call->images, 12) || !mt_bytecode_are_sizes(&call->dilation_y, 2) ||
        !mt_bytecode_is_pad(call->top) || !mt_bytecode_is_pad(call->left) || call->channels % call->group ||
        call->out_channels % call->group)
        return 0;
    read = mt_bytecode_times(mt_bytecode_times((uint32_t)call->height * (uint32_t)call->width, (uint32_t)call->channels),
                             4 * (uint32_t)call->images);
    results = mt_bytecode_times((uint32_t)call->out_height * (uint32_t)call->out_width, (uint32_t)call->out_channels);
    results = mt_bytecode_times(results, 4 * (uint32_t)call->images);
    weights = mt_bytecode_times((uint32_t)call->kernel_height * (uint32_t)call->kernel_width,
                                (uint32_t)(call->channels / call->group));
    weights = mt_bytecode_times(mt_bytecode_times(weights, (uint32_t)call->out_channels), 4);
    return mt_bytecode_reads(module, call->input, read, 4) && mt_bytecode_writes(module, call->output, results, 4) &&
           mt_bytecode_are_constants(module, call->weights, weights) &&
           mt_bytecode_are_constants(module, call->bias, 4 * (uint32_t)call->out_channels);
}

static float dot(const float *x, const float *w, int32_t count, float sum)
{
    MT_UNROLL(4)
    for (int32_t i = 0; i < count; ++i)
        sum = MT_FMA(x[i], w[i], sum);
    return sum;
}

/* One output of the patch whose first tap is at (top, left). */
static float output_of(const struct mt_bytecode_conv2d_f32 *call, const float *input, const float *w, float sum,
                       int32_t top, int32_t left)
{
    const int32_t depth = call->channels / call->group;
    for (int32_t ky = 0; ky < call->kernel_height; ++ky, top += call->dilation_y) {
        int32_t column = left;
        for (int32_t kx = 0; kx < call->kernel_width; ++kx, column += call->dilation_x, w += depth)
            if (top >= 0 && top < call->height && column >= 0 && column < call->width)
                sum = dot(input + (top * call->width + column) * call->channels, w, depth, sum);
    }
    return sum;
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(conv2d_f32, operands);
    const float *input = mt_bytecode_at(module, arena, call->input);
    const float *const weights = mt_bytecode_at(module, arena, call->weights);
    const float *const bias = mt_bytecode_at(module, arena, call->bias);
    const int32_t depth = call->channels / call->group, each = call->out_channels / call->group;
    const int32_t taps = call->kernel_height * call->kernel_width * depth;
    const float low = mt_f32_of_u32(call->low), high = mt_f32_of_u32(call->high);
    float *output = (float *)(void *)(arena + call->output);
    (void)count;
    for (int32_t image = 0; image < call->images; ++image, input += call->height * call->width * call->channels)
        for (int32_t y = 0; y < call->out_height; ++y)
            for (int32_t x = 0; x < call->out_width; ++x)
                for (int32_t c = 0; c < call->out_channels; ++c) {
                    const float sum = output_of(call, input + c / each * depth, weights + c * taps, bias[c],
                                                y * call->stride_y - call->top, x * call->stride_x - call->left);
                    *output++ = mt_min_f32(mt_max_f32(sum, low), high);
                }
}

MT_BYTECODE_KERNEL(conv2d_f32);
