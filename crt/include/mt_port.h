/* The platform, as the runtime sees it: port.c implements these functions, or a timer.c and a guard.c beside it do.
 *
 * All return MT_OK or a status of mt_status.h. None allocates, none is re-entrant. */
#ifndef MT_PORT_H
#define MT_PORT_H

#include <stddef.h>
#include <stdint.h>

/* Bring up clocks, the byte channel and the timer. Called once, first. */
int32_t mt_port_init(void);

/* Read up to `capacity` bytes that the host sent; *count says how many came. May block until at
 * least one is there; may also return MT_OK with *count 0, upon which mt_port_idle is called.
 * MT_IO: the host closed the channel, nothing more will come. */
int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count);

/* Send `count` bytes, all of them, in order. Blocks until the channel has taken them. */
int32_t mt_port_write(const uint8_t *bytes, size_t count);

/* Start the timer. MT_TIMER_RUNNING: it was running. */
int32_t mt_port_timer_start(void);

/* Stop the timer; *elapsed_ns is the wall-clock time since the start, in nanoseconds.
 * MT_TIMER_NOT_STARTED: it was not running. MT_TIMER_OVERFLOW: it ran over its range, and
 * *elapsed_ns is 0. */
int32_t mt_port_timer_stop(uint64_t *elapsed_ns);

/* Smallest step of the timer, in nanoseconds, at least 1. */
uint32_t mt_port_timer_granularity_ns(void);

/* Fill `bytes` with numbers that differ from one reset to the next: a nonce, not a key. */
int32_t mt_port_random(uint8_t *bytes, size_t count);

/* Stop for good (or reset): the session is over, or `status` can't be handled. Does not return. */
void mt_port_abort(int32_t status);

/* Nothing to do: sleep until something happens, or return at once. */
void mt_port_idle(void);

#endif
