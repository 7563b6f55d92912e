/* Internal to mtool: applications include mtool.h. */
/* The graph executor: reads a graph in the JSON format of TVM's graph executor and calls its operators, packed
 * functions, one by one. All memory is the caller's; no JSON, however malformed, leads to accesses outside of it.
 * docs/executors.md has the schema. */
#ifndef MT_GRAPH_H
#define MT_GRAPH_H

#include <stdint.h>

#include "mt_functions.h"
#include "mtool.h"
#include "mt_packed.h"

/* A node: an input, an operator, or a reshape, which does nothing. */
struct mt_graph_node {
    mt_packed *function;        /* NULL: no operation */
    uint16_t first_tensor;      /* of its outputs */
    uint16_t tensors;
    uint16_t first_argument;    /* its tensors, inputs first, as indices into `arguments` */
    uint16_t arguments;
};

/* A tensor's place: `place` bytes into the arena, or the `place`-th input or output. */
struct mt_graph_place {
    uint32_t place;
    uint8_t memory;             /* MT_INPUTS, MT_OUTPUTS or MT_ARENA_BYTES of mt_protocol.h */
};

/* What the model provides: the graph, the functions, the memory that tensors may lie in, and memory for the
 * executor. */
struct mt_graph_config {
    const char *json;
    uint32_t json_bytes;
    const struct mt_function *functions;
    uint16_t function_count;
    uint8_t *arena;                     /* NULL: the model has none */
    uint32_t arena_bytes;
    const struct mt_tensor *inputs;     /* their addresses may change from run to run */
    const struct mt_tensor *outputs;
    uint8_t input_count;
    uint8_t output_count;
    uint16_t most_nodes;                /* elements of `nodes` */
    uint16_t most_tensors;              /* of `tensors` and `places` */
    uint16_t most_arguments;            /* of `arguments`: the sum over all nodes */
    uint16_t most_values;               /* of `values` and `codes`: the most arguments of one node */
    uint16_t most_dims;                 /* of `dims`: the sum over all tensors */
    struct mt_graph_node *nodes;
    DLTensor *tensors;
    struct mt_graph_place *places;
    uint16_t *arguments;
    union mt_value *values;
    int32_t *codes;
    int64_t *dims;
};

struct mt_graph {
    const struct mt_graph_config *config;
    uint16_t nodes;
    uint16_t tensors;
    uint16_t arguments;
    uint16_t dims;
};

/* Read the JSON; the inputs and outputs must have their addresses. MT_BAD_GRAPH: it is malformed, or does not match
 * the inputs and outputs. MT_TOO_LARGE: an array is too small. MT_UNKNOWN_FUNCTION: an operator is not among the
 * functions. MT_BAD_RANGE: a tensor lies outside its memory. */
int32_t mt_graph_open(struct mt_graph *graph, const struct mt_graph_config *config);

/* Run all operators. Returns MT_OK, or the first other status of an operator. */
int32_t mt_graph_run(struct mt_graph *graph);

/* Run one operator, numbered from 0 in order; inputs and reshapes do not count. MT_BAD_INDEX: there is no such
 * operator. */
int32_t mt_graph_step(struct mt_graph *graph, uint16_t number);

#endif
