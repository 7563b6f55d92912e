/* Internal to mtool: applications include mtool.h. */
/* Measure the stack: paint its free part, run, and look how much of the paint is left. */
#ifndef MT_STACK_H
#define MT_STACK_H

#include <stdint.h>

/* Paint the stack from `low`, its lowest address, up to the caller's frame. Requires a stack that grows down.
 * `low` may be NULL: nothing is painted. */
void mt_stack_paint(uint8_t *low);

/* Return the number of bytes below `top` used since then; 0 if `low` is NULL. `top` is the address of
 * a local variable of the function that called mt_stack_paint. */
uint32_t mt_stack_used(const uint8_t *low, const volatile uint8_t *top);

/* Return whether the lowest bytes of the stack are as mt_stack_paint left them: if not, it has overflowed.
 * 1 if `low` is NULL. */
int mt_stack_is_intact(const uint8_t *low);

#endif
