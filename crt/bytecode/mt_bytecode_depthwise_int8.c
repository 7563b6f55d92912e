/* Bytecode's int8 depthwise convolutions: a channel is copied to a padded plane of int16, over which pairs of taps
 * slide. */
#include <string.h>

#include "mt_bytecode_bounds.h"
#include "mt_dsp_depthwise3x3_int8.h"
#include "mt_dsp_depthwise_int8.h"

#define HEAD 3 /* words of a channel before its taps */

/* A row of outputs of a 3x3 channel, two adjacent ones at a time; `pitch` and `stride` are constants. */
#ifdef MT_DSP_FPU
#define SLIDE_ROW(name, pitch, stride, pair)                                                                        \
    static MT_ALONE void name(const int16_t *from, const int16_t *to, int8_t *output, const struct mt_dsp_taps *taps, \
                              const struct mt_dsp_fixed *by)                                                        \
    {                                                                                                               \
        double exact;                                                                                               \
        memcpy(&exact, &by->multiplier, sizeof(exact));                                                             \
        register const int16_t *i __asm__("r0") = from;                                                             \
        register int8_t *o __asm__("r1") = output;                                                                  \
        register const int16_t *end __asm__("r2") = to;                                                             \
        register int32_t bias __asm__("r3") = by->bias;                                                             \
        register const struct mt_dsp_taps *pairs __asm__("r12") = taps;                                             \
        __asm__ volatile(MT_DSP_SLIDE_BEGIN "ldm r12, {r6, r7, r8, r9, r10, r11}\n"                                     \
                         MT_DSP_SLIDE_PAIRS(pair, MT_DSP_EXACT_AB, MT_DSP_NOTHING) MT_DSP_SLIDE_END                \
                         : "+r"(i), "+r"(o), "+r"(pairs)                                                            \
                         : "r"(end), "r"(bias), [exact] "w"(exact), [places] "i"(MT_EXACT_PLACES(MT_EXACT_4)),      \
                           [row1] "i"(2 * (pitch)), [row2] "i"(4 * (pitch)), [step] "i"(1), [step2] "i"(2)          \
                         : MT_DSP_SLIDE_CLOBBERS);                                                                  \
    }
#else
#define SLIDE_ROW(name, pitch, stride, pair)                                                                        \
    static void name(const int16_t *i, const int16_t *end, int8_t *output, const struct mt_dsp_taps *taps,          \
                     const struct mt_dsp_fixed *by)                                                                 \
    {                                                                                                               \
        for (; i != end; i += (stride)) {                                                                           \
            int32_t sum = by->bias;                                                                                 \
            for (int32_t y = 0; y < 3; ++y)                                                                         \
                for (int32_t x = 0; x < 3; ++x)                                                                     \
                    sum += i[y * (pitch) + x] * taps->w[y][x];                                                      \
            *output++ = (int8_t)mt_requantize_exact(sum, by->multiplier, by->places, MT_EXACT_PLACES(MT_EXACT_4)); \
        }                                                                                                           \
    }
#endif
SLIDE_ROW(slide_32_1, 32, 1, MT_DSP_PAIR_STRIDE1)
SLIDE_ROW(slide_32_2, 32, 2, MT_DSP_PAIR_STRIDE2)
SLIDE_ROW(slide_64_1, 64, 1, MT_DSP_PAIR_STRIDE1)
SLIDE_ROW(slide_64_2, 64, 2, MT_DSP_PAIR_STRIDE2)

/* A channel: its plane, taps and scaling. */
struct channel {
    const int16_t *plane;
    const int16_t *taps; /* as mt_dsp_spread_i8 writes them */
    const uint32_t *words;
    struct mt_dsp_fixed by;
    int8_t *row; /* for adjacent outputs */
};

/* Whether pairs of outputs slide over rows: 3x3, all int8, and a pitch that the instructions support. */
static int slides(const struct mt_bytecode_depthwise_int8 *call)
{
    return call->kernel_rows == 3 && call->steps == 2 && (call->column_stride == 1 || call->column_stride == 2) &&
           (call->pitch == 32 || call->pitch == 64) && call->range.low == -128 && call->range.high == 127;
}

/* The outputs of a row, an even number. */
static int32_t paired(const struct mt_bytecode_depthwise_int8 *call)
{
    return (call->out_columns + 1) & ~1;
}

/* The elements of a row of the plane that four outputs read, beyond the first output's first. */
static uint32_t reach(const struct mt_bytecode_depthwise_int8 *call)
{
    const uint32_t stride = (uint32_t)call->column_stride, steps = 2 * (uint32_t)call->steps;
    return steps + (stride == 1 ? 2 : stride == 2 ? 6 : 3 * stride);
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(depthwise_int8, operands);
    const uint32_t inputs = (uint32_t)call->channels, kernel_rows = (uint32_t)call->kernel_rows;
    const uint32_t pitch = (uint32_t)call->pitch, steps = (uint32_t)call->steps;
    const uint32_t row = HEAD + (kernel_rows * steps * 2 + 3) / 4, taps = kernel_rows * steps * 4;
    uint32_t plane_rows, plane, channels, read, written;
    const uint32_t *words;
    (void)count;
    if (!mt_bytecode_are_sizes(&call->rows, 2) || !mt_bytecode_are_sizes(&call->channels, 4) ||
        !mt_bytecode_are_sizes(&call->kernel_rows, 4) || !mt_bytecode_is_size(call->pitch) || pitch % 2 ||
        call->top < 0 || call->left < 0 || call->top > 32767 || call->left > 32767 ||
        !mt_bytecode_is_int8(call->pad_value) || !mt_bytecode_is_range(&call->range) || call->row_step < 0 ||
        call->column_step < 0 || call->out_row_step < 0 || call->out_column_step < 0 || steps * kernel_rows > 8192)
        return 0;
    plane_rows = ((uint32_t)call->out_rows - 1) * (uint32_t)call->row_stride + kernel_rows;
    if ((uint32_t)(call->rows + call->top) > plane_rows || (uint32_t)(call->columns + call->left) > pitch ||
        ((uint32_t)call->out_columns - 1) / 4 * 4 * (uint32_t)call->column_stride + reach(call) > pitch)
        return 0;
    channels = mt_bytecode_times(inputs, (uint32_t)call->multiplier);
    read = mt_bytecode_plus(mt_bytecode_times((uint32_t)call->rows - 1, (uint32_t)call->row_step),
                            mt_bytecode_span((uint32_t)call->columns, (uint32_t)call->column_step, inputs));
    written = mt_bytecode_plus(mt_bytecode_times((uint32_t)call->out_rows - 1, (uint32_t)call->out_row_step),
                               mt_bytecode_span((uint32_t)call->out_columns, (uint32_t)call->out_column_step, channels));
    if (slides(call) && (uint32_t)(paired(call) - 1) * (uint32_t)call->column_stride + 4 > pitch)
        return 0;
    plane = mt_bytecode_times(2, mt_bytecode_plus(mt_bytecode_times(plane_rows, pitch), taps));
    plane = mt_bytecode_plus(plane, slides(call) ? (uint32_t)paired(call) : 0);
    if (!mt_bytecode_are_constants(module, call->weights, mt_bytecode_times(channels, 4 * row)) ||
        !mt_bytecode_are_elements(module, &call->out_rows, 2, channels) ||
        !mt_bytecode_is_scratch(module, call->scratch, plane, call->input, read, call->output, written))
        return 0;
    words = mt_bytecode_at(module, 0, call->weights);
    for (uint32_t c = 0; c < channels; ++c, words += row) {
        /* no sum overflows 32 bits: a product has 14 bits, and there are at most 2^14 taps */
        if (words[0] + UINT32_C(0x6fffffff) > UINT32_C(0xdffffffe) || (words[1] && !mt_bytecode_is_offset(words[2])))
            return 0;
    }
    return 1;
}

/* All rows of a channel that has a multiplier, by pairs of outputs. */
static void slide(const struct mt_bytecode_depthwise_int8 *call, const struct channel *of, int8_t *to)
{
    const struct mt_dsp_taps taps = mt_dsp_load_taps(of->words, 0);
    const int32_t step = call->out_column_step, count = call->out_columns, reach = paired(call) * call->column_stride;
    const int16_t *row = of->plane;
    for (int32_t y = 0; y < call->out_rows; ++y, row += call->pitch * call->row_stride, to += call->out_row_step) {
        int8_t *each = to;
        if (call->pitch == 32 && call->column_stride == 1)
            slide_32_1(row, row + reach, of->row, &taps, &of->by);
        else if (call->pitch == 32)
            slide_32_2(row, row + reach, of->row, &taps, &of->by);
        else if (call->column_stride == 1)
            slide_64_1(row, row + reach, of->row, &taps, &of->by);
        else
            slide_64_2(row, row + reach, of->row, &taps, &of->by);
        MT_UNROLL(8)
        for (int32_t x = 0; x < count; ++x, each += step)
            *each = of->row[x];
    }
}

/* All rows of any channel; not unrolled, which -O2 would do at four times the code size. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
__attribute__((optimize("Os"), noinline))
#endif
static void sweep(const struct mt_bytecode_depthwise_int8 *call, const struct channel *of, int8_t *to)
{
    const int16_t *row = of->plane;
    for (int32_t y = 0; y < call->out_rows; ++y, row += call->pitch * call->row_stride, to += call->out_row_step) {
        if (of->by.multiplier) {
            mt_dsp_sweep_exact(row, to, of->taps, &of->by, MT_EXACT_4, call->kernel_rows, call->steps, call->pitch,
                               call->column_stride, call->out_columns, call->out_column_step, call->range.low,
                               call->range.high);
        } else { /* the offset is the float scale */
            float scale;
            memcpy(&scale, &of->by.places, sizeof(scale));
            mt_dsp_sweep(row, to, of->taps, of->by.bias, scale, call->kernel_rows, call->steps, call->pitch,
                         call->column_stride, call->out_columns, call->out_column_step, call->range.zero_point,
                         call->range.low, call->range.high);
        }
    }
}

/* Copy a channel's part of the image into its padded plane. */
static void widen(const struct mt_bytecode_depthwise_int8 *call, const int8_t *input, int16_t *plane)
{
    const int32_t step = call->column_step, columns = call->columns;
    int16_t *row = plane + call->top * call->pitch + call->left;
    for (int32_t y = 0; y < call->rows; ++y, row += call->pitch, input += call->row_step) {
        const int8_t *from = input;
        MT_UNROLL(8)
        for (int32_t x = 0; x < columns; ++x, from += step)
            row[x] = *from;
    }
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(depthwise_int8, operands);
    const int8_t *input = mt_bytecode_at(module, arena, call->input);
    const uint32_t *words = mt_bytecode_at(module, arena, call->weights);
    const int32_t elements = ((call->out_rows - 1) * call->row_stride + call->kernel_rows) * call->pitch;
    const int32_t each = call->kernel_rows * call->steps * 2;
    int16_t *const plane = (int16_t *)(void *)(arena + call->scratch), *const taps = plane + elements;
    int8_t *output = (int8_t *)arena + call->output;
    (void)count;
    for (int32_t i = 0; i < elements; ++i)
        plane[i] = (int16_t)call->pad_value;
    for (int32_t c = 0; c < call->channels; ++c) {
        widen(call, input + c, plane);
        for (int32_t m = 0; m < call->multiplier; ++m, ++output, words += HEAD + (each + 3) / 4) {
            struct channel of = {plane, taps, words + HEAD, {0, 0, 0}, (int8_t *)(taps + 2 * each)};
            memcpy(&of.by, words, sizeof(of.by));
            if (of.by.multiplier && slides(call)) {
                slide(call, &of, output);
                continue;
            }
            mt_dsp_spread_i8(taps, (const int8_t *)(words + HEAD), call->kernel_rows, call->steps);
            sweep(call, &of, output);
        }
    }
}

MT_BYTECODE_KERNEL(depthwise_int8);
