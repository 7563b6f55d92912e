/* Memory that keeps modules across a reset: flash, as a port lends it to the slots of mt_slots.h.
 *
 * It is NOR flash, or behaves like it: what is erased reads 0xFF, and each byte is programmed once after that. It can be
 * read like any memory, and a processor that has to run a module from it can fetch instructions there. */
#ifndef MT_STORAGE_H
#define MT_STORAGE_H

#include <stdint.h>

/* What is programmed at once: a multiple of every flash's own unit. */
#define MT_STORAGE_CHUNK 64u

struct mt_storage {
    const uint8_t *memory;  /* where it is read, aligned to 64 bytes or more */
    uint32_t bytes;         /* of the whole: a multiple of a sector */
    uint32_t sector_bytes;  /* what is erased at once: a power of two, MT_STORAGE_CHUNK or more */

    /* Erase the sector that begins `offset` bytes from the start. MT_IO: it could not be. */
    int32_t (*erase)(uint32_t offset);

    /* Program `count` bytes, a multiple of MT_STORAGE_CHUNK, `offset` bytes from the start, a multiple as well; `bytes`
     * lie in RAM, at any address. Returns when `memory` shows them, through caches too. MT_IO: something was programmed
     * there already, or could not be. */
    int32_t (*program)(uint32_t offset, const uint8_t *bytes, uint32_t count);
};

/* The port's storage, ready to be used; NULL: it has none. */
const struct mt_storage *mt_port_storage(void);

#endif
