/* Internal to mtool: applications include mtool.h. */
/* How bytecode kernels check their operands, in saturating arithmetic: a sum or product beyond 32 bits becomes the
 * largest number, which no memory has. */
#ifndef MT_BYTECODE_BOUNDS_H
#define MT_BYTECODE_BOUNDS_H

#include "mt_bytecode_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t mt_bytecode_times(uint32_t a, uint32_t b)
{
    const uint64_t product = (uint64_t)a * b;
    return product > UINT32_MAX ? UINT32_MAX : (uint32_t)product;
}

static inline uint32_t mt_bytecode_plus(uint32_t a, uint32_t b)
{
    return a > UINT32_MAX - b ? UINT32_MAX : a + b;
}

/* The size from the first of `count` items, `step` apart, to the end of the last, which has `bytes` bytes. */
static inline uint32_t mt_bytecode_span(uint32_t count, uint32_t step, uint32_t bytes)
{
    return mt_bytecode_plus(mt_bytecode_times(count - 1, step), bytes);
}

/* A dimension's limit: products of two, and sums of two such products, fit into 32 bits. */
static inline int mt_bytecode_is_size(int32_t value)
{
    return value > 0 && value <= 32767;
}

static inline int mt_bytecode_are_sizes(const int32_t *values, uint32_t count)
{
    while (count--)
        if (!mt_bytecode_is_size(*values++))
            return 0;
    return 1;
}

/* Whether an arena can hold that many elements along `count` dimensions, with `each` per place: this bounds the time
 * of a call. */
static inline int mt_bytecode_are_elements(const struct mt_bytecode *module, const int32_t *sizes, uint32_t count,
                                           uint32_t each)
{
    while (count--)
        each = mt_bytecode_times(each, (uint32_t)*sizes++);
    return each <= module->arena_bytes;
}

static inline int mt_bytecode_is_pad(int32_t value)
{
    return value >= -32767 && value <= 32767;
}

static inline int mt_bytecode_is_int8(int32_t value)
{
    return value >= -128 && value <= 127;
}

static inline int mt_bytecode_is_range(const struct mt_bytecode_range *range)
{
    return mt_bytecode_is_int8(range->zero_point) && mt_bytecode_is_int8(range->low) &&
           mt_bytecode_is_int8(range->high) && range->low <= range->high;
}

/* Whether `bytes` bytes at an address may be read; `alignment` is a power of two. */
int mt_bytecode_reads(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment);

/* Whether they may be written: constants never are. */
int mt_bytecode_writes(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment);

/* Whether two valid pieces of memory do not overlap. */
static inline int mt_bytecode_are_apart(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes)
{
    return a <= b ? b - a >= a_bytes : a - b >= b_bytes;
}

/* Whether scratch may be written, is aligned to 4, and does not overlap what the call reads and writes. */
int mt_bytecode_is_scratch(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t input,
                           uint32_t read, uint32_t output, uint32_t written);

/* Whether there are constants at an address, aligned to 4. */
int mt_bytecode_are_constants(const struct mt_bytecode *module, uint32_t address, uint32_t bytes);

/* Whether a channel's scaling can't overflow: with a multiplier, the offset leaves space for the product's high
 * word. */
static inline int mt_bytecode_is_offset(uint32_t word)
{
    return word + UINT32_C(0x40000000) < UINT32_C(0x80000000);
}

/* The same for two channels together: multiplier and offset of each, or 0, a scale, a zero point, a scale. */
static inline int mt_bytecode_are_pair(const uint32_t *words)
{
    if (words[0])
        return mt_bytecode_is_offset(words[1]) && mt_bytecode_is_offset(words[3]);
    return mt_bytecode_is_int8((int32_t)words[2]);
}

static inline const void *mt_bytecode_at(const struct mt_bytecode *module, const uint8_t *arena, uint32_t address)
{
    return address < MT_BYTECODE_CONSTANT ? arena + address : module->constants + (address - MT_BYTECODE_CONSTANT);
}

/* The call's operands as the kernel's struct, all of whose fields are words. */
#define MT_BYTECODE_CALL(name, operands) const struct mt_bytecode_##name *const call = (const void *)(operands)
#define MT_BYTECODE_KERNEL(name) MT_BYTECODE_KERNEL_OF(name, 0)
#define MT_BYTECODE_KERNEL_OF(name, takes_more)            \
    const struct mt_bytecode_kernel mt_bytecode_##name = { \
        MT_BYTECODE_##name, sizeof(struct mt_bytecode_##name) / sizeof(uint32_t), takes_more, fits, run}

enum {
#define MT_BYTECODE_NUMBER(number, name) MT_BYTECODE_##name = number,
    MT_BYTECODE_KERNELS(MT_BYTECODE_NUMBER)
#undef MT_BYTECODE_NUMBER
        MT_BYTECODE_NONE = 0
};

#ifdef __cplusplus
}
#endif

#endif
