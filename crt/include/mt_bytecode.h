/* Internal to mtool: applications include mtool.h. */
/* Models as bytecode: calls of parametric kernels with operands, and constants. Nothing of it is machine code; it is
 * checked as a whole before any of it runs, and what has passed can't read or write outside its arena and itself.
 *
 * All fields are words of 32 bits, little-endian, and so is the core.
 *
 *     0  the magic number, "MTB1"
 *     1  bytes of the arena that it needs
 *     2  words of calls
 *     3  bytes of constants, a multiple of 4
 *     4  the calls: each a word with the kernel's number (bits 0 to 14) and the number of its operands (high half), then
 *        those; bit 15: it belongs to the operator of the call before it; then the constants, to the end
 *
 * An operand of a kernel is a number or an address: the offset of its first byte in the arena, or with the highest bit
 * set in the constants. Kernels: mt_bytecode_kernels.h. */
#ifndef MT_BYTECODE_H
#define MT_BYTECODE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_BYTECODE_MAGIC UINT32_C(0x3142544d)
#define MT_BYTECODE_HEAD 4 /* words before the calls */
#define MT_BYTECODE_CONSTANT UINT32_C(0x80000000) /* an address in the constants */

/* A module that was opened: valid as long as its bytes stay as they were. */
struct mt_bytecode {
    const uint32_t *calls;
    const uint8_t *constants;
    uint32_t call_words;
    uint32_t constant_bytes;
    uint32_t arena_bytes;
    const struct mt_bytecode_kernel *const *library;
    uint32_t kernels;
};

/* A kernel of the firmware's library. `fits`: whether a call's operands make sense, and everything that it would touch
 * lies inside the arena or the constants; it reads operands and constants alone. `run` computes a call that fits. */
struct mt_bytecode_kernel {
    uint16_t number;
    uint16_t operands;  /* their number */
    uint8_t takes_more; /* whether more may follow: not 0 */
    int (*fits)(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count);
    void (*run)(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count);
};

#define MT_BYTECODE_MORE UINT32_C(0x8000) /* of a call: bit 15 */

/* Check a module of `bytes` bytes, aligned to 4, against a library, and open it. Nothing of it has run.
 * Returns 0; or the reason: one of the two below, or the number of the first call, from 1 on, that is refused. */
#define MT_BYTECODE_MALFORMED (-1)
#define MT_BYTECODE_NO_KERNEL (-2) /* the library has no kernel of a number that is called */
int32_t mt_bytecode_open(struct mt_bytecode *opened, const void *module, uint32_t bytes,
                         const struct mt_bytecode_kernel *const *library, uint32_t kernels);

/* Open one that was checked before, with the same library. */
void mt_bytecode_reopen(struct mt_bytecode *opened, const void *module, const struct mt_bytecode_kernel *const *library,
                        uint32_t kernels);

/* Compute all calls. `arena`: aligned to 16, of module->arena_bytes; inputs and outputs lie there. */
void mt_bytecode_run(const struct mt_bytecode *module, uint8_t *arena);

/* Compute the calls of an operator, from 0 on; returns 0 if there is none of that number. */
int mt_bytecode_run_one(const struct mt_bytecode *module, uint8_t *arena, uint32_t number);

/* How many operators there are. */
uint32_t mt_bytecode_operators(const struct mt_bytecode *module);

/* Which kernels a firmware has. It defines them itself, or takes all: mt_bytecode_library.c. */
extern const struct mt_bytecode_kernel *const mt_bytecode_library[];
extern const uint32_t mt_bytecode_library_count;

#ifdef __cplusplus
}
#endif

#endif
