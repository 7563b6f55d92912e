#include "mt_graph.h"

#include <stddef.h>
#include <string.h>

#include "mt_json.h"
#include "mt_protocol.h"
#include "mtool.h"

/* Find the list that TVM writes as ["list_int", [...]] or similar, and step into it. */
static struct mt_json find_list(struct mt_json attributes, const char *key, const char *kind)
{
    struct mt_json json = mt_json_find(attributes, key);
    mt_json_expect(&json, '[');
    if (!mt_json_is(mt_json_read_text(&json), kind)) {
        json.failed = 1;
    }
    mt_json_expect(&json, ',');
    mt_json_expect(&json, '[');
    return json;
}

/* Read [node, index, version] of a node before `nodes`; return the tensor's number. */
static uint16_t read_reference(struct mt_json *json, const struct mt_graph *graph, uint16_t nodes)
{
    mt_json_expect(json, '[');
    const uint32_t node = mt_json_read_number(json);
    mt_json_expect(json, ',');
    const uint32_t index = mt_json_read_number(json);
    mt_json_expect(json, ',');
    (void)mt_json_read_number(json);
    mt_json_expect(json, ']');
    if (json->failed || node >= nodes || index >= graph->config->nodes[node].tensors) {
        json->failed = 1;
        return 0;
    }
    return (uint16_t)(graph->config->nodes[node].first_tensor + index);
}

static int32_t add_argument(struct mt_graph *graph, uint16_t tensor)
{
    if (graph->arguments >= graph->config->most_arguments) {
        return MT_TOO_LARGE;
    }
    graph->config->arguments[graph->arguments++] = tensor;
    return MT_OK;
}

static mt_packed *function_of(const struct mt_graph_config *config, struct mt_json_text name)
{
    for (uint16_t i = 0; i < config->function_count; ++i) {
        if (mt_json_is(name, config->functions[i].name)) {
            return config->functions[i].function;
        }
    }
    return NULL;
}

/* Read a node's function and its number of output tensors. */
static int32_t read_operator(struct mt_json object, const struct mt_graph_config *config, struct mt_graph_node *node)
{
    struct mt_json op = mt_json_find(object, "op");
    const struct mt_json_text kind = mt_json_read_text(&op);
    node->function = NULL;
    node->tensors = 1;
    if (op.failed || mt_json_is(kind, "null")) {
        return op.failed ? MT_BAD_GRAPH : MT_OK;
    }
    const struct mt_json attributes = mt_json_find(object, "attrs");
    struct mt_json outputs = mt_json_find(attributes, "num_outputs");
    struct mt_json name = mt_json_find(attributes, "func_name");
    const uint32_t count = mt_json_read_quoted_number(&outputs);
    const struct mt_json_text function = mt_json_read_text(&name);
    if (!mt_json_is(kind, "tvm_op") || outputs.failed || name.failed || count > config->most_tensors) {
        return MT_BAD_GRAPH;
    }
    node->tensors = (uint16_t)count;
    node->function = function_of(config, function);
    return node->function != NULL || mt_json_is(function, "__nop") ? MT_OK : MT_UNKNOWN_FUNCTION;
}

/* Read a node: its function, its inputs, its outputs. */
static int32_t read_node(struct mt_json object, struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    struct mt_graph_node *const node = &config->nodes[graph->nodes];
    int32_t status = read_operator(object, config, node);
    struct mt_json inputs = mt_json_find(object, "inputs");
    node->first_tensor = graph->tensors;
    node->first_argument = graph->arguments;
    mt_json_expect(&inputs, '[');
    for (int is_first = 1; status == MT_OK && mt_json_next(&inputs, is_first, ']'); is_first = 0) {
        const uint16_t tensor = read_reference(&inputs, graph, graph->nodes);
        status = inputs.failed ? MT_BAD_GRAPH : add_argument(graph, tensor);
    }
    if (status == MT_OK && node->tensors > config->most_tensors - graph->tensors) {
        status = MT_TOO_LARGE;
    }
    for (uint16_t i = 0; i < node->tensors && status == MT_OK; ++i) {
        status = add_argument(graph, graph->tensors++);
    }
    node->arguments = (uint16_t)(graph->arguments - node->first_argument);
    if (status == MT_OK && node->function != NULL && node->arguments > config->most_values) {
        status = MT_TOO_LARGE;
    }
    return status == MT_OK && inputs.failed ? MT_BAD_GRAPH : status;
}

static int32_t read_nodes(struct mt_json json, struct mt_graph *graph)
{
    mt_json_expect(&json, '[');
    for (int is_first = 1; mt_json_next(&json, is_first, ']'); is_first = 0) {
        if (graph->nodes >= graph->config->most_nodes) {
            return MT_TOO_LARGE;
        }
        const int32_t status = read_node(json, graph);
        if (status != MT_OK) {
            return status;
        }
        ++graph->nodes;
        mt_json_skip(&json);
    }
    return json.failed ? MT_BAD_GRAPH : MT_OK;
}

/* Read an element type by its NumPy name. A 4-bit integer is stored in a byte. */
static int read_dtype(struct mt_json_text name, DLDataType *dtype)
{
    static const struct {
        const char *name;
        uint8_t code;
        uint8_t bits;
    } dtypes[] = {
        {"int4", kDLInt, 8},       {"int8", kDLInt, 8},       {"int16", kDLInt, 16},     {"int32", kDLInt, 32},
        {"int64", kDLInt, 64},     {"uint4", kDLUInt, 8},     {"uint8", kDLUInt, 8},     {"uint16", kDLUInt, 16},
        {"uint32", kDLUInt, 32},   {"uint64", kDLUInt, 64},   {"float16", kDLFloat, 16}, {"bfloat16", kDLBfloat, 16},
        {"float32", kDLFloat, 32}, {"float64", kDLFloat, 64}, {"bool", kDLBool, 8},
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
        if (mt_json_is(name, dtypes[i].name)) {
            dtype->code = dtypes[i].code;
            dtype->bits = dtypes[i].bits;
            dtype->lanes = 1;
            return 1;
        }
    }
    return 0;
}

/* Read a tensor's shape; *bytes is the tensor's size. */
static int32_t read_shape(struct mt_json *json, struct mt_graph *graph, DLTensor *tensor, uint64_t *bytes)
{
    tensor->shape = graph->config->dims + graph->dims;
    *bytes = tensor->dtype.bits / 8u;
    mt_json_expect(json, '[');
    for (int is_first = 1; mt_json_next(json, is_first, ']'); is_first = 0) {
        const uint32_t dim = mt_json_read_number(json);
        if (graph->dims >= graph->config->most_dims) {
            return MT_TOO_LARGE;
        }
        *bytes *= dim;
        if (*bytes > UINT32_MAX) {
            return MT_BAD_RANGE;
        }
        tensor->shape[tensor->ndim++] = dim;
        ++graph->dims;
    }
    return json->failed ? MT_BAD_GRAPH : MT_OK;
}

/* Return the tensor's address; NULL: it does not lie in that memory as a whole, or is not aligned to its elements. */
static void *locate(const struct mt_graph_config *config, struct mt_graph_place place, uint64_t bytes, uint32_t size)
{
    uint8_t *data = NULL;
    if (place.memory == MT_INPUTS && place.place < config->input_count && bytes <= config->inputs[place.place].bytes) {
        data = config->inputs[place.place].data;
    } else if (place.memory == MT_OUTPUTS && place.place < config->output_count &&
               bytes <= config->outputs[place.place].bytes) {
        data = config->outputs[place.place].data;
    } else if (place.memory == MT_ARENA_BYTES && config->arena != NULL && place.place <= config->arena_bytes &&
               bytes <= config->arena_bytes - place.place) {
        data = config->arena + place.place;
    }
    return (uintptr_t)data % size == 0 ? data : NULL;
}

static uint64_t bytes_of(const DLTensor *tensor)
{
    uint64_t bytes = tensor->dtype.bits / 8u;
    for (int32_t i = 0; i < tensor->ndim; ++i) {
        bytes *= (uint64_t)tensor->shape[i];
    }
    return bytes;
}

/* Read the type, shape and place of every tensor. */
static int32_t read_tensors(struct mt_json attributes, struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    struct mt_json dtypes = find_list(attributes, "dltype", "list_str");
    struct mt_json shapes = find_list(attributes, "shape", "list_shape");
    struct mt_json memories = find_list(attributes, "storage_memory", "list_int");
    struct mt_json places = find_list(attributes, "storage_place", "list_int");
    struct mt_json *const lists[] = {&dtypes, &shapes, &memories, &places};
    for (uint16_t i = 0; i < graph->tensors; ++i) {
        DLTensor *const tensor = &config->tensors[i];
        uint64_t bytes = 0;
        memset(tensor, 0, sizeof *tensor);
        tensor->device.device_type = kDLCPU;
        for (size_t list = 0; list < sizeof lists / sizeof *lists; ++list) {
            if (i > 0) {
                mt_json_expect(lists[list], ',');
            }
        }
        if (!read_dtype(mt_json_read_text(&dtypes), &tensor->dtype)) {
            return MT_BAD_GRAPH;
        }
        const int32_t status = read_shape(&shapes, graph, tensor, &bytes);
        const uint32_t memory = mt_json_read_number(&memories);
        config->places[i].place = mt_json_read_number(&places);
        config->places[i].memory = (uint8_t)memory;
        if (status != MT_OK || dtypes.failed || memories.failed || places.failed || memory > MT_ARENA_BYTES) {
            return status != MT_OK ? status : MT_BAD_GRAPH;
        }
        tensor->data = locate(config, config->places[i], bytes, tensor->dtype.bits / 8u);
        if (tensor->data == NULL) {
            return MT_BAD_RANGE;
        }
    }
    for (size_t list = 0; list < sizeof lists / sizeof *lists; ++list) {
        mt_json_expect(lists[list], ']');
        if (lists[list]->failed) {
            return MT_BAD_GRAPH;
        }
    }
    return MT_OK;
}

/* Check that the outputs are those of the model. */
static int32_t check_heads(struct mt_json json, const struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    uint32_t count = 0;
    mt_json_expect(&json, '[');
    for (int is_first = 1; mt_json_next(&json, is_first, ']'); is_first = 0, ++count) {
        const DLTensor *const tensor = &config->tensors[read_reference(&json, graph, graph->nodes)];
        if (json.failed || count >= config->output_count || tensor->data != config->outputs[count].data ||
            bytes_of(tensor) != config->outputs[count].bytes) {
            return MT_BAD_GRAPH;
        }
    }
    return json.failed || count != config->output_count ? MT_BAD_GRAPH : MT_OK;
}

/* The same for the inputs, the nodes that `arg_nodes` lists. */
static int32_t check_arguments(struct mt_json json, const struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    uint32_t count = 0;
    mt_json_expect(&json, '[');
    for (int is_first = 1; mt_json_next(&json, is_first, ']'); is_first = 0, ++count) {
        const uint32_t node = mt_json_read_number(&json);
        if (json.failed || node >= graph->nodes || count >= config->input_count || config->nodes[node].tensors != 1) {
            return MT_BAD_GRAPH;
        }
        const DLTensor *const tensor = &config->tensors[config->nodes[node].first_tensor];
        if (tensor->data != config->inputs[count].data || bytes_of(tensor) != config->inputs[count].bytes) {
            return MT_BAD_GRAPH;
        }
    }
    return json.failed || count != config->input_count ? MT_BAD_GRAPH : MT_OK;
}

int32_t mt_graph_open(struct mt_graph *graph, const struct mt_graph_config *config)
{
    const struct mt_json json = {config->json, config->json + config->json_bytes, 0};
    memset(graph, 0, sizeof *graph);
    graph->config = config;
    int32_t status = read_nodes(mt_json_find(json, "nodes"), graph);
    if (status == MT_OK) {
        status = read_tensors(mt_json_find(json, "attrs"), graph);
    }
    if (status == MT_OK) {
        status = check_heads(mt_json_find(json, "heads"), graph);
    }
    if (status == MT_OK) {
        status = check_arguments(mt_json_find(json, "arg_nodes"), graph);
    }
    if (status != MT_OK) {
        graph->nodes = 0; /* none of its nodes is run */
    }
    return status;
}

static int32_t run_node(const struct mt_graph *graph, const struct mt_graph_node *node)
{
    const struct mt_graph_config *const config = graph->config;
    union mt_value returned;
    int32_t returned_code = MT_ARG_NULL;
    returned.v_int64 = 0;
    for (uint16_t i = 0; i < node->arguments; ++i) {
        const uint16_t number = config->arguments[node->first_argument + i];
        DLTensor *const tensor = &config->tensors[number];
        const struct mt_graph_place place = config->places[number];
        if (place.memory != MT_ARENA_BYTES) { /* the caller may have moved it */
            tensor->data = (place.memory == MT_INPUTS ? config->inputs : config->outputs)[place.place].data;
        }
        config->values[i].v_handle = tensor;
        config->codes[i] = MT_ARG_TENSOR;
    }
    return node->function(config->values, config->codes, node->arguments, &returned, &returned_code, NULL);
}

int32_t mt_graph_run(struct mt_graph *graph)
{
    int32_t status = MT_OK;
    for (uint16_t i = 0; i < graph->nodes && status == MT_OK; ++i) {
        if (graph->config->nodes[i].function != NULL) {
            status = run_node(graph, &graph->config->nodes[i]);
        }
    }
    return status;
}

int32_t mt_graph_step(struct mt_graph *graph, uint16_t number)
{
    for (uint16_t i = 0; i < graph->nodes; ++i) {
        const struct mt_graph_node *const node = &graph->config->nodes[i];
        if (node->function != NULL && number-- == 0) {
            return run_node(graph, node);
        }
    }
    return MT_BAD_INDEX;
}
