/* A model written by hand, whose outputs a test can check:
 *   y0 int32[300]   3 * x0[i] + i
 *   y1 float32[5]   x1[i] * 2
 *   y2 uint32[1]    the number of runs so far
 *   y3 uint8[40000] x2[i] ^ 0x5A
 * Like a compiled model it overwrites its inputs, so that a second run by mistake is noticed. */
#include <stdint.h>
#include <string.h>

#include "mtool.h"

#ifndef TEST_MODEL_HASH
#define TEST_MODEL_HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#endif

#ifndef TEST_LARGE_BYTES
#define TEST_LARGE_BYTES 40000
#endif

/* Special behaviour, selected by x0[0]: */
enum { HANG = 123, LEAVE = 124, GO_DEEP = 125, LOG = 126, FAIL = 127 };

static int8_t x0[300];
static float x1[5];
static uint8_t x2[TEST_LARGE_BYTES];
static int32_t y0[300];
static float y1[5];
static uint32_t y2[1];
static uint8_t y3[TEST_LARGE_BYTES];

static const struct mt_tensor inputs[] = {{x0, sizeof x0}, {x1, sizeof x1}, {x2, sizeof x2}};
static const struct mt_tensor outputs[] = {{y0, sizeof y0}, {y1, sizeof y1}, {y2, sizeof y2}, {y3, sizeof y3}};

/* Use 1000 bytes of stack. */
static int32_t go_deep(void)
{
    volatile uint8_t bytes[1000];
    for (int32_t i = 0; i < 1000; ++i) {
        bytes[i] = (uint8_t)i;
    }
    return bytes[999] == 0;
}

static int32_t run(const struct mt_model *model)
{
    (void)model;
    ++y2[0];
    if (x0[0] == FAIL) {
        return 42;
    }
    if (x0[0] == LEAVE) {
        mt_port_abort(99);
    }
    while (x0[0] == HANG) {
        mt_port_idle();
    }
    if (x0[0] == GO_DEEP) {
        return go_deep();
    }
    if (x0[0] == LOG) {
        mt_server_log("the model says hello");
    }
    for (int32_t i = 0; i < 300; ++i) {
        y0[i] = 3 * x0[i] + i;
    }
    for (int32_t i = 0; i < 5; ++i) {
        y1[i] = x1[i] * 2.0f;
    }
    for (int32_t i = 0; i < TEST_LARGE_BYTES; ++i) {
        y3[i] = x2[i] ^ 0x5Au;
    }
    memset(x0, 0x11, sizeof x0);
    memset(x1, 0x22, sizeof x1);
    memset(x2, 0x33, sizeof x2);
    return 0;
}

static int32_t step(const struct mt_model *model, uint16_t number)
{
    return number == 0 ? run(model) : -1;
}

const struct mt_model mt_model = {
    .name = "test_model",
    .model_hash = TEST_MODEL_HASH,
    .inputs = inputs,
    .outputs = outputs,
    .input_count = 3,
    .output_count = 4,
    .operator_count = 1,
    .run = run,
    .step = step,
};
