/* Takes the place of a project's main.c: calls every function of mtool.h. It sends the results as little-endian
 * 64-bit numbers, then every byte that it receives, and exits with status 42 at the end of its input. */
#include <stdint.h>

#include "mtool.h"

int main(void);

#if CLINT /* RISC-V: sleep until the cycle counter, and set the watchdog's clock, nearly over their lower 32 bits */
__asm__(".option arch, +zicsr");
static void pass_time(void)
{
    volatile uint32_t *const clint = (volatile uint32_t *)CLINT;
    clint[0x4004u / 4u] = 0;
    clint[0x4000u / 4u] = UINT32_MAX / 100u - 100u; /* in QEMU a hundred cycles each */
    __asm__ volatile("csrw mie, %0\n\twfi\n\tcsrw mie, zero" : : "r"(0x80u));
    clint[0xBFF8u / 4u] = UINT32_MAX - 100u;
}
#endif

static void send(uint64_t number)
{
    uint8_t bytes[8];
    for (int32_t i = 0; i < 8; ++i) {
        bytes[i] = (uint8_t)(number >> (8 * i));
    }
    mt_port_write(bytes, 8);
}

static uint64_t time_loop(uint32_t turns)
{
    uint64_t elapsed_ns = 0;
    mt_port_timer_start();
    for (volatile uint32_t turn = 0; turn < turns; ++turn) {
    }
    mt_port_timer_stop(&elapsed_ns);
    return elapsed_ns;
}

int main(void)
{
    static uint8_t bytes[1000];
    uint64_t number = 1;
    size_t count;
    send((uint64_t)mt_port_init());
    mt_port_random(bytes, 8);
    mt_port_write(bytes, 8);
    send(mt_port_timer_granularity_ns());
    send((uint64_t)mt_port_timer_stop(&number));
    send((uint64_t)mt_port_timer_start());
    send((uint64_t)mt_port_timer_start());
    send((uint64_t)mt_port_timer_stop(&number));
#if CLINT
    pass_time();
    mt_guard_init();
    mt_guard_watch(2); /* milliseconds: more than this loop takes */
#endif
    send(time_loop(100000));
#if CLINT
    mt_guard_watch(0);
#endif
    send(time_loop(200000));
    send(time_loop(400000));
    mt_port_timer_start();
#if DOWN_COUNTER /* a down-counter of 32 bits: nearly over its range */
    *(volatile uint32_t *)DOWN_COUNTER = 10;
#endif
    for (volatile uint32_t turn = 0; turn < 1000; ++turn) {
    }
    send((uint64_t)mt_port_timer_stop(&number));
    send(number);
    while (mt_port_read(bytes, sizeof bytes, &count) == MT_OK) {
        mt_port_write(bytes, count);
    }
    mt_port_abort(42);
    return 0;
}
