/* Decode deltas. Standard input has records: four numbers (old bytes, delta bytes, capacity for new bytes, largest
 * piece), then the bytes. Standard output has for each: a status, the number of new bytes, and the bytes. Inputs lie
 * in memory of exactly their size, so that the sanitizers notice reads outside of it. */
#include <stdio.h>
#include <stdlib.h>

#include "mt_delta.h"
#include "mtool.h"

struct target {
    uint8_t *bytes;
    uint32_t count;
    uint32_t room;
};

static int32_t write_new(void *context, const uint8_t *bytes, uint32_t count)
{
    struct target *const target = context;
    if (count == 0 || count > MT_DELTA_PIECE || count > target->room - target->count) {
        abort();
    }
    for (uint32_t i = 0; i < count; ++i) {
        target->bytes[target->count++] = bytes[i];
    }
    return MT_OK;
}

static uint8_t *read_bytes(uint32_t count)
{
    uint8_t *const bytes = malloc(count);
    if (fread(bytes, 1, count, stdin) != count) {
        abort();
    }
    return bytes;
}

int main(void)
{
    uint32_t sizes[4];
    while (fread(sizes, sizeof sizes, 1, stdin) == 1) {
        struct target target = {malloc(sizes[2]), 0, sizes[2]};
        uint8_t *const old = read_bytes(sizes[0]);
        struct mt_delta delta;
        mt_delta_begin(&delta, old, sizes[0], sizes[2], write_new, &target);
        for (uint32_t left = sizes[1]; left > 0;) {
            const uint32_t count = left < sizes[3] ? left : sizes[3];
            uint8_t *const piece = read_bytes(count);
            if (mt_delta_take(&delta, piece, count) != mt_delta_take(&delta, piece, 0)) {
                abort();
            }
            free(piece);
            left -= count;
        }
        const int32_t status = mt_delta_end(&delta);
        fwrite(&status, sizeof status, 1, stdout);
        fwrite(&target.count, sizeof target.count, 1, stdout);
        fwrite(target.bytes, 1, target.count, stdout);
        free(target.bytes);
        free(old);
    }
    return 0;
}
