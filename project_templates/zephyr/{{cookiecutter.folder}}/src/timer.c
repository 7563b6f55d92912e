/* The port's timer: the system clock. It continues while the core sleeps, and interrupts the model only for the
 * kernel's own bookkeeping. */
#include <zephyr/kernel.h>

#include "mtool.h"

#ifdef CONFIG_ARCH_POSIX
/* A process: Zephyr's clock stands still while code runs, so the host's own is read, through the native simulator. */
uint64_t get_host_us_time(void);
#define CLOCK_HZ 1000000u
#define CLOCK_RANGE UINT64_MAX
#define CLOCK_NOW() get_host_us_time()
#elif defined(CONFIG_TIMER_HAS_64BIT_CYCLE_COUNTER)
#define CLOCK_HZ sys_clock_hw_cycles_per_sec()
#define CLOCK_RANGE UINT64_MAX
#define CLOCK_NOW() k_cycle_get_64()
#else
#define CLOCK_HZ sys_clock_hw_cycles_per_sec()
#define CLOCK_RANGE UINT32_MAX
#define CLOCK_NOW() k_cycle_get_32()
#endif

static bool is_running;
static int64_t start_ms;
static uint64_t start;

int32_t mt_port_timer_start(void)
{
    if (is_running) {
        return MT_TIMER_RUNNING;
    }
    is_running = true;
    start_ms = k_uptime_get();
    start = CLOCK_NOW();
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    const uint64_t ticks = (CLOCK_NOW() - start) & CLOCK_RANGE; /* first, so that nothing else is measured */
    const uint64_t hz = CLOCK_HZ;
    *elapsed_ns = 0;
    if (!is_running) {
        return MT_TIMER_NOT_STARTED;
    }
    is_running = false;
    /* The uptime is coarse but does not wrap: it shows whether the cycle counter did. */
    if ((uint64_t)(k_uptime_get() - start_ms) >= CLOCK_RANGE / hz * 1000u) {
        return MT_TIMER_OVERFLOW;
    }
    *elapsed_ns = ticks / hz * 1000000000u + ticks % hz * 1000000000u / hz;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    const uint64_t hz = CLOCK_HZ;
    return (uint32_t)((1000000000u + hz - 1u) / hz);
}
