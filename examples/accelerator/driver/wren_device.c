/* A model of the Wren in C with exactly the silicon's results. Its simulator on a computer also uses this file. */
#include "wren_device.h"

#include <stddef.h>
#include <string.h>

struct wren_registers wren_registers;

static union {
    uint8_t bytes[WREN_MEMORY_BYTES];
    uint32_t aligned;
} memory;

union word {
    float f;
    int32_t i;
    uint32_t u;
};

static float as_float(int32_t bits)
{
    union word word;
    word.i = bits;
    return word.f;
}

static float half_load(const uint8_t *at)
{
    const uint32_t half = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    const uint32_t exponent = half >> 10 & 31u;
    const uint32_t fraction = half & 1023u;
    union word word;
    if (exponent == 0) {
        const float value = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
        return (half & 0x8000u) != 0 ? -value : value;
    }
    word.u = (half & 0x8000u) << 16 | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
    return word.f;
}

/* To the nearest, ties to even. */
static void half_store(uint8_t *at, float value)
{
    union word word;
    word.f = value;
    const uint32_t sign = word.u >> 16 & 0x8000u;
    const uint32_t size = word.u & 0x7FFFFFFFu;
    uint32_t half;
    if (size > 0x7F800000u) {
        half = 0x7E00u;
    } else if (size >= 0x477FF000u) {
        half = 0x7C00u;
    } else if (size < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        word.u = size;
        word.f += 0.5f; /* whose last bit is 2^-24 */
        half = word.u - 0x3F000000u;
    } else {
        half = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
    }
    half |= sign;
    at[0] = (uint8_t)half;
    at[1] = (uint8_t)(half >> 8);
}

/* To the nearest integer, ties to even, within limits far below 2^22. */
static int8_t quantized(float value, const struct wren_command *c)
{
    const float low = (float)(c->low - c->output_zero);
    const float high = (float)(c->high - c->output_zero);
    union word word;
    value = value > low ? value : low;
    value = value < high ? value : high;
    word.f = value + 12582912.0f;
    return (int8_t)(word.i - 0x4B400000 + c->output_zero);
}

static float clipped(float value, const struct wren_command *c)
{
    const float low = as_float(c->low);
    const float high = as_float(c->high);
    value = value > low ? value : low;
    return value < high ? value : high;
}

static int32_t element(int32_t at, int32_t index)
{
    return (int8_t)memory.bytes[at + index];
}

static float number(int32_t at, int32_t index)
{
    return half_load(&memory.bytes[at + 2 * index]);
}

static void put(const struct wren_command *c, int32_t index, float value)
{
    if (c->type == WREN_INT8)
        memory.bytes[c->output + index] = (uint8_t)quantized(value, c);
    else
        half_store(&memory.bytes[c->output + 2 * index], clipped(value, c));
}

static int32_t word_at(int32_t at, int32_t index)
{
    int32_t value;
    memcpy(&value, &memory.bytes[at + 4 * index], 4);
    return value;
}

/* x * y / 2^31, ties up. */
static int32_t product(int32_t x, int32_t y)
{
    return (int32_t)(((int64_t)x * y + ((int64_t)1 << 30)) >> 31);
}

/* x / 2^places, ties away from zero. */
static int32_t shifted(int32_t x, int32_t places)
{
    const int64_t half = places > 0 ? (int64_t)1 << (places - 1) : 0;
    return (int32_t)(((int64_t)x + half - (x < 0 && places > 0)) >> places);
}

/* A sum times a float64, ties away from zero. */
static int32_t scaled_away(int32_t sum, int32_t at, int32_t index)
{
    double scale;
    memcpy(&scale, &memory.bytes[at + 8 * index], sizeof scale);
    const double value = (double)sum * scale;
    if (!(value > -1e9 && value < 1e9))
        return value < 0.0 ? -1000000000 : 1000000000;
    const int32_t whole = (int32_t)value;
    const double rest = value - (double)whole;
    return whole + (rest >= 0.5) - (rest <= -0.5);
}

/* A sum times a multiplier with 31 fractional bits and a power of two, the word after it. */
static int32_t scaled(int32_t sum, int32_t at, int32_t pair, int32_t rounding)
{
    const int32_t multiplier = word_at(at, 2 * pair);
    int32_t exponent = word_at(at, 2 * pair + 1);
    exponent = exponent < -31 ? -31 : exponent > 30 ? 30 : exponent;
    int64_t wide = sum;
    if (exponent > 0) {
        wide *= (int64_t)1 << exponent;
        wide = wide > INT32_MAX ? INT32_MAX : wide < INT32_MIN ? INT32_MIN : wide;
        exponent = 0;
    }
    if (rounding == WREN_ONCE)
        return (int32_t)((wide * multiplier + ((int64_t)1 << (30 - exponent))) >> (31 - exponent));
    return shifted(product((int32_t)wide, multiplier), -exponent);
}

static void put_integer(const struct wren_command *c, int32_t index, int64_t value)
{
    value += c->output_zero;
    value = value < c->low ? c->low : value > c->high ? c->high : value;
    memory.bytes[c->output + index] = (uint8_t)(int8_t)value;
}

/* One result of a convolution, depthwise or with all channels. */
static void convolve(const struct wren_command *c, int32_t y, int32_t x, int32_t o, int32_t is_depthwise)
{
    const int32_t inner = is_depthwise ? 1 : c->channels;
    int32_t sum = c->type == WREN_INT8 ? word_at(c->bias, o) : 0;
    float total = c->type == WREN_INT8 ? 0.0f : number(c->bias, o);
    for (int32_t h = 0; h < c->kernel[0]; ++h) {
        const int32_t row = y * c->strides[0] - c->pads[0] + h * c->dilations[0];
        if (row < 0 || row >= c->rows)
            continue;
        for (int32_t w = 0; w < c->kernel[1]; ++w) {
            const int32_t column = x * c->strides[1] - c->pads[1] + w * c->dilations[1];
            if (column < 0 || column >= c->columns)
                continue;
            const int32_t tap = h * c->kernel[1] + w;
            const int32_t from = (row * c->columns + column) * c->channels + (is_depthwise ? o : 0);
            const int32_t by = is_depthwise ? tap * c->channels + o
                                            : (o * c->kernel[0] * c->kernel[1] + tap) * c->channels;
            if (c->type == WREN_INT8) {
                for (int32_t k = 0; k < inner; ++k)
                    sum += (element(c->input, from + k) - c->input_zero) * element(c->weights, by + k);
            } else {
                for (int32_t k = 0; k < inner; ++k)
                    total += number(c->input, from + k) * number(c->weights, by + k);
            }
        }
    }
    const int32_t index = (y * c->out_columns + x) * c->out_channels + o;
    if (c->rounding != WREN_REAL)
        put_integer(c, index,
                    c->rounding == WREN_AWAY ? scaled_away(sum, c->scale, o) : scaled(sum, c->scale, o, c->rounding));
    else
        put(c, index, c->type == WREN_INT8 ? (float)sum * as_float(word_at(c->scale, o)) : total);
}

static void pool(const struct wren_command *c, int32_t y, int32_t x, int32_t o)
{
    int32_t sum = 0;
    int32_t most = -128;
    float total = 0.0f;
    float largest = -65504.0f;
    for (int32_t h = 0; h < c->kernel[0]; ++h) {
        const int32_t row = y * c->strides[0] - c->pads[0] + h;
        if (row < 0 || row >= c->rows)
            continue;
        for (int32_t w = 0; w < c->kernel[1]; ++w) {
            const int32_t column = x * c->strides[1] - c->pads[1] + w;
            if (column < 0 || column >= c->columns)
                continue;
            const int32_t from = (row * c->columns + column) * c->channels + o;
            if (c->type == WREN_INT8) {
                const int32_t one = element(c->input, from);
                sum += c->rounding == WREN_REAL ? one - c->input_zero : one;
                most = one > most ? one : most;
            } else {
                const float one = number(c->input, from);
                total += one;
                largest = one > largest ? one : largest;
            }
        }
    }
    const int32_t index = (y * c->out_columns + x) * c->out_channels + o;
    const int32_t count = c->kernel[0] * c->kernel[1];
    if (c->rounding != WREN_REAL && c->operation == WREN_AVERAGE)
        put_integer(c, index, (sum < 0 ? sum - count / 2 : sum + count / 2) / count);
    else if (c->type == WREN_INT8)
        put(c, index, c->operation == WREN_AVERAGE ? (float)sum * as_float(c->scale) : (float)(most - c->output_zero));
    else
        put(c, index, c->operation == WREN_AVERAGE ? total * as_float(c->scale) : largest);
}

static void pointwise(const struct wren_command *c, int32_t i)
{
    if (c->operation == WREN_TABLE) {
        memory.bytes[c->output + i] = memory.bytes[c->weights + element(c->input, i) + 128];
    } else if (c->type == WREN_FLOAT16) {
        put(c, i, number(c->input, i) + (c->operation == WREN_ADD ? number(c->weights, i) : 0.0f));
    } else if (c->rounding != WREN_REAL) {
        const int32_t a = (element(c->input, i) - c->input_zero) * (1 << 20);
        const int32_t b = (element(c->weights, i) - c->strides[1]) * (1 << 20);
        const int64_t sum = (int64_t)scaled(a, c->scale, 0, WREN_TWICE) + scaled(b, c->scale, 1, WREN_TWICE);
        put_integer(c, i, scaled((int32_t)sum, c->scale, 2, WREN_TWICE));
    } else {
        const float a = (float)(element(c->input, i) - c->input_zero) * as_float(c->kernel[0]);
        const float b = (float)(element(c->weights, i) - c->strides[1]) * as_float(c->kernel[1]);
        put(c, i, (a + b) / as_float(c->strides[0]));
    }
}

/* 1 / (1 + x) for 0 <= x < 1 with 31 fractional bits: three steps of Newton-Raphson. */
static int32_t reciprocal(int32_t x)
{
    const int32_t half = (int32_t)(((int64_t)x + INT32_MAX + 1) >> 1);
    int64_t y = 1515870810 + product(half, -1010580540); /* two integer bits */
    for (int32_t i = 0; i < 3; ++i) {
        const int32_t error = ((int32_t)1 << 29) - product(half, (int32_t)y);
        y += (int64_t)product((int32_t)y, error) * 4;
        y = y > INT32_MAX ? INT32_MAX : y;
    }
    return y > INT32_MAX / 2 ? INT32_MAX : (int32_t)(y * 2);
}

/* A row's softmax, in steps of 1/256. */
static void softmax(const struct wren_command *c, int32_t row)
{
    const int32_t from = c->input + row * c->channels;
    int32_t top = -128;
    int32_t zeros = 0;
    uint32_t sum = 0;
    for (int32_t i = 0; i < c->channels; ++i)
        top = element(from, i) > top ? element(from, i) : top;
    for (int32_t i = 0; i < c->channels; ++i)
        sum += (uint32_t)shifted(word_at(c->weights, 255 + element(from, i) - top), 12);
    while (sum != 0 && (sum & 0x80000000u) == 0) {
        sum <<= 1;
        ++zeros;
    }
    const int32_t inverse = reciprocal((int32_t)(sum - 0x80000000u));
    for (int32_t i = 0; i < c->channels; ++i) {
        const int32_t share = product(word_at(c->weights, 255 + element(from, i) - top), inverse);
        put_integer(c, row * c->channels + i, shifted(share, 35 - zeros));
    }
}

/* Reorder elements. */
static void move(const struct wren_command *c)
{
    const int32_t bytes = c->type == WREN_FLOAT16 ? 2 : 1;
    uint8_t *to = &memory.bytes[c->output];
    for (int32_t i = 0; i < c->pads[0]; ++i) {
        for (int32_t j = 0; j < c->pads[1]; ++j) {
            for (int32_t k = 0; k < c->dilations[0]; ++k) {
                for (int32_t l = 0; l < c->dilations[1]; ++l, to += bytes) {
                    const int32_t from = i * c->kernel[0] + j * c->kernel[1] + k * c->strides[0] + l * c->strides[1];
                    memcpy(to, &memory.bytes[c->input + bytes * from], (size_t)bytes);
                }
            }
        }
    }
}

static int32_t are_within(const int32_t *numbers, int32_t count, int32_t low, int32_t high)
{
    for (int32_t i = 0; i < count; ++i)
        if (numbers[i] < low || numbers[i] > high)
            return 0;
    return 1;
}

/* Whether a WREN_MOVE reads only its input, and writes all of its output. */
static int32_t is_a_move(const struct wren_command *c)
{
    const int32_t sizes[4] = {c->pads[0], c->pads[1], c->dilations[0], c->dilations[1]};
    const int32_t apart[4] = {c->kernel[0], c->kernel[1], c->strides[0], c->strides[1]};
    int64_t count = 1;
    int64_t last = 0;
    if (!are_within(sizes, 4, 1, WREN_MEMORY_BYTES) || !are_within(apart, 4, 0, WREN_MEMORY_BYTES))
        return 0;
    for (int32_t i = 0; i < 4 && count <= c->channels; ++i) {
        count *= sizes[i];
        last += (int64_t)(sizes[i] - 1) * apart[i];
    }
    return count == c->channels && last < c->channels;
}

/* Whether a range lies in the device's memory. */
static int32_t fits(int32_t at, int64_t bytes)
{
    return at >= 0 && bytes >= 0 && at + bytes <= WREN_MEMORY_BYTES;
}

static uint32_t check(const struct wren_command *c)
{
    const int64_t size = c->type == WREN_FLOAT16 ? 2 : 1;
    const int64_t taps = (int64_t)c->kernel[0] * c->kernel[1];
    const int32_t is_window = c->operation >= WREN_CONV && c->operation <= WREN_MAXIMUM;
    if (c->operation < WREN_CONV || c->operation > WREN_MOVE || c->rounding < WREN_REAL || c->rounding > WREN_AWAY ||
        (c->rounding != WREN_REAL && c->type != WREN_INT8) ||
        (c->operation == WREN_SOFTMAX && (c->type != WREN_INT8 || c->channels > 4095)) ||
        (c->operation == WREN_MOVE && !is_a_move(c)) || (c->type != WREN_INT8 && c->type != WREN_FLOAT16))
        return WREN_BAD_COMMAND;
    const int32_t sizes[6] = {c->rows, c->columns, c->channels, c->out_rows, c->out_columns, c->out_channels};
    const int32_t steps[4] = {c->input_zero, c->output_zero, c->low, c->high};
    if (!are_within(sizes, 6, 1, WREN_MEMORY_BYTES))
        return WREN_BAD_COMMAND;
    if (is_window && (!are_within(c->kernel, 2, 1, 255) || !are_within(c->strides, 2, 1, 255) ||
                      !are_within(c->pads, 2, 0, 255) || !are_within(c->dilations, 2, 1, 255)))
        return WREN_BAD_COMMAND;
    if (c->type == WREN_INT8 && (!are_within(steps, 4, -128, 127) ||
                                 (c->operation == WREN_ADD && !are_within(&c->strides[1], 1, -128, 127))))
        return WREN_BAD_COMMAND;
    if (c->operation != WREN_CONV && c->channels != c->out_channels)
        return WREN_BAD_COMMAND;
    if (!fits(c->input, size * c->rows * c->columns * c->channels) ||
        !fits(c->output, size * c->out_rows * c->out_columns * c->out_channels))
        return WREN_BAD_ADDRESS;
    if ((c->operation == WREN_SOFTMAX && (!fits(c->weights, 1024) || c->rows != c->out_rows)) ||
        (c->operation == WREN_ADD && c->rounding != WREN_REAL && !fits(c->scale, 24)))
        return WREN_BAD_ADDRESS;
    if (c->operation == WREN_CONV || c->operation == WREN_DEPTHWISE) {
        const int64_t inner = c->operation == WREN_CONV ? c->channels : 1;
        if (!fits(c->weights, size * taps * inner * c->out_channels) ||
            !fits(c->bias, (c->type == WREN_INT8 ? 4 : 2) * (int64_t)c->out_channels) ||
            (c->type == WREN_INT8 && !fits(c->scale, (c->rounding ? 8 : 4) * (int64_t)c->out_channels)))
            return WREN_BAD_ADDRESS;
    }
    if (c->operation == WREN_ADD && !fits(c->weights, size * c->channels))
        return WREN_BAD_ADDRESS;
    return c->operation == WREN_TABLE && !fits(c->weights, 256) ? WREN_BAD_ADDRESS : WREN_DONE;
}

static uint32_t run(void)
{
    struct wren_command command;
    const struct wren_command *c = &command;
    if (wren_registers.address > WREN_COMMAND_ADDRESS)
        return WREN_BAD_ADDRESS;
    memcpy(&command, &memory.bytes[wren_registers.address], sizeof command);
    const uint32_t checked = check(c);
    if (checked != WREN_DONE)
        return checked;
    if (c->operation == WREN_MOVE) {
        move(c);
        return WREN_DONE;
    }
    if (c->operation == WREN_SOFTMAX) {
        for (int32_t row = 0; row < c->rows; ++row)
            softmax(c, row);
        return WREN_DONE;
    }
    if (c->operation >= WREN_ADD) {
        for (int32_t i = 0; i < c->channels; ++i)
            pointwise(c, i);
        return WREN_DONE;
    }
    for (int32_t y = 0; y < c->out_rows; ++y) {
        for (int32_t x = 0; x < c->out_columns; ++x) {
            for (int32_t o = 0; o < c->out_channels; ++o) {
                if (c->operation <= WREN_DEPTHWISE)
                    convolve(c, y, x, o, c->operation == WREN_DEPTHWISE);
                else
                    pool(c, y, x, o);
            }
        }
    }
    return WREN_DONE;
}

void wren_device_clock(void)
{
    const uint32_t control = wren_registers.control;
    const uint32_t address = wren_registers.address;
    const uint32_t bytes = wren_registers.bytes;
    if (control == WREN_IDLE)
        return;
    wren_registers.control = WREN_IDLE;
    uint32_t cause = WREN_DONE;
    if (control == WREN_RUN)
        cause = run();
    else if (control > WREN_RUN)
        cause = WREN_BAD_COMMAND;
    else if (address > WREN_MEMORY_BYTES || bytes > WREN_MEMORY_BYTES - address)
        cause = WREN_BAD_ADDRESS;
    else if (control == WREN_DMA_IN)
        memcpy(&memory.bytes[address], (const void *)wren_registers.host, bytes);
    else
        memcpy((void *)wren_registers.host, &memory.bytes[address], bytes);
    wren_registers.cause = cause;
    wren_interrupt();
}
