#include "mt_stack.h"

#include <stddef.h>

#define PAINT 0xC5u

/* The last bytes of the stack are its canary. */
#define CANARY 16u

/* Set *end to an address below the caller's frame, in this function's own. */
__attribute__((noinline)) static void find_end(uintptr_t *end)
{
    const volatile uint8_t here = 0;
    *end = (uintptr_t)&here;
}

void mt_stack_paint(uint8_t *low)
{
    uintptr_t end = 0;
    if (low != NULL) {
        find_end(&end);
    }
    for (uintptr_t at = (uintptr_t)low; at < end; ++at) {
        *(volatile uint8_t *)at = PAINT;
    }
}

uint32_t mt_stack_used(const uint8_t *low, const volatile uint8_t *top)
{
    const uintptr_t end = (uintptr_t)top;
    uintptr_t at = low == NULL ? end : (uintptr_t)low;
    while (at < end && *(const volatile uint8_t *)at == PAINT) {
        ++at;
    }
    return (uint32_t)(end - at);
}

int mt_stack_is_intact(const uint8_t *low)
{
    for (uintptr_t i = 0; low != NULL && i < CANARY; ++i) {
        if (((const volatile uint8_t *)low)[i] != PAINT) {
            return 0;
        }
    }
    return 1;
}
