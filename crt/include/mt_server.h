/* The RPC server: lets a host drive the model over the port's byte channel. crt/PROTOCOL.md has the bytes. */
#ifndef MT_SERVER_H
#define MT_SERVER_H

#include <stdint.h>

#include "mt_model.h"

/* Least size of the server's buffer. Half of it receives, half sends; a frame is a little smaller than
 * a half, so that larger buffers make for fewer and larger frames. */
#define MT_SERVER_MIN_BUFFER 256u

struct mt_extension; /* mt_requests.h */

struct mt_server_config {
    const struct mt_model *model; /* the firmware's first */
    const char *build_hash;     /* 64 hex digits; the host compares it with its own */
    uint8_t *buffer;            /* the server's receive and send buffers; it uses no other memory of this size */
    uint32_t buffer_bytes;      /* at least MT_SERVER_MIN_BUFFER */
    uint8_t *stack_low;         /* lowest address of the stack, for the watermark and the canary; NULL: not measured */
    uint32_t window_bytes;      /* how many bytes the port holds while nobody calls mt_port_read (the size of its
                                 * interrupt's ring buffer); 0: any number, as the channel holds back the host itself */
    void (*watch)(uint32_t limit_ms); /* mt_guard_watch of mt_guard.h, around each CALL that has a limit; NULL: the
                                       * host alone notices that a model does not end */
    struct mt_extension *extension; /* requests of a part that not every firmware has: mt_loader.h; NULL: none */
};

/* Serve until the port says that the channel is closed (returns MT_IO or another status of the port), or
 * the host asks for a reset (returns MT_OK). MT_TOO_LARGE: the buffer is smaller than MT_SERVER_MIN_BUFFER. */
int32_t mt_server_run(const struct mt_server_config *config);

/* Send a line of text to the host, cut to what fits into a frame; for instance from within the model.
 * Nothing is sent while no session is open. */
void mt_server_log(const char *text);

/* Tell the host of a fault, with the operator that was running; for a port's exception handler, which resets or
 * ends the firmware afterwards. Uses mt_port_write and some 100 bytes of stack; nothing is sent while no session is
 * open. `registers`: in the order of the machine's list in crt/PROTOCOL.md. */
void mt_server_fault(uint8_t kind, uint8_t machine, const uint32_t *registers, uint8_t count);

#endif
