/* The driver of the Wren: DMA in both directions, commands one after another, and an interrupt at the end of each. */
#include "wren.h"

#include <stddef.h>
#include <string.h>

#include "wren_device.h"

enum { HEAD_BYTES = 24, COMMAND_BYTES = 4 * WREN_COMMAND_WORDS };

static volatile uint32_t raised;

void wren_interrupt(void)
{
    raised = wren_registers.cause;
    wren_registers.cause = 0;
}

static uint32_t word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Start an operation and wait for its interrupt. */
static int32_t order(uint32_t control)
{
    raised = 0;
    wren_registers.control = control;
    while (raised == 0)
        wren_device_clock(); /* __WFI(), on silicon */
    return raised == WREN_DONE ? WREN_OK : WREN_FAULT;
}

static int32_t move_in(uint32_t address, const void *from, uint32_t bytes)
{
    wren_registers.host = (uintptr_t)from;
    wren_registers.address = address;
    wren_registers.bytes = bytes;
    return order(WREN_DMA_IN);
}

static int32_t move_out(void *to, uint32_t address, uint32_t bytes)
{
    wren_registers.host = (uintptr_t)to;
    wren_registers.address = address;
    wren_registers.bytes = bytes;
    return order(WREN_DMA_OUT);
}

static int32_t command(const uint8_t *binary, const uint8_t *words, uint32_t binary_bytes)
{
    if (word_at(words) == WREN_LOAD) {
        const uint32_t offset = word_at(words + 4);
        const uint32_t bytes = word_at(words + 8);
        if (offset > binary_bytes || bytes > binary_bytes - offset)
            return WREN_BAD_BINARY;
        return move_in(word_at(words + 12), binary + offset, bytes);
    }
    const int32_t status = move_in(WREN_COMMAND_ADDRESS, words, COMMAND_BYTES);
    if (status != WREN_OK)
        return status;
    wren_registers.address = WREN_COMMAND_ADDRESS;
    return order(WREN_RUN);
}

int32_t wren_open(void)
{
    uint8_t byte = 0;
    raised = 0;
    wren_registers.cause = 0;
    wren_registers.host = (uintptr_t)&byte;
    wren_registers.address = 0;
    wren_registers.bytes = 1;
    wren_registers.control = WREN_DMA_IN;
    wren_device_clock();
    return raised == WREN_DONE ? WREN_OK : WREN_SILENT;
}

int32_t wren_run(const uint8_t *binary, const void *const *inputs, void *const *outputs, void *scratch)
{
    (void)scratch;
    if (memcmp(binary, "WREN", 4) != 0 || word_at(binary + 4) != 1)
        return WREN_BAD_BINARY;
    const uint32_t commands = word_at(binary + 8);
    const uint32_t input_count = word_at(binary + 12);
    const uint32_t output_count = word_at(binary + 16);
    const uint32_t binary_bytes = word_at(binary + 20);
    const uint8_t *port = binary + HEAD_BYTES;
    int32_t status = WREN_OK;
    for (uint32_t i = 0; i < input_count && status == WREN_OK; ++i, port += 8)
        status = move_in(word_at(port), inputs[i], word_at(port + 4));
    const uint8_t *results = port;
    const uint8_t *words = port + 8 * output_count;
    for (uint32_t i = 0; i < commands && status == WREN_OK; ++i, words += COMMAND_BYTES)
        status = command(binary, words, binary_bytes);
    for (uint32_t i = 0; i < output_count && status == WREN_OK; ++i, results += 8)
        status = move_out(outputs[i], word_at(results), word_at(results + 4));
    return status;
}
