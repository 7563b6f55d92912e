/* A model written by hand with the interface of a generated one: four int8 in, four float out. */
#ifndef TOY_H
#define TOY_H

#include <stdint.h>

#define TOY_ARENA_BYTES 32
#define TOY_INPUT_1_COUNT 4
#define TOY_OUTPUT_1_COUNT 4

struct toy_inputs {
    int8_t *input_1;
};

struct toy_outputs {
    float *output_1;
};

extern const struct toy_inputs toy_arena_inputs;
extern const struct toy_outputs toy_arena_outputs;

int32_t toy_run(const struct toy_inputs *inputs, const struct toy_outputs *outputs);

#endif
