/* Internal to mtool: applications include mtool.h. */
/* Tiles of sums with RISC-V vectors: how they start, become int8 and are stored. See mt_rvv.h. */
#ifndef MT_RVV_STORE_INT8_H
#define MT_RVV_STORE_INT8_H

#include "mt_rvv.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MT_RVV_MOST 6 /* input vectors of a tile */

/* A tile's inputs and outputs: vectors of `depth` bytes, and the place of each one's first output. */
struct mt_rvv_tile {
    const int8_t *x[MT_RVV_MOST];
    int8_t *y[MT_RVV_MOST];
};

#ifdef MT_RVV_ASM

/* By register groups: v8, v12, ... have the sums of six vectors, v16 and v24 twice the number of two, v16 of one. */
#define MT_RVV_SIX(a)                                                                                   \
    a("v8", "v4", 0) a("v12", "v4", 1) a("v16", "v4", 2) a("v20", "v4", 3) a("v24", "v4", 4) a("v28", "v4", 5)
#define MT_RVV_TWO(a) a("v16", "v8", 0) a("v24", "v8", 1)
#define MT_RVV_SINGLE(a) a("v16", "v8", 0)

/* Biases lie before the multipliers, places after them. */
#define MT_RVV_BIASES(first)      \
    "slli t0, %[n], 2\n\t"        \
    "sub t0, %[m], t0\n\t"        \
    "vle32.v " first ", (t0)\n\t"
#define MT_RVV_PLACES             \
    "slli t4, %[n], 2\n\t"        \
    "add t4, t4, %[m]\n\t"        \
    "vle32.v v0, (t4)\n\t"

#define MT_RVV_COLUMN(register, number) MT_RVV_POINTER(register, number) "(%[x])\n\t"
#define MT_RVV_COLUMNS_1 MT_RVV_COLUMN("a2", 0)
#define MT_RVV_COLUMNS_2 MT_RVV_COLUMNS_1 MT_RVV_COLUMN("a3", 1)
#define MT_RVV_COLUMNS_6                                                                                 \
    MT_RVV_COLUMNS_2 MT_RVV_COLUMN("a4", 2) MT_RVV_COLUMN("a5", 3) MT_RVV_COLUMN("a6", 4) MT_RVV_COLUMN("a7", 5)

#define MT_RVV_BIAS_1 MT_RVV_BIASES("v16")
#define MT_RVV_BIAS_2 MT_RVV_BIAS_1 "vmv8r.v v24, v16\n\t"
#define MT_RVV_BIAS_6       \
    MT_RVV_BIASES("v8")     \
    "vmv4r.v v12, v8\n\t"   \
    "vmv4r.v v16, v8\n\t"   \
    "vmv4r.v v20, v8\n\t"   \
    "vmv4r.v v24, v8\n\t"   \
    "vmv4r.v v28, v8\n\t"

/* Convert 32-bit sums to int8 and store them. `all` applies a macro to each register group with sums, with a `free`
 * group (v0 is another) and the index of its output in the array at `o`; l32, l16, l8: the registers in a group, by
 * element size. %[m]: the channels' multipliers, %[n]: their number, %[how]: the range, %[found]: the number of sums
 * near a half. */
#define MT_RVV_STORED(all, free, scale, l32, l16, l8)                                                               \
    "vsetvli zero, zero, e32, " l32 ", ta, ma\n\t"                                                                  \
    "vle32.v v0, (%[m])\n\t"                                                                                        \
    "lw t0, 0(%[how])\n\t"                                                                                          \
    "lw t1, 4(%[how])\n\t"                                                                                          \
    "lw t2, 8(%[how])\n\t"                                                                                          \
    "lw t3, 12(%[how])\n\t" scale(all, free) "vsetvli zero, zero, e16, " l16 ", ta, ma\n\t" all(MT_RVV_TO_16)              \
        scale##_16(all) "vsetvli zero, zero, e8, " l8 ", ta, ma\n\t" all(MT_RVV_TO_8) all(MT_RVV_OUT)

#define MT_RVV_TO_16(sum, free, number) "vnclip.wx " sum ", " sum ", t1\n\t"
#define MT_RVV_TO_8(sum, free, number)   \
    "vnclip.wi " sum ", " sum ", 0\n\t"  \
    "vmax.vx " sum ", " sum ", t2\n\t"   \
    "vmin.vx " sum ", " sum ", t3\n\t"
#define MT_RVV_OUT(sum, free, number)              \
    MT_RVV_POINTER("t4", number) "(%[o])\n\t"      \
    "add t4, t4, %[at]\n\t"                        \
    "vse8.v " sum ", (t4)\n\t"
#define MT_RVV_ZERO_POINT(sum, free, number) "vsadd.vx " sum ", " sum ", t0\n\t"
#define MT_RVV_NOTHING(all)

/* vnclip rounds as vxrm says: 2 is down, 1 to the nearest and to even, 0 to the nearest and up. */
#define MT_RVV_PRODUCT(sum, free, number)    \
    "vmulh.vv " sum ", " sum ", v0\n\t"      \
    "vadd.vx " sum ", " sum ", t0\n\t"
#define MT_RVV_BY_FIXED(all, free) all(MT_RVV_PRODUCT) "csrwi vxrm, 2\n\t"
#define MT_RVV_BY_FIXED_16 MT_RVV_NOTHING

/* The fraction is computed from the shifted words of the product: it is near a half if it is less than 2^16 from 0. */
#define MT_RVV_BESIDE(sum, free, number)       \
    "vmul.vv " free ", " sum ", v0\n\t"        \
    "vsrl.vx " free ", " free ", t1\n\t"       \
    "vmulh.vv " sum ", " sum ", v0\n\t"        \
    "vadd.vx " sum ", " sum ", t0\n\t"         \
    "vmacc.vx " free ", t4, " sum "\n\t"       \
    "vadd.vx " free ", " free ", t5\n\t"       \
    "vmsltu.vx " free ", " free ", t6\n\t"     \
    "vcpop.m a2, " free "\n\t"                 \
    "add %[found], %[found], a2\n\t"
#define MT_RVV_BY_NEAR(all, free)            \
    "vrsub.vx " free ", v0, zero\n\t"   \
    "vmax.vv v0, v0, " free "\n\t"      \
    "li t4, 1\n\t"              \
    "neg t5, t1\n\t"            \
    "addi t5, t5, 32\n\t"       \
    "sll t4, t4, t5\n\t"        \
    "li t5, 0x10000\n\t"        \
    "li t6, 0x20000\n\t" all(MT_RVV_BESIDE) "csrwi vxrm, 2\n\t"
#define MT_RVV_BY_NEAR_16 MT_RVV_NOTHING

/* Twice the high word, and whether the low one is not 0: the last bit of the rounded number is below all halves. */
#define MT_RVV_STICKY(sum, free, number)    \
    "vmul.vv " free ", " sum ", v0\n\t"     \
    "vminu.vx " free ", " free ", t4\n\t"   \
    "vmulh.vv " sum ", " sum ", v0\n\t"     \
    "vadd.vv " sum ", " sum ", " sum "\n\t" \
    "vor.vv " sum ", " sum ", " free "\n\t"
#define MT_RVV_BY_EVEN(all, free)  \
    "li t4, 1\n\t"           \
    "addi t1, t1, 1\n\t" all(MT_RVV_STICKY) "csrwi vxrm, 1\n\t"
#define MT_RVV_BY_EVEN_16(all) all(MT_RVV_ZERO_POINT)

#define MT_RVV_HIGH(sum, free, number) "vmulh.vv " sum ", " sum ", v0\n\t"
#define MT_RVV_SHIFT(sum, free, number) "vssra.vv " sum ", " sum ", v0\n\t"
#define MT_RVV_BY_ONCE(all, free) "csrwi vxrm, 0\n\t" all(MT_RVV_HIGH) MT_RVV_PLACES all(MT_RVV_SHIFT) "li t1, 0\n\t"
#define MT_RVV_BY_ONCE_16(all) all(MT_RVV_ZERO_POINT)

#define MT_RVV_DOUBLED(sum, free, number) "vsmul.vv " sum ", " sum ", v0\n\t"
#define MT_RVV_AWAY(sum, free, number)      \
    "vsra.vi " free ", " sum ", 31\n\t"     \
    "vadd.vv " sum ", " sum ", " free "\n\t" MT_RVV_SHIFT(sum, free, number)
#define MT_RVV_BY_TWICE(all, free) \
    "csrwi vxrm, 0\n\t" all(MT_RVV_DOUBLED) MT_RVV_PLACES all(MT_RVV_AWAY) "li t1, 0\n\t"
#define MT_RVV_BY_TWICE_16(all) all(MT_RVV_ZERO_POINT)

#endif

#ifdef __cplusplus
}
#endif

#endif
