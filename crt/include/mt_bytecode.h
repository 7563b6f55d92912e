/* Internal to mtool: applications include mtool.h. */
/* Models as bytecode: calls of parametric kernels with operands, and constants, without machine code. It is checked as
 * a whole before any of it runs; checked bytecode can't access anything outside of its arena and itself.
 *
 * All fields are 32-bit words, little-endian like the core.
 *
 *     0  the magic number, "MTB1"
 *     1  the arena's size in bytes
 *     2  the number of words of all calls
 *     3  the bytes of constants, a multiple of 4
 *     4  the calls: each a word with the kernel's number (bits 0 to 14) and the number of its operands (high half),
 *     then
 *        the operands; bit 15: it belongs to the operator of the previous call; then the constants, to the end
 *
 * An operand is a number or an address: the offset of its first byte in the arena, or in the constants if the
 * highest bit is set. Kernels: mt_bytecode_kernels.h. */
#ifndef MT_BYTECODE_H
#define MT_BYTECODE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MT_BYTECODE_MAGIC UINT32_C(0x3142544d)
#define MT_BYTECODE_HEAD 4 /* words before the calls */
#define MT_BYTECODE_CONSTANT UINT32_C(0x80000000) /* an address in the constants */

/* An opened module: valid as long as its bytes do not change. */
struct mt_bytecode {
    const uint32_t *calls;
    const uint8_t *constants;
    uint32_t call_words;
    uint32_t constant_bytes;
    uint32_t arena_bytes;
    const struct mt_bytecode_kernel *const *library;
    uint32_t kernels;
};

/* A kernel of the firmware's library. `fits`: whether a call's operands are consistent, and all that it accesses
 * lies in the arena or the constants; it reads only operands and constants. `run` computes a call that fits. */
struct mt_bytecode_kernel {
    uint16_t number;
    uint16_t operands;  /* their number */
    uint8_t takes_more; /* not 0: more may follow */
    int (*fits)(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count);
    void (*run)(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count);
};

#define MT_BYTECODE_MORE UINT32_C(0x8000) /* of a call: bit 15 */

/* Check a module of `bytes` bytes, aligned to 4, against a library, and open it without running anything. Returns 0,
 * or the reason: one of the two below, or the number of the first invalid call, from 1 on. */
#define MT_BYTECODE_MALFORMED (-1)
#define MT_BYTECODE_NO_KERNEL (-2) /* a call's kernel is not in the library */
int32_t mt_bytecode_open(struct mt_bytecode *opened, const void *module, uint32_t bytes,
                         const struct mt_bytecode_kernel *const *library, uint32_t kernels);

/* Open a module that was checked before with the same library. */
void mt_bytecode_reopen(struct mt_bytecode *opened, const void *module, const struct mt_bytecode_kernel *const *library,
                        uint32_t kernels);

/* Compute all calls. `arena`: module->arena_bytes bytes, aligned to 16, with the inputs and outputs. */
void mt_bytecode_run(const struct mt_bytecode *module, uint8_t *arena);

/* Compute the calls of an operator, numbered from 0; returns 0 if there is no such operator. */
int mt_bytecode_run_one(const struct mt_bytecode *module, uint8_t *arena, uint32_t number);

/* The number of operators. */
uint32_t mt_bytecode_operators(const struct mt_bytecode *module);

/* The kernels of a firmware. It defines this list itself, or uses mt_bytecode_library.c with all of them. */
extern const struct mt_bytecode_kernel *const mt_bytecode_library[];
extern const uint32_t mt_bytecode_library_count;

#ifdef __cplusplus
}
#endif

#endif
