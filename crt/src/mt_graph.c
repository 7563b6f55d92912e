#include "mt_graph.h"

#include <stddef.h>
#include <string.h>

#include "mt_protocol.h"
#include "mt_status.h"

/* Most levels of lists and objects in one another. The schema needs 5; a level is a bit here, so that what closes can
 * be held against what opened without recursion. */
#define MOST_LEVELS 16u

/* A piece of the JSON that is being read. A failed read leaves `failed` set, and all later ones do nothing. */
struct reader {
    const char *at;
    const char *end;
    uint8_t failed;
};

struct text {
    const char *begin;
    size_t count;
};

static char peek(struct reader *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t')) {
        ++json->at;
    }
    return json->at < json->end && !json->failed ? *json->at : '\0';
}

/* Take a character if it is the next one. */
static int take(struct reader *json, char wanted)
{
    if (peek(json) != wanted || wanted == '\0') {
        return 0;
    }
    ++json->at;
    return 1;
}

static void expect(struct reader *json, char wanted)
{
    if (!take(json, wanted)) {
        json->failed = 1;
    }
}

/* Read a string as it stands; escapes are not resolved, as no name of ours has one. */
static struct text read_text(struct reader *json)
{
    struct text text = {json->at, 0};
    expect(json, '"');
    text.begin = json->at;
    while (!json->failed && json->at < json->end && *json->at != '"') {
        json->at += *json->at == '\\' && json->end - json->at > 1 ? 2 : 1;
    }
    text.count = (size_t)(json->at - text.begin);
    expect(json, '"');
    return text;
}

static int is(struct text text, const char *word)
{
    return strlen(word) == text.count && memcmp(text.begin, word, text.count) == 0;
}

/* Read a number of digits alone, up to 2^32 - 1. */
static uint32_t read_number(struct reader *json)
{
    uint64_t number = 0;
    if (peek(json) < '0' || peek(json) > '9') {
        json->failed = 1;
    }
    while (!json->failed && json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        number = number * 10u + (uint64_t)(*json->at++ - '0');
        if (number > UINT32_MAX) {
            json->failed = 1;
        }
    }
    return json->failed ? 0 : (uint32_t)number;
}

/* The same in quotation marks, as TVM writes attributes. */
static uint32_t read_quoted_number(struct reader *json)
{
    expect(json, '"');
    const uint32_t number = read_number(json);
    expect(json, '"');
    return number;
}

static void skip_word(struct reader *json)
{
    const char *const begin = json->at;
    while (json->at < json->end && strchr(",]}: \n\r\t", *json->at) == NULL) {
        ++json->at;
    }
    if (json->at == begin) {
        json->failed = 1;
    }
}

/* Skip a value of any kind. */
static void skip(struct reader *json)
{
    uint32_t objects = 0; /* a bit a level: whether it is an object */
    uint32_t level = 0;
    do {
        const char next = peek(json);
        if (next == '{' || next == '[') {
            ++json->at;
            objects = objects << 1 | (next == '{' ? 1u : 0u);
            if (++level > MOST_LEVELS) {
                json->failed = 1;
            }
        } else if (level > 0 && next == ((objects & 1u) ? '}' : ']')) {
            ++json->at;
            objects >>= 1;
            --level;
        } else if (next == '"') {
            (void)read_text(json);
        } else if (level > 0 && (next == ',' || (next == ':' && (objects & 1u)))) {
            ++json->at;
        } else if (next == '\0') {
            json->failed = 1;
        } else {
            skip_word(json);
        }
    } while (level > 0 && !json->failed);
}

/* Step to the next element of a list or an object, whose opening bracket has been taken; 0 at its end. */
static int next_element(struct reader *json, int is_first, char closing)
{
    if (take(json, closing)) {
        return 0;
    }
    if (!is_first) {
        expect(json, ',');
    }
    return !json->failed;
}

/* Find the value of a key in the object at which the reader stands. */
static struct reader find(struct reader object, const char *key)
{
    struct reader found = object;
    found.failed = 1;
    expect(&object, '{');
    for (int is_first = 1; next_element(&object, is_first, '}'); is_first = 0) {
        const struct text name = read_text(&object);
        expect(&object, ':');
        if (!object.failed && is(name, key)) {
            return object;
        }
        skip(&object);
    }
    return found;
}

/* Find the list that TVM writes as ["list_int", [...]] or the like, and step into it. */
static struct reader find_list(struct reader attributes, const char *key, const char *kind)
{
    struct reader json = find(attributes, key);
    expect(&json, '[');
    if (!is(read_text(&json), kind)) {
        json.failed = 1;
    }
    expect(&json, ',');
    expect(&json, '[');
    return json;
}

/* Read [node, index, version] and return the tensor's number, of a node before `nodes`. */
static uint16_t read_reference(struct reader *json, const struct mt_graph *graph, uint16_t nodes)
{
    expect(json, '[');
    const uint32_t node = read_number(json);
    expect(json, ',');
    const uint32_t index = read_number(json);
    expect(json, ',');
    (void)read_number(json);
    expect(json, ']');
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

static mt_packed *function_of(const struct mt_graph_config *config, struct text name)
{
    for (uint16_t i = 0; i < config->function_count; ++i) {
        if (is(name, config->functions[i].name)) {
            return config->functions[i].function;
        }
    }
    return NULL;
}

/* Read what a node computes and how many tensors that gives. */
static int32_t read_operator(struct reader object, const struct mt_graph_config *config, struct mt_graph_node *node)
{
    struct reader op = find(object, "op");
    const struct text kind = read_text(&op);
    node->function = NULL;
    node->tensors = 1;
    if (op.failed || is(kind, "null")) {
        return op.failed ? MT_BAD_GRAPH : MT_OK;
    }
    const struct reader attributes = find(object, "attrs");
    struct reader outputs = find(attributes, "num_outputs");
    struct reader name = find(attributes, "func_name");
    const uint32_t count = read_quoted_number(&outputs);
    const struct text function = read_text(&name);
    if (!is(kind, "tvm_op") || outputs.failed || name.failed || count > config->most_tensors) {
        return MT_BAD_GRAPH;
    }
    node->tensors = (uint16_t)count;
    node->function = function_of(config, function);
    return node->function != NULL || is(function, "__nop") ? MT_OK : MT_UNKNOWN_FUNCTION;
}

/* Read a node: its function, what it reads, what it writes. */
static int32_t read_node(struct reader object, struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    struct mt_graph_node *const node = &config->nodes[graph->nodes];
    int32_t status = read_operator(object, config, node);
    struct reader inputs = find(object, "inputs");
    node->first_tensor = graph->tensors;
    node->first_argument = graph->arguments;
    expect(&inputs, '[');
    for (int is_first = 1; status == MT_OK && next_element(&inputs, is_first, ']'); is_first = 0) {
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

static int32_t read_nodes(struct reader json, struct mt_graph *graph)
{
    expect(&json, '[');
    for (int is_first = 1; next_element(&json, is_first, ']'); is_first = 0) {
        if (graph->nodes >= graph->config->most_nodes) {
            return MT_TOO_LARGE;
        }
        const int32_t status = read_node(json, graph);
        if (status != MT_OK) {
            return status;
        }
        ++graph->nodes;
        skip(&json);
    }
    return json.failed ? MT_BAD_GRAPH : MT_OK;
}

/* Read an element type by its name in NumPy. A 4-bit integer takes a byte. */
static int read_dtype(struct text name, DLDataType *dtype)
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
        if (is(name, dtypes[i].name)) {
            dtype->code = dtypes[i].code;
            dtype->bits = dtypes[i].bits;
            dtype->lanes = 1;
            return 1;
        }
    }
    return 0;
}

/* Read a tensor's shape, and say in *bytes what it takes. */
static int32_t read_shape(struct reader *json, struct mt_graph *graph, DLTensor *tensor, uint64_t *bytes)
{
    tensor->shape = graph->config->dims + graph->dims;
    *bytes = tensor->dtype.bits / 8u;
    expect(json, '[');
    for (int is_first = 1; next_element(json, is_first, ']'); is_first = 0) {
        const uint32_t dim = read_number(json);
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

/* Return the tensor's address, or NULL if so many bytes do not lie there, or not aligned to its elements. */
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

/* Read the type, the shape and the place of every tensor. */
static int32_t read_tensors(struct reader attributes, struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    struct reader dtypes = find_list(attributes, "dltype", "list_str");
    struct reader shapes = find_list(attributes, "shape", "list_shape");
    struct reader memories = find_list(attributes, "storage_memory", "list_int");
    struct reader places = find_list(attributes, "storage_place", "list_int");
    struct reader *const lists[] = {&dtypes, &shapes, &memories, &places};
    for (uint16_t i = 0; i < graph->tensors; ++i) {
        DLTensor *const tensor = &config->tensors[i];
        uint64_t bytes = 0;
        memset(tensor, 0, sizeof *tensor);
        tensor->device.device_type = kDLCPU;
        for (size_t list = 0; list < sizeof lists / sizeof *lists; ++list) {
            if (i > 0) {
                expect(lists[list], ',');
            }
        }
        if (!read_dtype(read_text(&dtypes), &tensor->dtype)) {
            return MT_BAD_GRAPH;
        }
        const int32_t status = read_shape(&shapes, graph, tensor, &bytes);
        const uint32_t memory = read_number(&memories);
        config->places[i].place = read_number(&places);
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
        expect(lists[list], ']');
        if (lists[list]->failed) {
            return MT_BAD_GRAPH;
        }
    }
    return MT_OK;
}

/* Check that the outputs are where the model has them. */
static int32_t check_heads(struct reader json, const struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    uint32_t count = 0;
    expect(&json, '[');
    for (int is_first = 1; next_element(&json, is_first, ']'); is_first = 0, ++count) {
        const DLTensor *const tensor = &config->tensors[read_reference(&json, graph, graph->nodes)];
        if (json.failed || count >= config->output_count || tensor->data != config->outputs[count].data ||
            bytes_of(tensor) != config->outputs[count].bytes) {
            return MT_BAD_GRAPH;
        }
    }
    return json.failed || count != config->output_count ? MT_BAD_GRAPH : MT_OK;
}

/* The same for the inputs: the nodes that `arg_nodes` lists. */
static int32_t check_arguments(struct reader json, const struct mt_graph *graph)
{
    const struct mt_graph_config *const config = graph->config;
    uint32_t count = 0;
    expect(&json, '[');
    for (int is_first = 1; next_element(&json, is_first, ']'); is_first = 0, ++count) {
        const uint32_t node = read_number(&json);
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
    const struct reader json = {config->json, config->json + config->json_bytes, 0};
    memset(graph, 0, sizeof *graph);
    graph->config = config;
    int32_t status = read_nodes(find(json, "nodes"), graph);
    if (status == MT_OK) {
        status = read_tensors(find(json, "attrs"), graph);
    }
    if (status == MT_OK) {
        status = check_heads(find(json, "heads"), graph);
    }
    if (status == MT_OK) {
        status = check_arguments(find(json, "arg_nodes"), graph);
    }
    if (status != MT_OK) {
        graph->nodes = 0; /* nothing of it is run */
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
