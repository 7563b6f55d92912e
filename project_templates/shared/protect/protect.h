/* The interface between guard.c, which handles all exceptions, and protect.c, which protects memory from a model. */
#ifndef PROTECT_H
#define PROTECT_H

#include <stdint.h>

/* The arguments of mt_server_fault. */
struct protect_fault {
    uint8_t kind;
    uint8_t machine;
    uint8_t count;
    uint32_t registers[9];
};

/* Whether a protected model is running: then exceptions are its own. */
int protect_is_closed(void);
{% set is_zephyr = is_zephyr | default(false) %}
{% if not is_zephyr and cookiecutter.board.port.startup == "riscv" %}

/* End the model with `result`, or with the fault `found`. Does not return. */
__attribute__((noreturn)) void protect_leave(int32_t result, const struct protect_fault *found);
{% else %}

/* End the model with `result`, or with the fault `found`; return what the exception is to return to. */
uint32_t protect_leave(uint32_t exc_return, int32_t result, const struct protect_fault *found);

/* Give the firmware access to all of the board's memories again, as without memory protection (guard.c). */
void guard_allow_memories(void);
{% if is_zephyr %}

/* Before a model: nothing but interrupts runs until guard_allow_memories, and the model's exceptions are protect.c's. */
void guard_close(void);

/* End the model because of the watchdog, from an interrupt; false: no protected model is running. */
int protect_expire(void);
{% endif %}
{% endif %}

#endif
