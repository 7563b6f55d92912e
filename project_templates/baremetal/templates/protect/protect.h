/* Between guard.c, which has all exceptions, and protect.c, which has the fence around a model. */
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

/* Whether a model is running inside the fence: then what comes from there is its own. */
int protect_is_closed(void);
{% if cookiecutter.board.port.startup == "riscv" %}

/* End the model with `result`, or with the fault `found`. Does not return. */
__attribute__((noreturn)) void protect_leave(int32_t result, const struct protect_fault *found);
{% else %}

/* End the model with `result`, or with the fault `found`; return what the exception is to return to. */
uint32_t protect_leave(uint32_t exc_return, int32_t result, const struct protect_fault *found);

/* Let the firmware have all memories of the board again, as without a fence (guard.c). */
void guard_allow_memories(void);
{% endif %}

#endif
