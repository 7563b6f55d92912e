/* Internal to mtool: applications include mtool.h. */
/* A module: a model that firmware takes at run time, from one signed file (.mtm). docs/modules.md has its bytes.
 *
 * The file stays as it was sent: in memory that can be read like any other, never patched, so that its hash and its
 * signature can be checked again at any time. What changes lies in a part of RAM that the caller gives: the arena, then
 * the addresses of the functions that the module imports, then the table of its inputs and outputs.
 *
 * Nothing here allocates, and nothing of a module runs before mt_module_check has returned MT_OK for its bytes. */
#ifndef MT_MODULE_H
#define MT_MODULE_H

#include <stdint.h>

#include "mtool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The head of a file: everything before the table of tensors. Offsets in bytes from the file's start; fields are of 32
 * bits, little-endian, unless MT_..._BYTES says otherwise. */
#define MT_MODULE_MAGIC 0x314D544Du /* "MTM1" */
#define MT_MODULE_AT_MAGIC 0u
#define MT_MODULE_AT_FILE_BYTES 4u
#define MT_MODULE_AT_KIND 8u
#define MT_MODULE_AT_VERSION 12u
#define MT_MODULE_AT_MACHINE 16u
#define MT_MODULE_AT_COUNTER 20u
#define MT_MODULE_AT_ALIGNMENT 24u
#define MT_MODULE_AT_IMAGE_BYTES 28u
#define MT_MODULE_AT_CODE_BYTES 32u
#define MT_MODULE_AT_ENTRY 36u
#define MT_MODULE_AT_INPUTS 40u
#define MT_MODULE_AT_OUTPUTS 44u
#define MT_MODULE_AT_IMPORTS 48u
#define MT_MODULE_AT_OPERATORS 52u
#define MT_MODULE_AT_DESCRIPTION_BYTES 56u
#define MT_MODULE_AT_ARENA_BYTES 60u
#define MT_MODULE_AT_ARENA_ALIGNMENT 64u
#define MT_MODULE_AT_STACK_BYTES 68u
#define MT_MODULE_AT_NAME 72u
#define MT_MODULE_NAME_BYTES 32u
#define MT_MODULE_AT_MODEL_HASH 104u
#define MT_MODULE_MODEL_HASH_BYTES 32u
#define MT_MODULE_AT_CONTENTS_HASH 136u
#define MT_MODULE_CONTENTS_HASH_BYTES 64u
#define MT_MODULE_AT_KEY_ID 200u
#define MT_MODULE_KEY_ID_BYTES 8u
#define MT_MODULE_SIGNED_BYTES 208u /* the signature is over what is before it */
#define MT_MODULE_AT_SIGNATURE 208u
#define MT_MODULE_SIGNATURE_BYTES 64u
#define MT_MODULE_HEAD_BYTES 272u

#define MT_MODULE_TENSOR_BYTES 8u   /* offset in the arena, bytes */
#define MT_MODULE_IMPORT_BYTES 4u   /* mt_module_hash of the declaration */

/* Kinds. */
#define MT_MODULE_NATIVE 1u
#define MT_MODULE_BYTECODE 2u
#define MT_MODULE_VERSION 1u

/* Machine: bits 0-7 the architecture, 8-15 how floats are passed, 16-31 what the code needs beside that. */
#define MT_MACHINE_ANY 0u           /* bytecode */
#define MT_MACHINE_ARMV6M 1u
#define MT_MACHINE_ARMV7M 2u
#define MT_MACHINE_ARMV7EM 3u
#define MT_MACHINE_ARMV8M_BASE 4u
#define MT_MACHINE_ARMV8M_MAIN 5u
#define MT_MACHINE_ARMV81M_MAIN 6u
#define MT_MACHINE_RV32 16u
#define MT_MACHINE_HARD_FLOAT 0x100u
#define MT_MACHINE_FPU 0x10000u     /* of float32 */
#define MT_MACHINE_DOUBLE 0x20000u  /* of float64 */
#define MT_MACHINE_DSP 0x40000u     /* SIMD32 */
#define MT_MACHINE_MVE 0x80000u     /* Helium, of integers */
#define MT_MACHINE_MVE_FLOAT 0x100000u
#define MT_MACHINE_RV_M 0x200000u
#define MT_MACHINE_RV_C 0x400000u
#define MT_MACHINE_RV_VECTOR 0x800000u /* Zve32x */

/* Numbers that a module's entry takes in place of an operator's. */
#define MT_MODULE_RUN 0xFFFFu       /* one inference */
#define MT_MODULE_BEGIN 0xFFFEu     /* gives the states their first values */

struct mt_module;
struct mt_module_view;

/* A function of the firmware that modules may import. */
struct mt_export {
    uint32_t hash;      /* FNV-1a, 32 bits, of its declaration as docs/modules.md writes it */
    void (*address)(void);
};

/* The C library's functions that modules may import (crt/modules/mt_module_exports.c). */
extern const struct mt_export mt_module_exports[];
extern const uint32_t mt_module_export_count;

/* What a kind of module needs: firmware has one for each kind that it runs. */
struct mt_module_kind {
    uint32_t kind;      /* MT_MODULE_NATIVE or MT_MODULE_BYTECODE */
    /* What of its image and tables this kind can check before it runs. Size, hash, signature, tensors and imports are
     * checked already. MT_OK, or any of mt_module_check's. */
    int32_t (*check)(const struct mt_module_view *view);
    /* Run an operator, or MT_MODULE_RUN, or MT_MODULE_BEGIN. */
    int32_t (*call)(const struct mt_module *module, uint32_t number);
};

extern const struct mt_module_kind mt_module_native;
extern const struct mt_module_kind mt_module_bytecode;

/* What the firmware has, and what the device has kept. */
struct mt_module_host {
    const struct mt_export *exports;        /* rising by hash */
    uint32_t export_count;
    uint32_t machine;                       /* mt_module_machine(), or less */
    const uint8_t (*keys)[32];              /* public keys (Ed25519) of those whose modules it takes; any of them */
    uint32_t key_count;
    uint8_t takes_unsigned;                 /* not 0: for development, modules with no signature too */
    uint32_t least_counter;                 /* older modules are refused */
    const struct mt_module_kind *const *kinds;  /* those that it runs; ends with NULL */
    void *ram;                              /* for one module; aligned to 32 bytes, or to its arena's alignment */
    uint32_t ram_bytes;
};

/* A module's parts, once their sizes are known to be right. Pointers are into the file. */
struct mt_module_view {
    /* The head's numbers, in its order. */
    uint32_t file_bytes, kind, version, machine, counter, alignment, image_bytes, code_bytes, entry, input_count;
    uint32_t output_count, import_count, operator_count, description_bytes, arena_bytes, arena_alignment, stack_bytes;
    const uint8_t *bytes;
    uint32_t imports_at, description_at, image_at; /* from the file's start */
    const uint8_t *tensors;     /* inputs, then outputs: 8 bytes each */
    const uint8_t *imports;     /* 4 bytes each */
    const uint8_t *description; /* JSON, for the host; the device does not read it */
    const uint8_t *image;       /* code, then constants; a multiple of the head's alignment behind the file's start */
    uint32_t table_offset;      /* of the imports' addresses from the start of the RAM */
    uint32_t tensors_offset;    /* of the struct mt_tensor behind them */
    uint32_t ram_bytes;         /* all that it needs */
    const struct mt_export *exports; /* of the host that it was checked for */
    uint32_t export_count;
};

/* An open module. `model` stands first, so that its `run` and `step` find the rest. */
struct mt_module {
    struct mt_model model;
    struct mt_module_view view;
    const struct mt_module_kind *kind;
    void (*const *table)(void); /* the imports' addresses */
#ifdef MT_PROTECT
    struct mt_protect_area areas[4]; /* what it has inside the fence */
#endif
    char name[MT_MODULE_NAME_BYTES];
    char hash[2 * MT_MODULE_MODEL_HASH_BYTES + 1];
};

/* What this firmware's core and ABI are, as a module's machine says it. */
uint32_t mt_module_machine(void);

/* Check the first MT_MODULE_HEAD_BYTES of a module: all that they say of sizes, machine, memory and counter, and the
 * signature, which is over them and so over the hash of the rest. A loader asks before it erases anything.
 * MT_BAD_MODULE, MT_BAD_SIGNATURE, MT_OLD_MODULE, MT_WRONG_MACHINE, MT_NO_MEMORY. `view` is filled but for pointers. */
int32_t mt_module_check_head(const uint8_t *head, const struct mt_module_host *host, struct mt_module_view *view);

/* Check a module of `bytes` bytes: the head; that there are as many bytes as it says; their hash; that the tensors lie in
 * the arena, that the imports are there, that what its kind checks is right. Nothing is written and nothing of it runs.
 * MT_MISSING_IMPORT, and those above. */
int32_t mt_module_check(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host);

/* Check it, fill the RAM and give states their first values. `opened` and the RAM stay as long as the model is used;
 * `opened->model.next` is NULL. The status of mt_module_check, or what the module's entry returned. */
int32_t mt_module_open(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host,
                       struct mt_module *opened);

/* The address of an export of that hash; NULL: there is none. */
void (*mt_module_find(const struct mt_export *exports, uint32_t count, uint32_t hash))(void);

#ifdef __cplusplus
}
#endif

#endif
