/* A firmware that takes modules from its own memory, puts each at two addresses, and holds what it computes against the
 * same model compiled in. Generated beside it: cases.h. */
#include <stdint.h>
#include <string.h>

#include "mt_module.h"
#include "mtool.h"

void say(const char *text);

struct one {
    const uint8_t *file;
    uint32_t bytes;
    int32_t (*run)(void); /* the model that was compiled in */
    void (*begin)(void);
    void *const *inputs;  /* and its tensors */
    void *const *outputs;
};

#include "cases.h"

static uint8_t place[PLACE_BYTES] __attribute__((aligned(4096)));
static uint8_t ram[RAM_BYTES] __attribute__((aligned(64)));
static uint8_t kept[RAM_BYTES];
static struct mt_module opened;

static const struct mt_module_kind *const kinds[] = {&mt_module_native, NULL};

static struct mt_module_host host_of_this(void)
{
    struct mt_module_host host;
    memset(&host, 0, sizeof host);
    host.exports = mt_module_exports;
    host.export_count = mt_module_export_count;
    host.machine = mt_module_machine();
    host.keys = keys;
    host.key_count = 2;
    host.least_counter = 3;
    host.kinds = kinds;
    host.ram = ram;
    host.ram_bytes = sizeof ram;
    return host;
}

static uint32_t seed = 1;

static void draw(uint8_t *bytes, uint32_t count, int is_float)
{
    for (uint32_t i = 0; i < count; ++i) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
    for (uint32_t i = 0; is_float && i < count / 4; ++i) {
        const float value = (float)(int8_t)bytes[4 * i] / 64.0f;
        memcpy(bytes + 4 * i, &value, 4);
    }
}

static int is_same(const struct one *each, int by_steps)
{
    const struct mt_model *const model = &opened.model;
    int32_t status = 0;
    for (uint32_t i = 0; i < model->input_count; ++i) {
        draw(each->inputs[i], model->inputs[i].bytes, IS_FLOAT(each));
        memcpy(model->inputs[i].data, each->inputs[i], model->inputs[i].bytes);
    }
    if (each->run() != 0)
        return 0;
    for (uint16_t i = 0; by_steps && i < model->operator_count && status == 0; ++i)
        status = model->step(model, i);
    if (!by_steps)
        status = model->run(model);
    for (uint32_t i = 0; i < model->output_count; ++i)
        status |= memcmp(model->outputs[i].data, each->outputs[i], model->outputs[i].bytes);
    return status == 0;
}

static void refuse(const char *what, const struct one *each, const struct mt_module_host *host, uint32_t at,
                   int32_t expected)
{
    place[at] ^= 1;
    memset(ram, 0x5A, sizeof ram);
    memcpy(kept, ram, sizeof ram);
    if (mt_module_check(place, each->bytes, host) != expected || mt_module_open(place, each->bytes, host, &opened) != expected)
        say(what);
    if (memcmp(kept, ram, sizeof ram) != 0)
        say("written: ");
    place[at] ^= 1;
}

static void try_one(const struct one *each)
{
    struct mt_module_host host = host_of_this();
    for (uint32_t at = 0; at < 2; ++at) {
        uint8_t *const here = place + at * 4096u;
        memset(place, 0, sizeof place);
        memcpy(here, each->file, each->bytes);
        const int32_t status = mt_module_open(here, each->bytes, &host, &opened);
        if (status != MT_OK)
            say(status == MT_BAD_SIGNATURE ? "signature " : status == MT_MISSING_IMPORT ? "import " :
                status == MT_WRONG_MACHINE ? "machine " : status == MT_NO_MEMORY ? "memory " : "not opened ");
        if (memcmp(here, each->file, each->bytes) != 0)
            say("patched ");
        each->begin();
        for (int run = 0; run < 4; ++run)
            say(is_same(each, run & 1) ? "same " : "DIFFERENT ");
    }
    const int has_imports = opened.view.import_count > 0;
    memcpy(place, each->file, each->bytes);
    refuse("a changed counter ", each, &host, MT_MODULE_AT_COUNTER, MT_BAD_SIGNATURE);
    refuse("a changed signature ", each, &host, MT_MODULE_AT_SIGNATURE + 40, MT_BAD_SIGNATURE);
    refuse("a changed key id ", each, &host, MT_MODULE_AT_KEY_ID, MT_BAD_SIGNATURE);
    refuse("a changed image ", each, &host, each->bytes - 1, MT_BAD_MODULE);
    refuse("a changed tensor ", each, &host, MT_MODULE_HEAD_BYTES, MT_BAD_MODULE);
    host.key_count = 1; /* the other's */
    refuse("another key ", each, &host, PLACE_BYTES - 1, MT_BAD_SIGNATURE);
    host = host_of_this();
    host.least_counter = 4;
    refuse("an old one ", each, &host, PLACE_BYTES - 1, MT_OLD_MODULE);
    host = host_of_this();
    host.machine = (host.machine & ~0xFFu) | 1u;
    refuse("another machine ", each, &host, PLACE_BYTES - 1, MT_WRONG_MACHINE);
    if (has_imports) {
        host = host_of_this();
        host.export_count = 0;
        refuse("no exports ", each, &host, PLACE_BYTES - 1, MT_MISSING_IMPORT);
    }
    host = host_of_this();
    host.ram_bytes = opened.view.ram_bytes > 0 ? opened.view.ram_bytes - 1 : 16;
    refuse("less memory ", each, &host, PLACE_BYTES - 1, MT_NO_MEMORY);
    host = host_of_this();
    host.ram = ram + 4;
    refuse("memory that is not aligned ", each, &host, PLACE_BYTES - 1, MT_NO_MEMORY);
}

int main(void)
{
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        try_one(&cases[i]);
        say("\n");
    }
    say("end\n");
    return 0;
}
