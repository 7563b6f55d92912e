#include "mt_bytecode_bounds.h"

static int has(uint32_t offset, uint32_t bytes, uint32_t size)
{
    return bytes <= size && offset <= size - bytes;
}

int mt_bytecode_reads(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment)
{
    const uint32_t offset = address & ~MT_BYTECODE_CONSTANT;
    if (offset & (alignment - 1))
        return 0;
    return has(offset, bytes, address & MT_BYTECODE_CONSTANT ? module->constant_bytes : module->arena_bytes);
}

int mt_bytecode_writes(const struct mt_bytecode *module, uint32_t address, uint32_t bytes, uint32_t alignment)
{
    return !(address & MT_BYTECODE_CONSTANT) && mt_bytecode_reads(module, address, bytes, alignment);
}

const uint32_t *mt_bytecode_constants(const struct mt_bytecode *module, uint32_t address, uint32_t bytes)
{
    if (!(address & MT_BYTECODE_CONSTANT) || !mt_bytecode_reads(module, address, bytes, 4))
        return 0;
    return (const void *)(module->constants + (address & ~MT_BYTECODE_CONSTANT));
}

static const struct mt_bytecode_kernel *kernel_of(const struct mt_bytecode *module, uint32_t call)
{
    for (uint32_t i = 0; i < module->kernels; ++i)
        if (module->library[i]->number == (call & 0xffff))
            return module->library[i];
    return 0;
}

int32_t mt_bytecode_open(struct mt_bytecode *opened, const void *module, uint32_t bytes,
                         const struct mt_bytecode_kernel *const *library, uint32_t kernels)
{
    const uint32_t *const words = module;
    const uint32_t all = bytes / 4;
    if ((uintptr_t)module % 4 || bytes % 4 || all < MT_BYTECODE_HEAD || words[0] != MT_BYTECODE_MAGIC)
        return MT_BYTECODE_MALFORMED;
    if (words[1] >= MT_BYTECODE_CONSTANT || words[3] % 4 || words[2] > all - MT_BYTECODE_HEAD ||
        words[3] / 4 != all - MT_BYTECODE_HEAD - words[2])
        return MT_BYTECODE_MALFORMED;
    opened->calls = words + MT_BYTECODE_HEAD;
    opened->constants = (const uint8_t *)(opened->calls + words[2]);
    opened->arena_bytes = words[1];
    opened->call_words = words[2];
    opened->constant_bytes = words[3];
    opened->library = library;
    opened->kernels = kernels;
    for (uint32_t at = 0, number = 1; at < opened->call_words; ++number) {
        const uint32_t call = opened->calls[at++], count = call >> 16;
        const struct mt_bytecode_kernel *const kernel = kernel_of(opened, call);
        if (!kernel || count < kernel->operands || count > opened->call_words - at ||
            !kernel->fits(opened, opened->calls + at, count))
            return (int32_t)number;
        at += count;
    }
    return 0;
}

/* Calls have been checked. */
static void run_call(const struct mt_bytecode *module, uint8_t *arena, uint32_t at)
{
    const uint32_t call = module->calls[at];
    kernel_of(module, call)->run(module, arena, module->calls + at + 1, call >> 16);
}

void mt_bytecode_run(const struct mt_bytecode *module, uint8_t *arena)
{
    for (uint32_t at = 0; at < module->call_words; at += 1 + (module->calls[at] >> 16))
        run_call(module, arena, at);
}

int mt_bytecode_run_one(const struct mt_bytecode *module, uint8_t *arena, uint32_t number)
{
    uint32_t at = 0;
    while (number-- && at < module->call_words)
        at += 1 + (module->calls[at] >> 16);
    if (at >= module->call_words)
        return 0;
    run_call(module, arena, at);
    return 1;
}
