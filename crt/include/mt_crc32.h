/* Internal to mtool: applications include mtool.h. */
/* CRC-32 of IEEE 802.3 (reflected, polynomial 0x04C11DB7), the same as zlib's crc32. */
#ifndef MT_CRC32_H
#define MT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Return the CRC of `count` bytes; for "123456789" it is 0xCBF43926. */
/*@ requires \valid_read(bytes + (0 .. count - 1)); */
uint32_t mt_crc32(const uint8_t *bytes, size_t count);

#endif
