/* Faults, and what a port does about them: tell the host (mt_server_fault), then end or start anew. guard.c of a
 * template implements these functions, as far as the processor can; a firmware may do without. */
#ifndef MT_GUARD_H
#define MT_GUARD_H

#include <stdint.h>

/* Catch faults from now on: exceptions of the processor, a stack that goes over its end, accesses to what is no memory
 * of the board. Called once, after mt_port_init. */
void mt_guard_init(void);

/* Take it for a fault if this function is not called again within `limit_ms` milliseconds; 0: no longer. For the
 * server's configuration. Nothing interrupts the model more often than every 20 ms. */
void mt_guard_watch(uint32_t limit_ms);

#endif
