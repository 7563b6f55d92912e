/* A firmware that takes bytecode modules from its own memory, and holds their outputs against those that it was given.
 * Generated beside it: cases.h. */
#include <stdint.h>
#include <string.h>

#include "mt_module.h"
#include "mtool.h"

void say(const char *text);

struct one {
    const uint8_t *file, *input, *output; /* inputs, then outputs, in the model's order */
    uint32_t bytes;
};

#include "cases.h"

static uint8_t ram[RAM_BYTES] __attribute__((aligned(64)));
static struct mt_module opened;
static const struct mt_module_kind *const kinds[] = {&mt_module_bytecode, NULL};

static void try_one(const struct one *each, int by_steps)
{
    struct mt_module_host host;
    const struct mt_model *const model = &opened.model;
    const uint8_t *from = each->input, *expected = each->output;
    int32_t status;
    memset(&host, 0, sizeof host);
    host.takes_unsigned = 1;
    host.kinds = kinds;
    host.machine = mt_module_machine();
    host.ram = ram;
    host.ram_bytes = sizeof ram;
    status = mt_module_open(each->file, each->bytes, &host, &opened);
    if (status) {
        say("refused ");
        return;
    }
    for (uint32_t i = 0; i < model->input_count; from += model->inputs[i++].bytes)
        memcpy(model->inputs[i].data, from, model->inputs[i].bytes);
    for (uint16_t i = 0; by_steps && i < model->operator_count && !status; ++i)
        status = model->step(model, i);
    if (!by_steps)
        status = model->run(model);
    for (uint32_t i = 0; i < model->output_count; expected += model->outputs[i++].bytes)
        status |= memcmp(model->outputs[i].data, expected, model->outputs[i].bytes);
    say(status ? "DIFFERENT " : "same ");
}

int main(void);
int main(void)
{
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        try_one(&cases[i], 0);
        try_one(&cases[i], 1);
    }
    say("end\n");
    return 0;
}
