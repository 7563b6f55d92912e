/* Bytecode's int8 pooling: one output pixel at a time, over the part of its window inside the image. */
#include "mt_bytecode_bounds.h"
#include "mt_dsp_window_int8.h"

#define MOST_COLUMNS 255 /* whose sum stays within 16 bits */

/* Whether every window along a dimension overlaps the image. */
static int meets(int32_t size, int32_t out, int32_t taps, int32_t stride, int32_t pad)
{
    return pad >= 0 && pad < taps && (out - 1) * stride - pad < size;
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(pool_int8, operands);
    uint32_t read, results;
    (void)count;
    if (!mt_bytecode_are_sizes(&call->height, 9) || call->kernel_width > MOST_COLUMNS ||
        !meets(call->height, call->out_height, call->kernel_height, call->stride_y, call->top) ||
        !meets(call->width, call->out_width, call->kernel_width, call->stride_x, call->left) || (call->sums & ~1))
        return 0;
    read = mt_bytecode_times((uint32_t)call->height * (uint32_t)call->width, (uint32_t)call->channels);
    results = mt_bytecode_times((uint32_t)call->out_height * (uint32_t)call->out_width, (uint32_t)call->channels);
    /* a sum has at most as many elements as the image has pixels, of 8 bits each */
    return (!call->sums || call->height * call->width < 1 << 23) && mt_bytecode_reads(module, call->input, read, 1) &&
           mt_bytecode_writes(module, call->output, mt_bytecode_times(results, call->sums ? 4 : 1), call->sums ? 4 : 1);
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(pool_int8, operands);
    const int8_t *input = mt_bytecode_at(module, arena, call->input);
    const int32_t pixel = call->channels, line = call->width * pixel;
    uint8_t *output = arena + call->output;
    (void)count;
    for (int32_t y = 0; y < call->out_height; ++y) {
        const int32_t top = y * call->stride_y - call->top, first = top < 0 ? 0 : top;
        const int32_t bottom = top + call->kernel_height < call->height ? top + call->kernel_height : call->height;
        for (int32_t x = 0; x < call->out_width; ++x) {
            const int32_t left = x * call->stride_x - call->left, start = left < 0 ? 0 : left;
            const int32_t right = left + call->kernel_width < call->width ? left + call->kernel_width : call->width;
            const int8_t *from = input + first * line + start * pixel;
            if (call->sums)
                mt_dsp_sum(from, (int32_t *)(void *)output, bottom - first, right - start, line, pixel, pixel);
            else
                mt_dsp_max(from, (int8_t *)output, bottom - first, right - start, line, pixel, pixel);
            output += call->sums ? 4 * pixel : pixel;
        }
    }
}

MT_BYTECODE_KERNEL(pool_int8);
