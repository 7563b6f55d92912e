/* Internal to mtool: applications include mtool.h. */
/* Products of int8 with RISC-V vectors: a few input vectors by the number of outputs in a vector. See mt_rvv.h.
 *
 * Packed are, for N outputs that depend on K inputs: N biases, N multipliers, N places if the scaling has them, and
 * K rows of N byte weights, the first in the lowest bits of a word. */
#ifndef MT_RVV_TILE_INT8_H
#define MT_RVV_TILE_INT8_H

#include "mt_rvv_store_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Input vectors: the first begins at `x`, each `step` bytes after the previous one. A vector is `rows` pieces of
 * `depth` bytes, at the offsets `at` from its beginning; the first piece is at offset 0. */
struct mt_rvv_source {
    const int8_t *x;
    int32_t step;
    const int32_t *at;
    int32_t rows, depth;
};

/* Consecutive vectors without gaps. */
MT_RVV_INLINE struct mt_rvv_source mt_rvv_columns(const int8_t *x, int32_t depth)
{
    static const int32_t here[1] = {0};
    const struct mt_rvv_source columns = {x, depth, here, 1, depth};
    return columns;
}

/* One output in plain C, of the vector at `x`. */
MT_RVV_INLINE int8_t mt_rvv_one(const struct mt_rvv_source *from, const int8_t *x, const int8_t *weights, int32_t outputs,
                                int32_t i, const int32_t *numbers, enum mt_rvv_scaling by,
                                const struct mt_rvv_range *how)
{
    int32_t sum = numbers[i];
    for (int32_t row = 0; row < from->rows; ++row)
        for (int32_t k = 0; k < from->depth; ++k, weights += outputs)
            sum += x[from->at[row] + k] * weights[i];
    return mt_rvv_narrow(sum, numbers[outputs + i], numbers[(mt_rvv_words(by) - 1) * outputs + i], by, how);
}

#ifdef MT_RVV_ASM

/* Some sums of the outputs from `first` on are near a half: those that are checked are computed again. */
static MT_COLD void mt_rvv_again(const struct mt_rvv_source *from, const struct mt_rvv_tile *tile, int32_t vectors,
                                 const int8_t *weights, int32_t outputs, int32_t first, int32_t count,
                                 const int32_t *numbers, const struct mt_rvv_range *how)
{
    for (int32_t i = first; i < first + count; ++i)
        for (int32_t p = 0; p < vectors && numbers[outputs + i] < 0; ++p)
            tile->y[p][i] = mt_rvv_one(from, tile->x[p], weights, outputs, i, numbers, MT_RVV_NEAR, how);
}

/* One step of the depth: a row of weights by one input of each vector. */
#define MT_RVV_WEIGHTS_WIDE     \
    "vle8.v v0, (%[w])\n\t"     \
    "add %[w], %[w], %[n]\n\t"  \
    "vsext.vf2 v4, v0\n\t"
#define MT_RVV_STEP_1(k)        \
    "lb t0, " #k "(a2)\n\t" MT_RVV_WEIGHTS_WIDE "vwmacc.vx v16, t0, v4\n\t"
#define MT_RVV_STEP_2(k)        \
    "lb t0, " #k "(a2)\n\t"     \
    "lb t1, " #k "(a3)\n\t" MT_RVV_WEIGHTS_WIDE "vwmacc.vx v16, t0, v4\n\tvwmacc.vx v24, t1, v4\n\t"
#define MT_RVV_STEP_6(k)        \
    "vle8.v v0, (%[w])\n\t"     \
    "add %[w], %[w], %[n]\n\t"  \
    "lb t0, " #k "(a2)\n\t"     \
    "lb t1, " #k "(a3)\n\t"     \
    "lb t2, " #k "(a4)\n\t"     \
    "lb t3, " #k "(a5)\n\t"     \
    "lb t4, " #k "(a6)\n\t"     \
    "lb t5, " #k "(a7)\n\t"     \
    "vsext.vf2 v2, v0\n\t"      \
    "vwmacc.vx v8, t0, v2\n\t"  \
    "vwmacc.vx v12, t1, v2\n\t" \
    "vwmacc.vx v16, t2, v2\n\t" \
    "vwmacc.vx v20, t3, v2\n\t" \
    "vwmacc.vx v24, t4, v2\n\t" \
    "vwmacc.vx v28, t5, v2\n\t"

/* For one vector by twice the number of outputs: v24 has the sums of the second half. */
#define MT_RVV_STEP_DOUBLE(k)   \
    "lb t0, " #k "(a2)\n\t"     \
    "vle8.v v0, (%[w])\n\t"     \
    "vle8.v v2, (t1)\n\t"       \
    "add %[w], %[w], %[n]\n\t"  \
    "add t1, t1, %[n]\n\t"      \
    "vsext.vf2 v4, v0\n\t"      \
    "vsext.vf2 v8, v2\n\t"      \
    "vwmacc.vx v16, t0, v4\n\t" \
    "vwmacc.vx v24, t0, v8\n\t"

#define MT_RVV_ON_1(k) "addi a2, a2, " #k "\n\t"
#define MT_RVV_ON_2(k) MT_RVV_ON_1(k) "addi a3, a3, " #k "\n\t"
#define MT_RVV_ON_6(k)                                                                                          \
    MT_RVV_ON_2(k) "addi a4, a4, " #k "\n\taddi a5, a5, " #k "\n\taddi a6, a6, " #k "\n\taddi a7, a7, " #k "\n\t"

/* Where a piece of each vector begins, t0 bytes after its beginning. */
#define MT_RVV_PIECE(register, number) MT_RVV_COLUMN(register, number) "add " register ", " register ", t0\n\t"
#define MT_RVV_PIECES_1 MT_RVV_PIECE("a2", 0)
#define MT_RVV_PIECES_2 MT_RVV_PIECES_1 MT_RVV_PIECE("a3", 1)
#define MT_RVV_PIECES_6                                                                            \
    MT_RVV_PIECES_2 MT_RVV_PIECE("a4", 2) MT_RVV_PIECE("a5", 3) MT_RVV_PIECE("a6", 4) MT_RVV_PIECE("a7", 5)

/* All pieces with all their steps: four per iteration, then the rest. */
#define MT_RVV_STEPS(pieces, step, on)                                                                      \
    "5:\n\t"                                                                                                \
    "lw t0, 0(%[t])\n\t"                                                                                    \
    "addi %[t], %[t], 4\n\t" pieces "addi t6, %[k], -4\n\t"                                                 \
    "bltz t6, 2f\n\t"                                                                                       \
    "1:\n\t" step(0) step(1) step(2) step(3) on(4) "addi t6, t6, -4\n\t"                                    \
    "bgez t6, 1b\n\t"                                                                                       \
    "2:\n\t"                                                                                                \
    "addi t6, t6, 4\n\t"                                                                                    \
    "beqz t6, 4f\n\t"                                                                                       \
    "3:\n\t" step(0) on(1) "addi t6, t6, -1\n\t"                                                            \
    "bnez t6, 3b\n\t"                                                                                       \
    "4:\n\t"                                                                                                \
    "addi %[rows], %[rows], -1\n\t"                                                                         \
    "bnez %[rows], 5b\n\t"

/* A tile of `size` vectors by the number of outputs that fit: vl. */
#define MT_RVV_TILE(size, all, free, scale, l32, l16, l8)                                                             \
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], %[left], e16, " l16 ", ta, ma\n\t" MT_RVV_BIAS_##size               \
                     MT_RVV_STEPS(MT_RVV_PIECES_##size, MT_RVV_STEP_##size, MT_RVV_ON_##size)                         \
                     MT_RVV_STORED(all, free, scale, l32, l16, l8) MT_RVV_END                                         \
                     : [vl] "=&r"(vl), [w] "+&r"(w), [t] "+&r"(t), [rows] "+&r"(rows), [found] "+&r"(found)           \
                     : [left] "r"(outputs - at), [x] "r"(tile->x), [o] "r"(tile->y), [n] "r"(outputs), [at] "r"(at),  \
                       [m] "r"(numbers + outputs + at), [how] "r"(how), [k] "r"(from->depth)                          \
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a2", "a3", "a4", "a5", "a6", "a7",                  \
                       MT_RVV_VECTORS "memory")

/* One vector by twice that number of outputs; t1: the second half's weights. */
#define MT_RVV_DOUBLE(scale)                                                                                          \
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[vl], zero, e16, m4, ta, ma\n\t" MT_RVV_BIAS_1                            \
                     "slli t1, %[vl], 2\n\t"                                                                          \
                     "add t0, t0, t1\n\t"                                                                             \
                     "vle32.v v24, (t0)\n\t"                                                                          \
                     "add t1, %[w], %[vl]\n\t"                                                                        \
                     MT_RVV_STEPS(MT_RVV_PIECES_1, MT_RVV_STEP_DOUBLE, MT_RVV_ON_1)                                   \
                     MT_RVV_STORED(MT_RVV_SINGLE, "v8", scale, "m8", "m4", "m2")                                      \
                     "slli t0, %[vl], 2\n\t"                                                                          \
                     "add %[m], %[m], t0\n\t"                                                                         \
                     "add %[at], %[at], %[vl]\n\t"                                                                    \
                     "vmv8r.v v16, v24\n\t" MT_RVV_STORED(MT_RVV_SINGLE, "v8", scale, "m8", "m4", "m2") MT_RVV_END    \
                     : [vl] "=&r"(vl), [w] "+&r"(w), [t] "+&r"(t), [rows] "+&r"(rows), [found] "+&r"(found),          \
                       [m] "+&r"(m), [at] "+&r"(place)                                                                \
                     : [x] "r"(tile->x), [o] "r"(tile->y), [n] "r"(outputs), [how] "r"(how), [k] "r"(from->depth)     \
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "a2", MT_RVV_VECTORS "memory")

#define MT_RVV_TILE_BY(scale)                                                        \
    do {                                                                             \
        if (wide && vectors == 1 && outputs - at >= 2 * most) {                      \
            const int32_t *m = numbers + outputs + at;                               \
            int32_t place = at;                                                      \
            MT_RVV_DOUBLE(scale);                                                    \
            vl *= 2;                                                                 \
        } else if (wide && vectors == 1)                                             \
            MT_RVV_TILE(1, MT_RVV_SINGLE, "v8", scale, "m8", "m4", "m2");            \
        else if (wide)                                                               \
            MT_RVV_TILE(2, MT_RVV_TWO, "v8", scale, "m8", "m4", "m2");               \
        else                                                                         \
            MT_RVV_TILE(6, MT_RVV_SIX, "v4", scale, "m4", "m2", "m1");               \
    } while (0)

/* All outputs of a tile: of two vectors or one if `wide`, otherwise of six. */
MT_RVV_INLINE void mt_rvv_multiply(const struct mt_rvv_source *from, const struct mt_rvv_tile *tile, int32_t vectors,
                                   int wide, const uint32_t *packed, int32_t outputs, enum mt_rvv_scaling by,
                                   const struct mt_rvv_range *how)
{
    const int32_t *const numbers = (const int32_t *)packed;
    const int8_t *const weights = (const int8_t *)(packed + mt_rvv_words(by) * outputs);
    int32_t vl, most;
    __asm__ volatile(MT_RVV_BEGIN "vsetvli %[most], zero, e16, m4, ta, ma\n\t" MT_RVV_END
                     : [most] "=r"(most)
                     :
                     : MT_RVV_VECTORS "memory");
    for (int32_t at = 0; at < outputs; at += vl) {
        const int8_t *w = weights + at;
        const int32_t *t = from->at;
        int32_t rows = from->rows, found = 0;
        if (by == MT_RVV_FIXED)
            MT_RVV_TILE_BY(MT_RVV_BY_FIXED);
        else if (by == MT_RVV_NEAR)
            MT_RVV_TILE_BY(MT_RVV_BY_NEAR);
        else if (by == MT_RVV_EVEN)
            MT_RVV_TILE_BY(MT_RVV_BY_EVEN);
        else if (by == MT_RVV_ONCE)
            MT_RVV_TILE_BY(MT_RVV_BY_ONCE);
        else
            MT_RVV_TILE_BY(MT_RVV_BY_TWICE);
        if (by == MT_RVV_NEAR && MT_SELDOM(found))
            mt_rvv_again(from, tile, vectors, weights, outputs, at, vl, numbers, how);
    }
}

#else

MT_RVV_INLINE void mt_rvv_multiply(const struct mt_rvv_source *from, const struct mt_rvv_tile *tile, int32_t vectors,
                                   int wide, const uint32_t *packed, int32_t outputs, enum mt_rvv_scaling by,
                                   const struct mt_rvv_range *how)
{
    const int32_t *const numbers = (const int32_t *)packed;
    const int8_t *const weights = (const int8_t *)(packed + mt_rvv_words(by) * outputs);
    (void)wide;
    for (int32_t i = 0; i < outputs; ++i)
        for (int32_t p = 0; p < vectors; ++p)
            tile->y[p][i] = mt_rvv_one(from, tile->x[p], weights, outputs, i, numbers, by, how);
}

#endif

/* `vectors` by all outputs, which are `step` bytes apart. */
MT_RVV_INLINE void mt_rvv_product(const struct mt_rvv_source *from, int32_t vectors, const uint32_t *packed,
                                  int8_t *output, int32_t step, int32_t outputs, int wide, enum mt_rvv_scaling by,
                                  const struct mt_rvv_range *how)
{
    const int32_t most = wide ? 2 : MT_RVV_MOST;
    const int8_t *x = from->x;
    for (; vectors > 0; vectors -= most) {
        struct mt_rvv_tile tile;
        for (int32_t p = 0; p < most; ++p) { /* missing vectors repeat the last one */
            tile.x[p] = x;
            tile.y[p] = output;
            x += p + 1 < vectors ? from->step : 0;
            output += p + 1 < vectors ? step : 0;
        }
        mt_rvv_multiply(from, &tile, vectors < most ? vectors : most, wide, packed, outputs, by, how);
    }
}

/* The instances that operators share. */
#define MT_RVV_PRODUCT_FUNCTION(name, wide, by)                                                                       \
    MT_OPERATOR void name(const struct mt_rvv_source *from, int32_t vectors, const uint32_t *packed, int8_t *output,  \
                          int32_t step, int32_t outputs, const struct mt_rvv_range *how)                              \
    {                                                                                                                 \
        mt_rvv_product(from, vectors, packed, output, step, outputs, wide, by, how);                                  \
    }
#define MT_RVV_PRODUCT_FUNCTIONS(kind, by)              \
    MT_RVV_PRODUCT_FUNCTION(mt_rvv_wide##kind, 1, by)   \
    MT_RVV_PRODUCT_FUNCTION(mt_rvv_tall##kind, 0, by)
MT_RVV_PRODUCT_FUNCTIONS(, MT_RVV_FIXED)
MT_RVV_PRODUCT_FUNCTIONS(_near, MT_RVV_NEAR)
MT_RVV_PRODUCT_FUNCTIONS(_even, MT_RVV_EVEN)
MT_RVV_PRODUCT_FUNCTIONS(_once, MT_RVV_ONCE)
MT_RVV_PRODUCT_FUNCTIONS(_twice, MT_RVV_TWICE)

#ifdef __cplusplus
}
#endif

#endif
