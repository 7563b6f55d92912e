/* What port.c asks of the processor (startup.c) and of the board's timer (timer.c). */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#define PLATFORM_TIMER_HZ {{ cookiecutter.board.timer.hz }}u
#define PLATFORM_FAULT 100 /* exit status of a fault: this plus the number of the exception */

/* A semihosting call ("Semihosting for AArch32 and AArch64", Arm; the same operations on RISC-V). */
int32_t platform_semihosting(int32_t operation, const void *parameters);

{% if cookiecutter.options.channel == "rtt" %}
/* Let the debugger take the last words; a standalone firmware has none (port.c). */
__attribute__((weak)) void mt_rtt_drain(void);

{% endif %}
/* End the emulator with `status` as its exit code. */
static inline void platform_exit(int32_t status)
{
{% if cookiecutter.options.channel == "rtt" %}
    if (mt_rtt_drain) {
        mt_rtt_drain();
    }
{% endif %}
    const uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    for (;;) {
        platform_semihosting(0x20, block); /* SYS_EXIT_EXTENDED */
    }
}

/* Start, and stop: *ticks have passed at PLATFORM_TIMER_HZ. 0: the timer ran over its range. */
void platform_timer_start(void);
int32_t platform_timer_stop(uint64_t *ticks);

#endif
