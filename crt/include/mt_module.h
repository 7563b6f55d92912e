/* Internal to mtool: applications include mtool.h. */
/* A module: a model that firmware loads at run time, from one signed file (.mtm).
 *
 * The file is kept as it was sent, readable like any memory and never patched, so that its hash and signature can be
 * checked again at any time. Mutable data lies in RAM that the caller provides: the arena, the addresses of the
 * imported functions, the table of inputs and outputs.
 *
 * Nothing here allocates, and none of a module's code runs before mt_module_check has returned MT_OK for it. */
#ifndef MT_MODULE_H
#define MT_MODULE_H

#include <stdint.h>

#include "mtool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file: the header, the table of tensors (inputs first), the imports, a description in JSON for the host (names, types,
 * shapes, scales, operators, states), zeros up to a multiple of the alignment, and the image: code, then constants. The
 * signature covers the header, which has the hash of the rest.
 *
 * The header's fields by offset in bytes; they are unsigned, of 32 bits, little-endian, unless MT_..._BYTES states
 * otherwise. */
#define MT_MODULE_MAGIC 0x314D544Du /* "MTM1" */
#define MT_MODULE_AT_MAGIC 0u
#define MT_MODULE_AT_FILE_BYTES 4u /* of the whole file */
#define MT_MODULE_AT_KIND 8u       /* MT_MODULE_NATIVE or MT_MODULE_BYTECODE */
#define MT_MODULE_AT_VERSION 12u
#define MT_MODULE_AT_MACHINE 16u           /* MT_MACHINE_...; 0 for bytecode */
#define MT_MODULE_AT_COUNTER 20u           /* at least the highest that the device has had for this name */
#define MT_MODULE_AT_ALIGNMENT 24u         /* of the image in the file, and of the file in memory: 2^n, 16 to 4096 */
#define MT_MODULE_AT_IMAGE_BYTES 28u
#define MT_MODULE_AT_CODE_BYTES 32u        /* of these */
#define MT_MODULE_AT_ENTRY 36u             /* an offset in the code */
#define MT_MODULE_AT_INPUTS 40u            /* at most 255 */
#define MT_MODULE_AT_OUTPUTS 44u           /* at most 255 */
#define MT_MODULE_AT_IMPORTS 48u           /* at most 1024 */
#define MT_MODULE_AT_OPERATORS 52u         /* at most 65533 */
#define MT_MODULE_AT_DESCRIPTION_BYTES 56u /* at most 65536 */
#define MT_MODULE_AT_ARENA_BYTES 60u
#define MT_MODULE_AT_ARENA_ALIGNMENT 64u /* 2^n, 16 to 4096 */
#define MT_MODULE_AT_STACK_BYTES 68u     /* of its own code, without imports; 0: unknown */
#define MT_MODULE_AT_NAME 72u            /* a C identifier, padded with zeros */
#define MT_MODULE_NAME_BYTES 32u
#define MT_MODULE_AT_MODEL_HASH 104u /* SHA-256 of the model's file */
#define MT_MODULE_MODEL_HASH_BYTES 32u
#define MT_MODULE_AT_CONTENTS_HASH 136u /* SHA-512 of everything after the header */
#define MT_MODULE_CONTENTS_HASH_BYTES 64u
#define MT_MODULE_AT_KEY_ID 200u /* the first bytes of SHA-512 of the public key; zeros if unsigned */
#define MT_MODULE_KEY_ID_BYTES 8u
#define MT_MODULE_SIGNED_BYTES 208u /* the signature covers everything before it */
#define MT_MODULE_AT_SIGNATURE 208u /* Ed25519; zeros if unsigned */
#define MT_MODULE_SIGNATURE_BYTES 64u
#define MT_MODULE_HEAD_BYTES 272u

#define MT_MODULE_TENSOR_BYTES 8u /* offset in the arena, bytes */
#define MT_MODULE_IMPORT_BYTES 4u /* mt_module_hash of the declaration, as "float expf(float)" */

/* Module kinds. */
#define MT_MODULE_NATIVE 1u
#define MT_MODULE_BYTECODE 2u
#define MT_MODULE_NAMES_KEY 0x100u /* added to the kind: the image ends with the signer's next public key */
#define MT_MODULE_KEY_BYTES 32u
#define MT_MODULE_VERSION 1u

/* Machine: bits 0-7 the architecture, 8-15 how floats are passed, 16-31 the extensions that the code needs. */
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

/* Arguments of a module's entry point instead of an operator's number. */
#define MT_MODULE_RUN 0xFFFFu       /* one inference */
#define MT_MODULE_BEGIN 0xFFFEu     /* initialize the states */

struct mt_module;
struct mt_module_view;
struct mt_slots;

/* A function of the firmware that modules may import. */
struct mt_export {
    uint32_t hash;      /* FNV-1a, 32 bits, of its declaration, as "float expf(float)" */
    void (*address)(void);
};

/* The C library's functions that modules may import (crt/modules/mt_module_exports.c). */
extern const struct mt_export mt_module_exports[];
extern const uint32_t mt_module_export_count;

/* The implementation of a kind of module; a firmware has one for each kind that it supports. */
struct mt_module_kind {
    uint32_t kind;      /* MT_MODULE_NATIVE or MT_MODULE_BYTECODE */
    /* Check the parts of a module that are specific to its kind, before it runs. Size, hash, signature, tensors and
     * imports were checked already. MT_OK, or any status of mt_module_check. */
    int32_t (*check)(const struct mt_module_view *view);
    /* Run an operator, MT_MODULE_RUN, or MT_MODULE_BEGIN. */
    int32_t (*call)(const struct mt_module *module, uint32_t number);
};

extern const struct mt_module_kind mt_module_native;
extern const struct mt_module_kind mt_module_bytecode;

/* What the firmware supports and the device has stored. */
struct mt_module_host {
    const struct mt_export *exports;        /* in ascending order of hash */
    uint32_t export_count;
    uint32_t machine;                       /* mt_module_machine(), or a subset */
    const uint8_t (*keys)[MT_MODULE_KEY_BYTES]; /* public keys (Ed25519) of the accepted signers */
    uint32_t key_count;
    /* The key that has replaced one; NULL: none has. NULL instead of the function: no key is ever replaced. */
    const uint8_t *(*next_key)(const struct mt_module_host *host, const uint8_t *key);
    const struct mt_slots *slots;           /* for next_key: where the loader keeps the replaced keys */
    uint8_t takes_replaced;                 /* not 0: signatures of replaced keys are also accepted */
    uint8_t takes_unsigned;                 /* not 0: for development; unsigned modules are also accepted */
    uint32_t least_counter;                 /* modules with a lower counter are refused */
    const struct mt_module_kind *const *kinds;  /* the supported kinds; ends with NULL */
    void *ram;                              /* for one module; aligned to 32 bytes, or to its arena's alignment */
    uint32_t ram_bytes;
};

/* A module's parts, after its sizes were checked. Pointers are into the file. */
struct mt_module_view {
    /* The header's numbers, in its order. */
    uint32_t file_bytes, kind, version, machine, counter, alignment, image_bytes, code_bytes, entry, input_count;
    uint32_t output_count, import_count, operator_count, description_bytes, arena_bytes, arena_alignment, stack_bytes;
    const uint8_t *bytes;
    uint32_t imports_at, description_at, image_at; /* from the file's start */
    const uint8_t *tensors;     /* inputs, then outputs: 8 bytes each */
    const uint8_t *imports;     /* 4 bytes each */
    const uint8_t *description; /* JSON for the host; not read by the device */
    const uint8_t *image;       /* code, then constants; aligned to the header's alignment */
    const uint8_t *next_key;    /* the key that replaces the signer's; NULL: none */
    uint32_t table_offset;      /* the imports' addresses, from the start of the RAM */
    uint32_t tensors_offset;    /* the struct mt_tensor after them */
    uint32_t ram_bytes;         /* the RAM that it needs */
    const struct mt_export *exports; /* of the host that it was checked for */
    uint32_t export_count;
};

/* An open module. `model` is the first member, so that its `run` and `step` find the others. */
struct mt_module {
    struct mt_model model;
    struct mt_module_view view;
    const struct mt_module_kind *kind;
    void (*const *table)(void); /* the imports' addresses */
#ifdef MT_PROTECT
    struct mt_protect_area areas[4]; /* what it may access under memory protection */
#endif
    char name[MT_MODULE_NAME_BYTES];
    char hash[2 * MT_MODULE_MODEL_HASH_BYTES + 1];
};

/* This firmware's core and ABI, in the format of a module's machine. */
uint32_t mt_module_machine(void);

/* Check the first MT_MODULE_HEAD_BYTES of a module: sizes, machine, memory, counter, and the signature, which covers
 * these and the hash of the rest. A loader calls this before it erases anything. MT_BAD_MODULE, MT_BAD_SIGNATURE,
 * MT_OLD_MODULE, MT_WRONG_MACHINE, MT_NO_MEMORY. Fills `view`, except for pointers. */
/*@ requires \valid_read(head + (0 .. 271)) && \valid_read(host) && \valid(view); */
int32_t mt_module_check_head(const uint8_t *head, const struct mt_module_host *host, struct mt_module_view *view);

/* The accepted key that signed a header; NULL: none did. */
const uint8_t *mt_module_signer(const uint8_t *head, const struct mt_module_host *host);

/* Check a module of `bytes` bytes: the header, the size, the hash; that tensors lie in the arena, that imports
 * exist, and the checks of its kind. Nothing is written, and no code of it runs. MT_MISSING_IMPORT, and those above. */
/*@ requires \valid_read(module + (0 .. bytes - 1)) && \valid_read(host); */
int32_t mt_module_check(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host);

/* Check it, fill the RAM and initialize states. `opened` and the RAM must stay while the model is used;
 * `opened->model.next` is NULL. Returns a status of mt_module_check, or of the module's entry point. */
/*@ requires \valid_read(module + (0 .. bytes - 1)) && \valid_read(host) && \valid(opened);
    requires \valid((uint8_t *)host->ram + (0 .. host->ram_bytes - 1)); */
int32_t mt_module_open(const uint8_t *module, uint32_t bytes, const struct mt_module_host *host,
                       struct mt_module *opened);

/* The address of the export with that hash; NULL: there is none. */
void (*mt_module_find(const struct mt_export *exports, uint32_t count, uint32_t hash))(void);

#ifdef __cplusplus
}
#endif

#endif
