#include "mt_model.h"
#include "toy.h"

static const struct mt_tensor input = {0, 4};
static const struct mt_tensor output = {0, 16};

static int32_t run(void)
{
    return toy_run(&toy_arena_inputs, &toy_arena_outputs);
}

const struct mt_model mt_model = {
    .name = "toy",
    .model_hash = "0000000000000000000000000000000000000000000000000000000000000000",
    .inputs = &input,
    .outputs = &output,
    .input_count = 1,
    .output_count = 1,
    .run = run,
};
