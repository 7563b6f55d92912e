/* A compiled model, as the RPC server sees it. The code generator writes one for each model, in
 * <model>_rpc.c; a standalone firmware does not link it. */
#ifndef MT_MODEL_H
#define MT_MODEL_H

#include <stdint.h>

struct mt_device_failure; /* mt_device.h */
struct mt_functions; /* mt_functions.h */
struct mt_protect_area; /* mt_protect.h */

struct mt_tensor {
    void *data;
    uint32_t bytes;
};

/* An input that the model takes by rows, so that it is never whole in memory. */
struct mt_stream {
    uint8_t input;              /* which of the inputs */
    uint16_t rows;              /* of it, at least 2 */
    void *row;                  /* memory for one, which `inputs` has in its place */
    uint32_t row_bytes;
    int32_t (*begin)(void);     /* begins an inference, and forgets one that is under way; 0 on success */
    int32_t (*feed)(void);      /* computes what the row in memory makes possible: the next one, in their order */
};

struct mt_model {
    const char *name;
    const char *model_hash;             /* SHA-256 of the ONNX file, 64 hex digits */
    const struct mt_tensor *inputs;     /* in the model's order */
    const struct mt_tensor *outputs;
    uint8_t input_count;
    uint8_t output_count;
    uint16_t operator_count;
    uint8_t *arena;                     /* NULL: the model has none */
    uint32_t arena_bytes;
    /* One inference of this model: reads the inputs, writes the outputs; 0 on success. It may overwrite the inputs. With
     * a stream, the rest of one, behind the last row; MT_BAD_ORDER: rows are missing. */
    int32_t (*run)(const struct mt_model *model);
    int32_t (*step)(const struct mt_model *model, uint16_t number); /* the same in steps: one operator, from 0 in order */
    const struct mt_functions *functions;   /* what a host can call by name; NULL: nothing */
    const struct mt_device_failure *failure;    /* what failed where `run` or `step` returns MT_DEVICE; NULL: they
                                                 * do not */
    const struct mt_stream *stream;     /* NULL: all inputs are whole */
    const struct mt_protect_area *areas;    /* what it may have while it runs, in a firmware with a fence */
    uint8_t area_count;
    const struct mt_model *next;        /* another model of the same firmware; NULL: there is none */
    const struct mt_tensor *pools;      /* an arena in several memories: those after the first */
    uint8_t pool_count;                 /* how many */
};

extern const struct mt_model mt_model; /* the first model of the firmware */

/* The `index`-th model of a firmware, from the first on; NULL: it has fewer. */
const struct mt_model *mt_model_at(const struct mt_model *first, uint8_t index);

/* Find `length` bytes, `offset` bytes from the start of an input, an output or a pool of the arena: the `index`-th of
 * `kind`, as in mt_protocol.h; an arena in one piece is the first. An empty piece may be nowhere: then *bytes stays as it is. MT_BAD_INDEX: there is no such tensor.
 * MT_BAD_RANGE: it has not so many bytes. */
int32_t mt_model_find(const struct mt_model *model, uint8_t kind, uint8_t index, uint32_t offset, uint32_t length,
                      uint8_t **bytes);

#endif
