/* Read graphs from standard input (4 bytes of length, little-endian, and the JSON), open and run each, and print
 * both statuses. Arguments: the arena's size; the capacity for nodes, tensors, arguments, values and dims; offset
 * and size of the one input and the one output in the arena; the functions' names. Every function reads and writes
 * each byte of its tensors, so that the sanitizers notice if they lie outside the arena. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_graph.h"
#include "mtool.h"

#define FIRST_NAME 11

static void *room(size_t count, size_t size)
{
    void *const bytes = calloc(count, size);
    if (bytes == NULL && count > 0) {
        abort();
    }
    return bytes;
}

static int32_t touch(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                     int32_t *result_code, void *resource)
{
    (void)result;
    (void)result_code;
    (void)resource;
    for (int32_t i = 0; i < count; ++i) {
        const DLTensor *const tensor = arguments[i].v_handle;
        uint64_t bytes = tensor->dtype.bits / 8u;
        if (type_codes[i] != MT_ARG_TENSOR) {
            return MT_BAD_TYPE;
        }
        for (int32_t axis = 0; axis < tensor->ndim; ++axis) {
            bytes *= (uint64_t)tensor->shape[axis];
        }
        for (uint64_t at = 0; at < bytes; ++at) {
            ++((uint8_t *)tensor->data)[at];
        }
    }
    return MT_OK;
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    if (argc < FIRST_NAME) {
        return 1;
    }
    const uint16_t count = (uint16_t)(argc - FIRST_NAME);
    struct mt_function *const functions = room(count, sizeof *functions);
    for (uint16_t i = 0; i < count; ++i) {
        functions[i].name = argv[FIRST_NAME + i];
        functions[i].function = touch;
    }
    uint8_t *const arena = room(number(argv[1]), 1);
    const struct mt_tensor input = {arena + number(argv[7]), number(argv[8])};
    const struct mt_tensor output = {arena + number(argv[9]), number(argv[10])};
    struct mt_graph_config config = {
        .functions = functions,
        .function_count = count,
        .arena = arena,
        .arena_bytes = number(argv[1]),
        .inputs = &input,
        .outputs = &output,
        .input_count = 1,
        .output_count = 1,
        .most_nodes = (uint16_t)number(argv[2]),
        .most_tensors = (uint16_t)number(argv[3]),
        .most_arguments = (uint16_t)number(argv[4]),
        .most_values = (uint16_t)number(argv[5]),
        .most_dims = (uint16_t)number(argv[6]),
    };
    config.nodes = room(config.most_nodes, sizeof *config.nodes);
    config.tensors = room(config.most_tensors, sizeof *config.tensors);
    config.places = room(config.most_tensors, sizeof *config.places);
    config.arguments = room(config.most_arguments, sizeof *config.arguments);
    config.values = room(config.most_values, sizeof *config.values);
    config.codes = room(config.most_values, sizeof *config.codes);
    config.dims = room(config.most_dims, sizeof *config.dims);
    for (uint32_t length = 0; fread(&length, sizeof length, 1, stdin) == 1;) {
        struct mt_graph graph;
        char *const json = room(length, 1); /* exactly this size: reads beyond its end are noticed */
        if (fread(json, 1, length, stdin) != length) {
            return 2;
        }
        config.json = json;
        config.json_bytes = length;
        const int32_t opened = mt_graph_open(&graph, &config);
        printf("%d %d\n", (int)opened, (int)mt_graph_run(&graph));
        free(json);
    }
    return 0;
}
