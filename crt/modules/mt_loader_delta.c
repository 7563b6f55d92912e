/* A module that arrives as a delta from the one in flash: the bytes decoded from each piece are stored as the file.
 * Its header came with LOAD, so the delta covers what follows the headers. */
#include <stddef.h>

#include "mt_delta.h"
#include "mt_loader.h"
#include "mtool.h"

static struct mt_delta decoder;
static uint32_t made;  /* of the file: its header and the decoded bytes */
static uint32_t there; /* of the file, stored before this delta began */

static int32_t store(void *context, const uint8_t *bytes, uint32_t count)
{
    const uint32_t offset = made;
    const uint32_t known = there <= offset ? 0 : there - offset < count ? there - offset : count;
    made += count;
    return known == count ? MT_OK : mt_loader_store(context, offset + known, bytes + known, count - known);
}

static int32_t begin(struct mt_loader *loader, const uint8_t *old, uint32_t old_bytes, const uint8_t *head)
{
    made = 0;
    there = loader->there;
    mt_delta_begin(&decoder, old + MT_MODULE_HEAD_BYTES, old_bytes - MT_MODULE_HEAD_BYTES,
                   loader->file_bytes - MT_MODULE_HEAD_BYTES, store, loader);
    return store(loader, head, MT_MODULE_HEAD_BYTES);
}

static int32_t take(const uint8_t *bytes, uint32_t count)
{
    return mt_delta_take(&decoder, bytes, count);
}

const struct mt_loader_delta mt_loader_delta = {begin, take};
