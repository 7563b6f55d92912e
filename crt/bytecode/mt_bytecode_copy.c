/* Bytecode's element moves: transpositions, slices, concatenations. */
#include <string.h>

#include "mt_bytecode_bounds.h"

/* The size from the first element to the end of the last. */
static uint32_t span(const struct mt_bytecode_copy *call, const uint32_t *steps)
{
    uint32_t bytes = (uint32_t)call->bytes;
    for (int32_t i = 0; i < 4; ++i)
        bytes = mt_bytecode_plus(bytes, mt_bytecode_times((uint32_t)call->counts[i] - 1, steps[i]));
    return bytes;
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(copy, operands);
    (void)count;
    for (int32_t i = 0; i < 4; ++i)
        if (call->counts[i] < 1)
            return 0;
    return (call->bytes == 1 || call->bytes == 2 || call->bytes == 4 || call->bytes == 8) &&
           mt_bytecode_are_elements(module, call->counts, 4, (uint32_t)call->bytes) &&
           mt_bytecode_reads(module, call->input, span(call, call->from), 1) &&
           mt_bytecode_writes(module, call->output, span(call, call->to), 1);
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(copy, operands);
    const uint8_t *const input = mt_bytecode_at(module, arena, call->input);
    uint8_t *const output = arena + call->output;
    const uint32_t bytes = (uint32_t)call->bytes, last = (uint32_t)call->counts[3];
    const int whole = call->from[3] == bytes && call->to[3] == bytes;
    (void)count;
    for (uint32_t i = 0; i < (uint32_t)call->counts[0]; ++i)
        for (uint32_t j = 0; j < (uint32_t)call->counts[1]; ++j)
            for (uint32_t k = 0; k < (uint32_t)call->counts[2]; ++k) {
                const uint8_t *from = input + i * call->from[0] + j * call->from[1] + k * call->from[2];
                uint8_t *to = output + i * call->to[0] + j * call->to[1] + k * call->to[2];
                if (whole) {
                    memmove(to, from, last * bytes);
                    continue;
                }
                for (uint32_t l = 0; l < last; ++l, from += call->from[3], to += call->to[3])
                    for (uint32_t byte = 0; byte < bytes; ++byte)
                        to[byte] = from[byte];
            }
}

MT_BYTECODE_KERNEL(copy);
