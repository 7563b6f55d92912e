/* A fence around a model: while it runs the processor's memory protection lets it have what is listed here, code and
 * constants in flash, and its own part of the stack; all else, peripherals included, is a fault. The fault ends the
 * model and nothing more. protect.c of a template implements it, as far as the processor can (docs/protect.md).
 *
 * Macros: MT_PROTECT is defined where a firmware has the fence; MT_PROTECT_INPUTS is how an input is declared that lies
 * outside of the arena, so that a linker script can put it where the model may only read. */
#ifndef MT_PROTECT_H
#define MT_PROTECT_H

#include <stdint.h>

#define MT_PROTECT_INPUTS __attribute__((section(".bss.mt_inputs")))

/* What a model may do in an area. */
enum { MT_PROTECT_READ = 0, MT_PROTECT_WRITE = 1, MT_PROTECT_EXECUTE = 2 }; /* write and execute: and read */

/* From `start` to before `end`, both multiples of the processor's granule (they are rounded outwards); empty if they are
 * equal. Areas overlap neither each other nor the firmware's own code and constants, which every model may read. */
struct mt_protect_area {
    const void *start;
    const void *end;
    uint32_t access;
};

typedef void mt_protect_function(void);

/* Call `function`, whatever its type, with the arguments `first` and `second`, inside the fence: unprivileged, with the
 * areas of `areas`. *result is what it returned. Below the caller's frame some bytes of the stack are left out, up to
 * its granule. Calls don't nest.
 *
 * MT_STOPPED: it did what it may not, or took longer than mt_guard_watch allows; the host has been told of it
 * (mt_server_fault, with MT_FAULT_SURVIVED), and the firmware goes on. What it has written, in its own areas alone, stays
 * as it is: a model with states is to be reset.
 * MT_NOT_SUPPORTED: the areas need more of the processor's regions than there are, or the processor has none; nothing
 * was called. */
int32_t mt_protect_call(const struct mt_protect_area *areas, uint8_t count, mt_protect_function *function,
                        uintptr_t first, uintptr_t second, int32_t *result);

#endif
