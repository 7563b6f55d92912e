/* PARTITION-OFFSET PARTITION-BYTES SECTOR-BYTES...: erase and program the storage of a partition, sector by sector, then
 * print the size of its sectors and its own; "none": it has no storage. */
#include "mtool.h"

int main(int count, char **arguments)
{
    partition_offset = (uint32_t)strtoul(arguments[1], NULL, 0);
    partition_bytes = (uint32_t)strtoul(arguments[2], NULL, 0);
    for (int i = 3; i < count; ++i) {
        sectors[sector_count++] = (uint32_t)strtoul(arguments[i], NULL, 0);
    }
    const struct mt_storage *const found = mt_port_storage();
    if (found == NULL) {
        puts("none");
        return 0;
    }
    for (uint32_t at = 0; at < found->bytes; at += found->sector_bytes) {
        const uint8_t bytes[MT_STORAGE_CHUNK] = {1, 2, 3};
        if (found->erase(at) != MT_OK || found->program(at, bytes, sizeof bytes) != MT_OK) {
            printf("the sector at %u was not erased\n", at);
            return 1;
        }
    }
    for (uint32_t at = 0; at < MOST_BYTES; ++at) {
        const bool is_inside = at >= partition_offset && at < partition_offset + found->bytes;
        const uint32_t from_sector = (at - partition_offset) % found->sector_bytes;
        const uint8_t expected = !is_inside ? 0 : from_sector < MT_STORAGE_CHUNK ? (from_sector < 3 ? from_sector + 1 : 0) : 0xFF;
        if (flash[at] != expected) {
            printf("at %u: %u instead of %u\n", at, flash[at], expected);
            return 1;
        }
    }
    printf("%u %u\n", found->sector_bytes, found->bytes);
    return 0;
}
