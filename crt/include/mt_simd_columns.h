/* Internal to mtool: applications include mtool.h. */
/* Products of up to four columns with all output channels, for computers (mt_simd.h). */
#ifndef MT_SIMD_COLUMNS_H
#define MT_SIMD_COLUMNS_H

#include "mt_simd.h"

/* Columns of `depth` floats follow one another. Weights are `blocks` of eight channels: eight weights for each step
 * of the depth. The sums of a column are 8 * blocks floats, followed by those of the next; with fewer columns than
 * four, the excess sums are not used. Beyond a depth of 256, sums of 128 products are added with compensation for
 * rounding. */
#define MT_SIMD_BLOCK(depth) ((depth) > 256 ? 128 : (depth))

#ifdef MT_SIMD_VECTORS

/* One row of sums of the register tile: a column by two vectors of channels. */
#define MT_SIMD_STEP(n)     \
    sum##n##0 += x##n[k] * a; \
    sum##n##1 += x##n[k] * b;
#define MT_SIMD_STORE(n, vector)                \
    *(vector *)(to + (n) * 8 * blocks) = sum##n##0; \
    *(vector *)(to + (n) * 8 * blocks + apart) = sum##n##1;
#define MT_SIMD_ADD_BLOCK(n, half, vector)                                            \
    {                                                                                 \
        const vector next = total[2 * n + half] + sum##n##half;                       \
        rest[2 * n + half] += sum##n##half - (next - total[2 * n + half]);            \
        total[2 * n + half] = next;                                                   \
        for (int32_t lane = 0; last == depth && lane < lanes; ++lane)                 \
            sum##n##half[lane] = mt_total_f32(next[lane], rest[2 * n + half][lane]);  \
    }
#define MT_SIMD_ADD_BLOCKS(n, vector) MT_SIMD_ADD_BLOCK(n, 0, vector) MT_SIMD_ADD_BLOCK(n, 1, vector)

/* Two vectors of four are a block; of eight, two blocks, or the last one twice. */
#define MT_SIMD_COLUMNS(attributes, name, vector)                                                                   \
    attributes void name(const float *columns, int32_t count, int32_t depth, const float *weights, float *sums,     \
                         int32_t blocks)                                                                            \
    {                                                                                                               \
        const int32_t lanes = (int32_t)(sizeof(vector) / sizeof(float));                                            \
        const float *const x0 = columns;                                                                            \
        const float *const x1 = count > 1 ? x0 + depth : x0;                                                        \
        const float *const x2 = count > 2 ? x1 + depth : x1;                                                        \
        const float *const x3 = count > 3 ? x2 + depth : x2;                                                        \
        for (int32_t block = 0; block < blocks; block += lanes / 4) {                                               \
            const int32_t whole = lanes == 4 || block + 1 < blocks;                                                 \
            const int32_t apart = whole ? lanes : 0;                                                                \
            const float *w = weights + block * 8 * depth;                                                           \
            const float *const v = lanes == 4 ? w + 4 : whole ? w + 8 * depth : w;                                  \
            const vector zero = {0};                                                                                \
            vector total[8] = {{0}}, rest[8] = {{0}};                                                               \
            float *const to = sums + 8 * block;                                                                     \
            for (int32_t first = 0, last; first < depth; first = last) {                                            \
                last = depth - first > MT_SIMD_BLOCK(depth) ? first + MT_SIMD_BLOCK(depth) : depth;                 \
                vector sum00 = zero, sum01 = zero, sum10 = zero, sum11 = zero;                                      \
                vector sum20 = zero, sum21 = zero, sum30 = zero, sum31 = zero;                                      \
                for (int32_t k = first; k < last; ++k) {                                                            \
                    const vector a = *(const vector *)(w + 8 * k), b = *(const vector *)(v + 8 * k);                \
                    MT_SIMD_STEP(0)                                                                                 \
                    MT_SIMD_STEP(1)                                                                                 \
                    MT_SIMD_STEP(2)                                                                                 \
                    MT_SIMD_STEP(3)                                                                                 \
                }                                                                                                   \
                if (depth > 256) {                                                                                  \
                    MT_SIMD_ADD_BLOCKS(0, vector)                                                                   \
                    MT_SIMD_ADD_BLOCKS(1, vector)                                                                   \
                    MT_SIMD_ADD_BLOCKS(2, vector)                                                                   \
                    MT_SIMD_ADD_BLOCKS(3, vector)                                                                   \
                }                                                                                                   \
                MT_SIMD_STORE(0, vector)                                                                            \
                MT_SIMD_STORE(1, vector)                                                                            \
                MT_SIMD_STORE(2, vector)                                                                            \
                MT_SIMD_STORE(3, vector)                                                                            \
            }                                                                                                       \
        }                                                                                                           \
    }

MT_SIMD_BY_WIDTH(MT_SIMD_COLUMNS, mt_simd_columns,
                 (const float *columns, int32_t count, int32_t depth, const float *weights, float *sums, int32_t blocks),
                 (columns, count, depth, weights, sums, blocks))

#else /* portable version */

static MT_ALONE void mt_simd_columns(const float *columns, int32_t count, int32_t depth, const float *weights,
                                     float *sums, int32_t blocks)
{
    for (int32_t column = 0; column < count; ++column) {
        const float *const x = columns + column * depth;
        for (int32_t channel = 0; channel < 8 * blocks; ++channel) {
            const float *const w = weights + channel / 8 * 8 * depth + channel % 8;
            float total = 0.0f, rest = 0.0f;
            for (int32_t first = 0, last; first < depth; first = last) {
                last = depth - first > MT_SIMD_BLOCK(depth) ? first + MT_SIMD_BLOCK(depth) : depth;
                float sum = 0.0f;
                for (int32_t k = first; k < last; ++k)
                    sum += x[k] * w[8 * k];
                mt_add_f32(&total, &rest, sum);
            }
            sums[column * 8 * blocks + channel] = mt_total_f32(total, rest);
        }
    }
}

#endif

#endif
