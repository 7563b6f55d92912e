/* libFuzzer: for any delta, the decoder reads nothing outside of the old bytes, and writes at most the new bytes that
 * fit.
 *
 * An input: the size of a piece, the number of old bytes (2 bytes), the capacity (2), the old bytes, the delta.
 * Unless the delta's first byte is zero, the bytes after it are only the stream: a valid header is added, so that
 * the stream is reached. */
#include <stdlib.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_crc32.h"
#include "mt_delta.h"
#include "mtool.h"

#define HEAD 5u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint32_t room;

static int32_t take(void *context, const uint8_t *bytes, uint32_t count)
{
    static uint8_t piece[MT_DELTA_PIECE];
    uint32_t *const taken = context;
    if (count == 0 || count > MT_DELTA_PIECE || count > room - *taken) {
        abort();
    }
    memcpy(piece, bytes, count);
    *taken += count;
    return MT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct mt_delta delta;
    uint8_t header[MT_DELTA_HEADER] = {'M', 'T', 'D', '1'};
    uint32_t taken = 0;
    if (count < HEAD) {
        return 0;
    }
    const size_t most = bytes[0] + (size_t)1, there = count - HEAD, wanted = mt_get_u16(bytes + 1);
    const uint32_t old_bytes = (uint32_t)(wanted < there ? wanted : there);
    uint8_t *const old = malloc(old_bytes); /* exactly this size, so that the sanitizers notice reads outside of it */
    if (old_bytes > 0) {
        memcpy(old, bytes + HEAD, old_bytes);
    }
    room = mt_get_u16(bytes + 3);
    mt_delta_begin(&delta, old, old_bytes, room, take, &taken);
    size_t at = HEAD + old_bytes;
    if (at < count && bytes[at] != 0) {
        mt_put_u32(header + 4, old_bytes);
        mt_put_u32(header + 8, room);
        mt_put_u32(header + 12, mt_crc32(old, old_bytes));
        (void)mt_delta_take(&delta, header, sizeof header);
    }
    while (at < count) {
        const uint32_t piece = (uint32_t)(count - at < most ? count - at : most);
        (void)mt_delta_take(&delta, bytes + at, piece);
        at += piece;
    }
    if (mt_delta_end(&delta) == MT_OK && taken != delta.new_bytes) {
        abort();
    }
    free(old);
    return 0;
}
