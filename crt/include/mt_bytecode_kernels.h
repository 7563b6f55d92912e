/* Internal to mtool: applications include mtool.h. */
/* The kernels that bytecode may call: their numbers, and the operands of each. The compiler's side is
 * mtool/compiler/bytecode/kernels.py.
 *
 * Address fields are named after what lies there (mt_bytecode.h); sizes are in elements, steps in bytes; a `float`
 * is stored as its bits. `scratch` lies in the arena, aligned to 4. Images have one batch, and channels last.
 * Results are bit-identical to those of compiled models. */
#ifndef MT_BYTECODE_KERNELS_H
#define MT_BYTECODE_KERNELS_H

#include "mt_bytecode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define MT_BYTECODE_KERNELS(X) \
    X(1, conv2d_int8)    \
    X(2, depthwise_int8) \
    X(3, dense_int8)     \
    X(4, pool_int8)      \
    X(5, softmax_int8)   \
    X(6, add_int8)       \
    X(7, copy)           \
    X(8, map)            \
    X(9, conv2d_f32)     \
    X(10, pool_f32)      \
    X(11, softmax_f32)
/* clang-format on */

#define MT_BYTECODE_DECLARE(number, name) extern const struct mt_bytecode_kernel mt_bytecode_##name;
MT_BYTECODE_KERNELS(MT_BYTECODE_DECLARE)
#undef MT_BYTECODE_DECLARE

/* int8 results: the zero point, and the limits of the results. */
struct mt_bytecode_range {
    int32_t zero_point, low, high;
};

/* Each group of channels is a call of its own: pixels are `pixel_step` apart. Weights: as in mt_dsp_tile_int8.h,
 * with MT_EXACT_4, in pairs or `apart`; `depth` steps, a multiple of 4, at least 8, with a patch's rows one after
 * the other. `scratch`: 6 * depth bytes, then the larger of depth (if a pixel can't serve as a column without
 * copying) and the results that are not stored directly: 3 * (out_channels + 1) if out_channels is odd, out_channels
 * if the number of pixels is not a multiple of 3. */
struct mt_bytecode_conv2d_int8 {
    uint32_t input, output, weights, scratch;
    int32_t height, width, channels, pixel_step;
    int32_t out_height, out_width, out_channels, out_step;
    int32_t kernel_height, kernel_width, stride_y, stride_x, top, left, dilation_y, dilation_x;
    int32_t depth, pad_value, apart;
    struct mt_bytecode_range range;
};

/* Each channel has `multiplier` outputs. Rows and columns are along the slow and the fast axis, whichever these are;
 * a tap that a dilation skips is a weight of 0. Weights of a channel: bias, multiplier and offset (or 0 and a float
 * scale) with MT_EXACT_4, then rows of 2 * steps taps, padded to whole words. `scratch`: the int16 padded plane,
 * with `pitch` (even) elements a row, and 4 * steps taps for each row; for 3x3 kernels with a pitch of 32 or 64 and
 * no limits, then a byte for each output of a row, rounded up to an even number. */
struct mt_bytecode_depthwise_int8 {
    uint32_t input, output, weights, scratch;
    int32_t rows, columns, row_step, column_step; /* of the input, as far as it is read */
    int32_t channels, multiplier;
    int32_t out_rows, out_columns, out_row_step, out_column_step;
    int32_t kernel_rows, steps, row_stride, column_stride, top, left, pitch, pad_value;
    struct mt_bytecode_range range;
};

/* Weights: as in mt_dsp_gemv_int8.h, for eight outputs at a time, with MT_EXACT_4. `scratch`: 8 bytes, then, if the
 * depth is not a multiple of 4, a padded row. */
struct mt_bytecode_dense_int8 {
    uint32_t input, output, weights, scratch;
    int32_t rows, depth, outputs;
    struct mt_bytecode_range range;
};

/* The maximum of a window (`sums` 0), or its int32 sum (1). Every window overlaps the image. */
struct mt_bytecode_pool_int8 {
    uint32_t input, output;
    int32_t height, width, channels, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, top, left;
    int32_t sums;
};

/* float32 results, from 256 float32 constants: the exponentials of -255 to 0 steps. */
struct mt_bytecode_softmax_int8 {
    uint32_t input, output, exponentials;
    int32_t rows, length;
};

/* clamp((left * left_factor + right * right_factor + offset) >> shift) of `count` elements; `even`: ties to even. */
struct mt_bytecode_add_int8 {
    uint32_t left, right, output;
    int32_t count, left_factor, right_factor, offset, shift, even;
    struct mt_bytecode_range range;
};

/* Elements of `bytes` bytes (1, 2, 4 or 8) along four dimensions. */
struct mt_bytecode_copy {
    uint32_t input, output;
    int32_t bytes, counts[4];
    uint32_t from[4], to[4]; /* steps */
};

/* An expression for each element along five dimensions; the steps of its program follow: mt_bytecode_map.c. */
struct mt_bytecode_map {
    int32_t sizes[5];
    uint32_t output, to[5];
};

/* Weights [out_channels][kernel_height][kernel_width][channels / group], a bias for each output channel. Results are
 * clamped to low and high. A dense layer is an image of 1x1 pixels. */
struct mt_bytecode_conv2d_f32 {
    uint32_t input, output, weights, bias;
    int32_t images, height, width, channels, group, out_height, out_width, out_channels;
    int32_t kernel_height, kernel_width, stride_y, stride_x, top, left, dilation_y, dilation_x;
    uint32_t low, high;
};

/* The maximum (`mean` 0) or the mean of the part of a window inside the image. */
struct mt_bytecode_pool_f32 {
    uint32_t input, output;
    int32_t height, width, channels, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, top, left;
    int32_t mean;
};

struct mt_bytecode_softmax_f32 {
    uint32_t input, output;
    int32_t rows, length;
};

#ifdef __cplusplus
}
#endif

#endif
