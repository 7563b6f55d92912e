/* What port.c asks of the processor (startup.c) and of the board's timer (timer.c). */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#define PLATFORM_TIMER_HZ {{ cookiecutter.board.timer.hz }}u
#define PLATFORM_FAULT 100 /* exit status of a fault: this plus the number of the exception */

/* A semihosting call ("Semihosting for AArch32 and AArch64", Arm; the same operations on RISC-V). */
int32_t platform_semihosting(int32_t operation, const void *parameters);

/* End the emulator with `status` as its exit code; a board {{ "restarts" if cookiecutter.board.port.get("at_end") == "reset" else "idles" }}. */
void platform_exit(int32_t status);

/* Start, and stop: *ticks have passed at PLATFORM_TIMER_HZ. 0: the timer ran over its range. */
void platform_timer_start(void);
int32_t platform_timer_stop(uint64_t *ticks);

#endif
