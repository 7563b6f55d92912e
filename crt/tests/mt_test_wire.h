/* A memory that stands for the port's line. The file that includes this has a CHECK of its own before. */
#ifndef MT_TEST_WIRE_H
#define MT_TEST_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mtool.h"

static uint8_t wire[1u << 16];
static size_t wire_end, wire_at, read_most; /* bytes that came, that were read, and that a read takes at most */

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    size_t most = capacity < read_most ? capacity : read_most;
    CHECK(capacity > 0);
    most = most < wire_end - wire_at ? most : wire_end - wire_at;
    memcpy(bytes, wire + wire_at, most);
    wire_at += most;
    *count = most;
    return most > 0 ? MT_OK : MT_IO;
}

#endif
