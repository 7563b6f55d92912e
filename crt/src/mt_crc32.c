#include "mt_crc32.h"

#include "mt_flash.h"

/* Four bits at a time: a table of 64 bytes instead of 1 KB, and two lookups per byte. */
static const MT_FLASH uint32_t crc_of_nibble[16] = {
    0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
    0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
};

uint32_t mt_crc32(const uint8_t *bytes, size_t count)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (const uint8_t *end = bytes + count; bytes < end; ++bytes) {
        crc ^= *bytes;
        crc = crc >> 4 ^ crc_of_nibble[crc & 15u];
        crc = crc >> 4 ^ crc_of_nibble[crc & 15u];
    }
    return ~crc;
}
