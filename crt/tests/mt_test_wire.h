/* Memory as the port's line. The file that includes this must define CHECK first. */
#ifndef MT_TEST_WIRE_H
#define MT_TEST_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mtool.h"

static uint8_t wire[1u << 16];
static size_t wire_end, wire_at, read_most; /* bytes that arrived, that were read, and the most for one read */

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
