/* Internal to mtool: applications include mtool.h. */
/* Little-endian numbers at any address, on every machine. */
#ifndef MT_BYTES_H
#define MT_BYTES_H

#include <stdint.h>

static inline uint16_t mt_get_u16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | (uint16_t)bytes[1] << 8);
}

static inline uint32_t mt_get_u32(const uint8_t *bytes)
{
    return mt_get_u16(bytes) | (uint32_t)mt_get_u16(bytes + 2) << 16;
}

static inline uint64_t mt_get_u64(const uint8_t *bytes)
{
    return mt_get_u32(bytes) | (uint64_t)mt_get_u32(bytes + 4) << 32;
}

static inline void mt_put_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

static inline void mt_put_u32(uint8_t *bytes, uint32_t value)
{
    mt_put_u16(bytes, (uint16_t)value);
    mt_put_u16(bytes + 2, (uint16_t)(value >> 16));
}

static inline void mt_put_u64(uint8_t *bytes, uint64_t value)
{
    mt_put_u32(bytes, (uint32_t)value);
    mt_put_u32(bytes + 4, (uint32_t)(value >> 32));
}

#endif
