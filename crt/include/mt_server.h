/* The RPC server: lets a host drive the model over the port's byte channel. crt/PROTOCOL.md has the bytes. */
#ifndef MT_SERVER_H
#define MT_SERVER_H

#include <stdint.h>

#include "mt_model.h"

struct mt_server_config {
    const struct mt_model *model;
    const char *build_hash;     /* 64 hex digits; the host compares it with its own */
    uint8_t *buffer;            /* the server's receive and send buffers; it uses no other memory of this size */
    uint32_t buffer_bytes;      /* at least MT_SERVER_MIN_BUFFER */
    uint8_t *stack_low;         /* lowest address of the stack, for the watermark; NULL: not measured */
};

/* Serve until the port says that the channel is closed (MT_IO) or the host asks for a reset. */
int32_t mt_server_run(const struct mt_server_config *config);

#endif
