/* The port over the registers of the emulator. */
#include "mtool.h"

#include "platform.h"

static uint64_t timer_start;
static int32_t timer_running;

static size_t transfer(uint32_t command, const uint8_t *bytes, size_t count)
{
    PLATFORM_ADDRESS = (uint32_t)(uintptr_t)bytes;
    PLATFORM_COUNT = (uint32_t)count;
    PLATFORM_COMMAND = command;
    __asm__ volatile("" ::: "memory"); /* the emulator has written to `bytes` */
    return PLATFORM_DONE;
}

/* The emulator counts whole blocks of instructions: this one ends with the return, wherever it is called from. */
__attribute__((noinline)) static uint64_t now(void)
{
    const uint32_t low = PLATFORM_TIME_LOW;
    return ((uint64_t)PLATFORM_TIME_HIGH << 32) | low;
}

int32_t mt_port_init(void)
{
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    do { /* the emulator stops here until there is a byte */
        *count = transfer(PLATFORM_READ, bytes, capacity);
    } while (*count == 0 && capacity > 0);
    return MT_OK;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    return transfer(PLATFORM_WRITE, bytes, count) == count ? MT_OK : MT_IO;
}

int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = 1;
    timer_start = now();
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    const uint64_t end = now(); /* first, so that nothing else is measured */
    *elapsed_ns = 0;
    if (!timer_running) {
        return MT_TIMER_NOT_STARTED;
    }
    timer_running = 0;
    *elapsed_ns = end - timer_start;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    return 1;
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    return transfer(PLATFORM_RANDOM, bytes, count) == count ? MT_OK : MT_NOT_SUPPORTED;
}

void mt_port_idle(void)
{
}
