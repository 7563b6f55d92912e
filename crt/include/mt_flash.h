/* Internal to mtool: applications include mtool.h. */
/* The memory of constants. On an 8-bit AVR, flash is a separate address space: without MT_FLASH, a model's constants
 * would be copied to RAM at startup. GCC reads such data directly (named address spaces require -std=gnu99 or
 * newer); __flash reaches the first 64 KB, __memx (MT_FLASH_FAR) all of it, more slowly. MT_FLASH is empty
 * elsewhere. */
#ifndef MT_FLASH_H
#define MT_FLASH_H

#include <string.h>

#if defined(__AVR__) && !defined(__cplusplus) && !defined(__STRICT_ANSI__)
#include <avr/pgmspace.h>
#ifdef MT_FLASH_FAR
#define MT_FLASH __memx
#define MT_FLASH_COPY(to, from, count) mt_flash_copy((uint8_t *)(to), (const MT_FLASH uint8_t *)(from), (count))
static inline void mt_flash_copy(uint8_t *to, const MT_FLASH uint8_t *from, size_t count)
{
    while (count-- > 0) {
        *to++ = *from++;
    }
}
#else
#define MT_FLASH __flash
#define MT_FLASH_COPY(to, from, count) memcpy_P((to), (const void *)(from), (count))
#endif
#else
#define MT_FLASH
#define MT_FLASH_COPY(to, from, count) memcpy((to), (from), (count))
#endif

#endif
