/* The cycle counter of a RISC-V core: 64 bits in two registers, which can't overflow in a lifetime. */
#include "mt_board.h"
#include "mt_ports.h"

__asm__(".option arch, +zicsr"); /* see startup.c */

static uint64_t start_ticks;

static uint64_t now(void)
{
    uint32_t low, high, again;
    do {
        __asm__ volatile("csrr %0, mcycleh\n\tcsrr %1, mcycle\n\tcsrr %2, mcycleh"
                         : "=r"(high), "=r"(low), "=r"(again));
    } while (high != again);
    return ((uint64_t)high << 32) | low;
}

int32_t mt_timer_start(void)
{
    start_ticks = now();
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    *ticks = now() - start_ticks;
    return 1;
}
