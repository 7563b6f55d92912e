/* Bytecode's int8 convolutions: patches become columns, three at a time, for the same tiles as in compiled models. */
#include <string.h>

#include "mt_bytecode_bounds.h"
#include "mt_dsp_tile_3x2_int8.h"

#define PIXELS 3

/* The assembly takes all registers but two: at -Os, GCC 12 finds none for its other values. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE_SIZE__)
#pragma GCC push_options
#pragma GCC optimize("O2")
#define WAS_SIZE
#endif
MT_DSP_COLUMNS_PLAIN(pairs_plain, 0, 4, 0, MT_EXACT_4)
MT_DSP_COLUMNS_RANGE(pairs_range, 0, 4, 0, MT_EXACT_4, 1)
MT_DSP_COLUMNS_RANGE(apart_range, 0, 4, 1, MT_EXACT_4, 1)
#ifdef WAS_SIZE
#pragma GCC pop_options
#endif

/* Where a tile's pixels go, and what they have in common. */
struct tile {
    const struct mt_bytecode_conv2d_int8 *call;
    const uint32_t *weights;
    int32_t *columns;
    int8_t *staging, *output;
    struct mt_dsp_range range;
    int32_t left; /* pixels that are not stored yet */
};

/* Whether a pixel can serve as a column without copying. */
static int is_pointwise(const struct mt_bytecode_conv2d_int8 *call)
{
    return call->kernel_height == 1 && call->kernel_width == 1 && call->stride_y == 1 && call->stride_x == 1 &&
           call->top == 0 && call->left == 0 && call->out_height == call->height && call->out_width == call->width &&
           call->depth == call->channels;
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(conv2d_int8, operands);
    const uint32_t depth = (uint32_t)call->depth, channels = (uint32_t)call->out_channels;
    const uint32_t pairs = (channels + 1) / 2, row = depth / 2 + 6;
    const uint32_t *words;
    uint32_t pixels, staged, results, read, written;
    if (!mt_bytecode_are_sizes(&call->height, 12) || !mt_bytecode_are_sizes(&call->stride_y, 2) ||
        !mt_bytecode_are_sizes(&call->dilation_y, 3) || !mt_bytecode_is_pad(call->top) ||
        !mt_bytecode_is_pad(call->left) || !mt_bytecode_is_int8(call->pad_value) || !mt_bytecode_is_range(&call->range))
        return 0;
    if (depth % 4 || depth < 8 || call->kernel_height * call->kernel_width > call->depth ||
        (int64_t)call->kernel_height * call->kernel_width * call->channels > call->depth)
        return 0;
    pixels = (uint32_t)call->out_height * (uint32_t)call->out_width;
    results = channels % 2 ? 3 * (channels + 1) : pixels % PIXELS ? channels : 0;
    staged = is_pointwise(call) || results > depth ? results : depth;
    read = mt_bytecode_span((uint32_t)call->height * (uint32_t)call->width, (uint32_t)call->pixel_step,
                            (uint32_t)call->channels);
    written = mt_bytecode_span(pixels, (uint32_t)call->out_step, channels);
    if (!mt_bytecode_are_constants(module, call->weights, mt_bytecode_times(pairs, 4 * row)) ||
        !mt_bytecode_is_scratch(module, call->scratch, 6 * depth + staged, call->input, read, call->output, written))
        return 0;
    (void)count;
    words = mt_bytecode_at(module, 0, call->weights);
    for (uint32_t pair = 0; pair < pairs; ++pair, words += row)
        if (!mt_bytecode_are_pair(words + row - 4))
            return 0;
    return 1;
}

/* All channels of up to three columns. */
static void store(struct tile *tile)
{
    const struct mt_bytecode_conv2d_int8 *const call = tile->call;
    const int32_t pairs = (call->out_channels + 1) / 2, odd = call->out_channels % 2;
    const int32_t full = call->range.low == -128 && call->range.high == 127;
    const int32_t *const end = tile->columns + PIXELS * call->depth / 2;
    int8_t *to[PIXELS];
    for (int32_t j = 0; j < PIXELS; ++j)
        to[j] = odd ? tile->staging + j * 2 * pairs
                    : j < tile->left ? tile->output + j * call->out_step : tile->staging;
    if (call->apart)
        apart_range(tile->columns, end, tile->weights, to[0], to[1], to[2], pairs, &tile->range);
    else if (full)
        pairs_plain(tile->columns, end, tile->weights, to[0], to[1], to[2], pairs);
    else
        pairs_range(tile->columns, end, tile->weights, to[0], to[1], to[2], pairs, &tile->range);
    for (int32_t j = 0; odd && j < PIXELS && j < tile->left; ++j)
        memcpy(tile->output + j * call->out_step, to[j], (size_t)call->out_channels);
    tile->output += PIXELS * call->out_step;
    tile->left -= PIXELS;
}

/* One row of a patch: the image's columns from `left` on. */
static int8_t *gather_row(const struct mt_bytecode_conv2d_int8 *call, const int8_t *row, int8_t *to, int32_t left)
{
    const int32_t channels = call->channels, taps = call->kernel_width;
    if (call->dilation_x == 1 && call->pixel_step == channels) {
        const int32_t before = left >= 0 ? 0 : -left < taps ? -left : taps;
        const int32_t inside = call->width - left;
        const int32_t until = inside < before ? before : inside < taps ? inside : taps;
        memset(to, call->pad_value, (size_t)(before * channels));
        if (until > before)
            memcpy(to + before * channels, row + (left + before) * channels, (size_t)((until - before) * channels));
        memset(to + until * channels, call->pad_value, (size_t)((taps - until) * channels));
        return to + taps * channels;
    }
    for (int32_t tap = 0; tap < taps; ++tap, left += call->dilation_x, to += channels)
        if (left < 0 || left >= call->width)
            memset(to, call->pad_value, (size_t)channels);
        else
            memcpy(to, row + left * call->pixel_step, (size_t)channels);
    return to;
}

/* Copy a few bytes, in words as long as possible; return their end. */
static int8_t *copy(int8_t *to, const int8_t *from, int32_t bytes)
{
    for (; bytes >= 4; bytes -= 4, to += 4, from += 4)
        memcpy(to, from, 4);
    while (bytes-- > 0)
        *to++ = *from++;
    return to;
}

/* The rows of a patch inside the image, with adjacent taps; rows are `line` apart. */
static void gather_inside(const struct tile *tile, const int8_t *from, int32_t *column, int32_t line)
{
    const struct mt_bytecode_conv2d_int8 *const call = tile->call;
    const int32_t row = call->kernel_width * call->channels;
    int8_t *to = tile->staging;
    if (row % 4 == 0 && row * call->kernel_height == call->depth) {
        for (int32_t ky = 0; ky < call->kernel_height; ++ky, from += line)
            column = mt_dsp_widen1(column, from, row / 4);
        return;
    }
    for (int32_t ky = 0; ky < call->kernel_height; ++ky, from += line)
        to = copy(to, from, row);
    while (to < tile->staging + call->depth)
        *to++ = 0;
    mt_dsp_widen1(column, tile->staging, call->depth / 4);
}

/* A patch as a column of int16. */
static void gather(const struct tile *tile, const int8_t *input, int32_t *column, int32_t top, int32_t left)
{
    const struct mt_bytecode_conv2d_int8 *const call = tile->call;
    const int32_t row = call->kernel_width * call->channels, line = call->width * call->pixel_step;
    int8_t *to = tile->staging;
    if (call->dilation_x == 1 && call->pixel_step == call->channels && left >= 0 &&
        left + call->kernel_width <= call->width && top >= 0 &&
        top + (call->kernel_height - 1) * call->dilation_y < call->height) {
        gather_inside(tile, input + top * line + left * call->channels, column, call->dilation_y * line);
        return;
    }
    for (int32_t ky = 0; ky < call->kernel_height; ++ky, top += call->dilation_y) {
        if (top >= 0 && top < call->height) {
            to = gather_row(call, input + top * line, to, left);
        } else {
            memset(to, call->pad_value, (size_t)row);
            to += row;
        }
    }
    memset(to, 0, (size_t)(tile->staging + call->depth - to));
    mt_dsp_widen1(column, tile->staging, call->depth / 4);
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(conv2d_int8, operands);
    const struct mt_dsp_range range = MT_DSP_RANGE(call->range.zero_point, call->range.low, call->range.high);
    const int8_t *input = mt_bytecode_at(module, arena, call->input);
    int32_t *const columns = (int32_t *)(void *)(arena + call->scratch);
    struct tile tile = {call, mt_bytecode_at(module, arena, call->weights), columns,
                        (int8_t *)(columns + PIXELS * call->depth / 2), (int8_t *)arena + call->output, range,
                        call->out_height * call->out_width};
    int32_t filled = 0;
    (void)count;
    if (is_pointwise(call)) {
        while (tile.left > 0) {
            const int32_t last = (tile.left < PIXELS ? tile.left : PIXELS) - 1;
            mt_dsp_widen3(columns, input, input + (last > 0 ? call->pixel_step : 0),
                          input + last * call->pixel_step, call->depth / 4);
            input += PIXELS * call->pixel_step;
            store(&tile);
        }
        return;
    }
    for (int32_t y = 0; y < call->out_height; ++y)
        for (int32_t x = 0; x < call->out_width; ++x) {
            gather(&tile, input, columns + filled, y * call->stride_y - call->top, x * call->stride_x - call->left);
            if (++filled < PIXELS)
                continue;
            filled = 0;
            store(&tile);
        }
    if (filled)
        store(&tile);
}

MT_BYTECODE_KERNEL(conv2d_int8);
