#include "toy.h"

#include <math.h>
#include <string.h>

extern const float toy_weights[4];

static int32_t toy_runs = 41; /* shows that .data is initialised */

static union {
    uint8_t bytes[TOY_ARENA_BYTES];
    float aligned;
} toy_arena __attribute__((section(".bss.mtool_arena"), aligned(16)));

const struct toy_inputs toy_arena_inputs = {(int8_t *)toy_arena.bytes};
const struct toy_outputs toy_arena_outputs = {(float *)(void *)(toy_arena.bytes + 16)};

int32_t toy_run(const struct toy_inputs *inputs, const struct toy_outputs *outputs)
{
    float scaled[4];
    memset(inputs->input_1, 1, 4);
    memcpy(scaled, toy_weights, sizeof scaled);
    for (int32_t i = 0; i < 4; ++i) {
        outputs->output_1[i] = expf(scaled[i] * (float)inputs->input_1[i]);
    }
    ++toy_runs;
    /* e^1 + ... + e^4 = 84.791; the status says whether weights, .data and arithmetic are right */
    const float sum = outputs->output_1[0] + outputs->output_1[1] + outputs->output_1[2] + outputs->output_1[3];
    return toy_runs == 42 && fabsf(sum - 84.791f) < 0.001f ? 42 : 13;
}
