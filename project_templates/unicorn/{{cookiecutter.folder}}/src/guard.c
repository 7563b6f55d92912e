/* The guard: the emulator stops the core at a fault, stores where it happened, and continues here. */
#include "mtool.h"

#include <stddef.h>

#include "platform.h"

{% set arm = cookiecutter.board.cpu.startswith("cortex-m") %}
#define MACHINE {{ "MT_MACHINE_CORTEX_M" if arm else "MT_MACHINE_RISCV" }}
#define REGISTERS {{ 9 if arm else 7 }} /* as in crt/PROTOCOL.md; the last is the stack's lowest address */

extern uint8_t mt_stack_low[];
void __assert_fail(const char *expression, const char *file, int line, const char *function);

static uint64_t handler_stack[64];
static volatile uint32_t words[2 + REGISTERS]; /* the kind, the exception's number, the registers */

static void report(uint8_t kind, uint32_t number)
{
    uint32_t registers[REGISTERS];
    for (uint32_t i = 0; i + 1u < REGISTERS; ++i) {
        registers[i] = words[2u + i];
    }
    registers[REGISTERS - 1] = (uint32_t)(uintptr_t)mt_stack_low;
    mt_server_fault(kind, MACHINE, registers, REGISTERS);
    platform_exit(PLATFORM_FAULT + (int32_t)number);
}

static void handle(void)
{
    report((uint8_t)words[0], words[1]);
}

void mt_guard_init(void)
{
    PLATFORM_FAULT_WORDS = (uint32_t)(uintptr_t)words;
    PLATFORM_FAULT_STACK = (uint32_t)(uintptr_t)(handler_stack + sizeof handler_stack / sizeof handler_stack[0]);
    PLATFORM_FAULT_HANDLER = (uint32_t)(uintptr_t)handle;
}

void mt_guard_watch(uint32_t limit_ms)
{
    PLATFORM_WATCH = limit_ms;
}

{% include "shared/guard_abort.c" %}

/* musl's assert() ends here. */
void __assert_fail(const char *expression, const char *file, int line, const char *function)
{
    (void)file;
    (void)line;
    (void)function;
    mt_server_log(expression);
    words[2] = (uint32_t)(uintptr_t)__builtin_return_address(0) - {{ 3 if arm else 2 }}u; /* within the call */
    words[5] = (uint32_t)(uintptr_t)__builtin_frame_address(0);
    report(MT_FAULT_ASSERTION, 0);
}
