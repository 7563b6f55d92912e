#include "mt_bytecode_bounds.h"

int mt_bytecode_reads(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment)
{
    uint32_t first = 0, end = module->arena_bytes;
    if (address >= MT_BYTECODE_CONSTANT) {
        first = MT_BYTECODE_CONSTANT;
        end = first + module->constant_bytes;
    }
    return (address & (alignment - 1)) == 0 && bytes <= end - first && address <= end - bytes;
}

int mt_bytecode_writes(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment)
{
    return address < MT_BYTECODE_CONSTANT && mt_bytecode_reads(module, address, bytes, alignment);
}

int mt_bytecode_is_scratch(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t input,
                           uint32_t read, uint32_t output, uint32_t written)
{
    return mt_bytecode_writes(module, address, bytes, 4) && mt_bytecode_reads(module, input, read, 1) &&
           mt_bytecode_writes(module, output, written, 1) && mt_bytecode_are_apart(address, bytes, input, read) &&
           mt_bytecode_are_apart(address, bytes, output, written);
}

int mt_bytecode_are_constants(const struct mt_bytecode *module, uint32_t address, uint32_t bytes)
{
    return address >= MT_BYTECODE_CONSTANT && mt_bytecode_reads(module, address, bytes, 4);
}

static const struct mt_bytecode_kernel *kernel_of(const struct mt_bytecode *module, uint32_t call)
{
    for (uint32_t i = 0; i < module->kernels; ++i)
        if (module->library[i]->number == (call & (MT_BYTECODE_MORE - 1)))
            return module->library[i];
    return 0;
}

void mt_bytecode_reopen(struct mt_bytecode *opened, const void *module, const struct mt_bytecode_kernel *const *library,
                        uint32_t kernels)
{
    const uint32_t *const words = module;
    opened->calls = words + MT_BYTECODE_HEAD;
    opened->constants = (const uint8_t *)(opened->calls + words[2]);
    opened->arena_bytes = words[1];
    opened->call_words = words[2];
    opened->constant_bytes = words[3];
    opened->library = library;
    opened->kernels = kernels;
}

int32_t mt_bytecode_open(struct mt_bytecode *opened, const void *module, uint32_t bytes,
                         const struct mt_bytecode_kernel *const *library, uint32_t kernels)
{
    const uint32_t *const words = module;
    const uint32_t all = bytes / 4;
    if ((uintptr_t)module % 4 || bytes % 4 || all < MT_BYTECODE_HEAD || words[0] != MT_BYTECODE_MAGIC)
        return MT_BYTECODE_MALFORMED;
    if (words[1] >= MT_BYTECODE_CONSTANT || words[2] > all - MT_BYTECODE_HEAD ||
        words[3] != 4 * (all - MT_BYTECODE_HEAD - words[2]))
        return MT_BYTECODE_MALFORMED;
    mt_bytecode_reopen(opened, module, library, kernels);
    for (uint32_t at = 0, number = 1; at < opened->call_words; ++number) {
        const uint32_t call = opened->calls[at++], count = call >> 16;
        const struct mt_bytecode_kernel *const kernel = kernel_of(opened, call);
        if (!kernel)
            return MT_BYTECODE_NO_KERNEL;
        if (count < kernel->operands || (count > kernel->operands && !kernel->takes_more) ||
            count > opened->call_words - at || !kernel->fits(opened, opened->calls + at, count))
            return (int32_t)number;
        at += count;
    }
    return 0;
}

/* Compute the call at a word, which was checked; return the place of the next. */
static uint32_t run_call(const struct mt_bytecode *module, uint8_t *arena, uint32_t at)
{
    const uint32_t call = module->calls[at], count = call >> 16;
    kernel_of(module, call)->run(module, arena, module->calls + at + 1, count);
    return at + 1 + count;
}

void mt_bytecode_run(const struct mt_bytecode *module, uint8_t *arena)
{
    uint32_t at = 0;
    while (at < module->call_words)
        at = run_call(module, arena, at);
}

/* Whether a call is the first one of an operator. */
static int begins(const struct mt_bytecode *module, uint32_t at)
{
    return at == 0 || !(module->calls[at] & MT_BYTECODE_MORE);
}

int mt_bytecode_run_one(const struct mt_bytecode *module, uint8_t *arena, uint32_t number)
{
    uint32_t at = 0, operators = 0;
    while (at < module->call_words) {
        operators += (uint32_t)begins(module, at);
        if (operators > number + 1)
            break;
        at = operators == number + 1 ? run_call(module, arena, at) : at + 1 + (module->calls[at] >> 16);
    }
    return operators > number;
}

uint32_t mt_bytecode_operators(const struct mt_bytecode *module)
{
    uint32_t operators = 0;
    for (uint32_t at = 0; at < module->call_words; at += 1 + (module->calls[at] >> 16))
        operators += (uint32_t)begins(module, at);
    return operators;
}
