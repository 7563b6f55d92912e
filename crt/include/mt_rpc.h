/* ---- Application ----
 *
 * mtool's RPC server in an application of your own. The application implements the five functions below and calls
 * mt_poll from its main loop or from a thread; then `mtool run`, `verify` and `bench` drive the model at its port. */
#ifndef MT_RPC_H
#define MT_RPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Serve the host: read what has arrived, and execute the next complete request, if there is one. An inference that the
 * host requests runs to its end before this returns. Not re-entrant: call it from one place. */
void mt_poll(void);

/* The application implements these. mt_poll calls them, from its own thread only. */

/* Copy up to `capacity` bytes that have arrived, in order, and return their number; 0: there are none. Need not wait. */
size_t mt_rpc_read(uint8_t *bytes, size_t capacity);

/* Send `count` bytes, in order; return when the channel has accepted them all. */
void mt_rpc_write(const uint8_t *bytes, size_t count);

/* Return a counter that counts up, wraps from 2^32 - 1 to 0, and is never stopped; *hz is its rate. Durations up to one
 * wrap are measured. */
uint32_t mt_rpc_time(uint32_t *hz);

/* Nothing has arrived: return at once in a main loop; in a thread, sleep for a moment or until bytes arrive. */
void mt_rpc_idle(void);

/* The host requests a reset: restart the processor. Optional: without it only the server starts again. */
void mt_rpc_reset(void);

/* Fill `bytes` with numbers that never repeat, also not after a reset. Only firmware with a link key needs it. */
void mt_rpc_random(uint8_t *bytes, size_t count);

/* Sizes that the application may define for mt_rpc.c:
 *   MT_RPC_BUFFER_BYTES   the server's buffers, at least 256; more makes transfers faster
 *   MT_RPC_WINDOW_BYTES   the bytes that the application can store between two calls of mt_rpc_read, as in the ring
 *                         buffer of a UART's interrupt; 0: any number, for USB and other channels with flow control */
#ifndef MT_RPC_BUFFER_BYTES
#define MT_RPC_BUFFER_BYTES 1024
#endif
#ifndef MT_RPC_WINDOW_BYTES
#ifdef ARDUINO
#define MT_RPC_WINDOW_BYTES 63 /* Serial of most cores with a UART stores 64 bytes less one */
#else
#define MT_RPC_WINDOW_BYTES 255
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif
