/* libFuzzer: any bytecode module is either refused or runs within its arena. */
#include <stdlib.h>
#include <string.h>

#include "mt_bytecode.h"

#define MOST_ARENA (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct mt_bytecode opened;
    uint32_t *const module = malloc(count); /* exactly this size, so that the sanitizers notice reads outside of it */
    if (count > 0) {
        memcpy(module, bytes, count);
    }
    if (mt_bytecode_open(&opened, module, (uint32_t)count, mt_bytecode_library, mt_bytecode_library_count) == 0 &&
        opened.arena_bytes <= MOST_ARENA) {
        uint8_t *const arena = calloc(opened.arena_bytes + 1u, 1); /* aligned to 16, as calloc does on the host */
        mt_bytecode_run(&opened, arena);
        if (arena[opened.arena_bytes] != 0) {
            abort();
        }
        free(arena);
    }
    free(module);
    return 0;
}
