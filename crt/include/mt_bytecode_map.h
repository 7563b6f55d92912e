/* Internal to mtool: applications include mtool.h. */
/* The steps of the kernel `map`, with which bytecode computes everything that has no kernel of its own: for each
 * element along five dimensions, a program of steps. A step computes a value, an int32 or a float, which later steps
 * refer to by its number.
 *
 * A step is a word: its code, then the bytes a, b, c; further words follow. The list has: the kind of the result (i,
 * f, or - for none), the kinds of a, b and c (i, f, x for that of the result, t for an element type instead of a
 * value, - for none), and the number of further words. Integers wrap, also when they are stored. */
#ifndef MT_BYTECODE_MAP_H
#define MT_BYTECODE_MAP_H

/* clang-format off */
#define MT_BYTECODE_STEPS(X) \
    X(0,  load,          "?t--", 6) /* of a type: address, steps along the dimensions */ \
    X(1,  integer,       "i---", 1) /* the number */ \
    X(2,  real,          "f---", 1) /* its bits */ \
    X(3,  axis,          "it--", 0) /* the index along a dimension */   \
    X(4,  look_up,       "?ti-", 2) /* of a type, at an index: address, elements; an index outside is clamped */       \
    X(5,  store,         "-t?-", 0) /* of a type, the last step */ \
    X(6,  add_i,         "iii-", 0) \
    X(7,  sub_i,         "iii-", 0) \
    X(8,  mul_i,         "iii-", 0) \
    X(9,  min_i,         "iii-", 0) \
    X(10, max_i,         "iii-", 0) \
    X(11, less_i,        "iii-", 0) \
    X(12, equal_i,       "iii-", 0) \
    X(13, div_i,         "iii-", 0) /* rounded down, 0 by 0 */ \
    X(14, mod_i,         "iii-", 0) /* its remainder */ \
    X(15, where_i,       "iiii", 0) /* a ? b : c */ \
    X(16, where_f,       "fiff", 0) \
    X(17, wrap,          "iti-", 0) /* wrapped to an integer type */  \
    X(18, to_f,          "fi--", 0) \
    X(19, to_i,          "if--", 0) /* towards zero */ \
    X(20, add_f,         "fff-", 0) \
    X(21, sub_f,         "fff-", 0) \
    X(22, mul_f,         "fff-", 0) \
    X(23, div_f,         "fff-", 0) \
    X(24, min_f,         "fff-", 0) \
    X(25, max_f,         "fff-", 0) \
    X(26, less_f,        "iff-", 0) \
    X(27, equal_f,       "iff-", 0) \
    X(28, abs_f,         "ff--", 0) \
    X(29, sqrt_f,        "ff--", 0) \
    X(30, exp_f,         "ff--", 0) \
    X(31, log_f,         "ff--", 0) \
    X(32, tanh_f,        "ff--", 0) \
    X(33, sigmoid_f,     "ff--", 0) \
    X(34, floor_f,       "ff--", 0) \
    X(35, requantize,    "iif-", 3) /* the sum a times b: zero point, low, high */ \
    X(36, quantize,      "iff-", 3) /* a / b: the same */ \
    X(37, rescale_pair,  "iii-", 8) /* left and right factor, offset, shift, even, zero point, low, high */ \
    X(38, bit_and,       "iii-", 0) \
    X(39, bit_or,        "iii-", 0) \
    X(40, add_to,        "-t?-", 0) /* store, accumulating: int32 or float; also the last step */               \
    X(41, mul_to,        "-t?-", 0) \
    X(42, min_to,        "-t?-", 0) \
    X(43, max_to,        "-t?-", 0)
/* clang-format on */

#endif
