/* libFuzzer: whatever JSON arrives, its reader stays inside of it, and ends.
 *
 * An input: what to call in order, as bytes up to a zero, then the text. */
#include <stdlib.h>
#include <string.h>

#include "mt_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void use(struct mt_json_text text)
{
    volatile char sum = 0;
    for (const char *at = text.begin; at < text.end; ++at) {
        sum ^= *at;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const uint8_t *const zero = count > 0 ? memchr(bytes, 0, count) : NULL;
    const size_t calls = zero != NULL ? (size_t)(zero - bytes) : 0, length = zero != NULL ? count - calls - 1u : 0;
    char *const text = malloc(length); /* exactly this size, so that the sanitizers notice reads outside of it */
    struct mt_json json = {text, text + length, 0};
    if (length > 0) {
        memcpy(text, zero + 1, length);
    }
    for (size_t i = 0; i < calls; ++i) {
        switch (bytes[i] % 8u) {
        case 0:
            json = mt_json_find(json, "nodes");
            break;
        case 1:
            use(mt_json_read_text(&json));
            break;
        case 2:
            (void)mt_json_is(mt_json_read_text(&json), "storage_id");
            break;
        case 3:
            (void)mt_json_read_number(&json);
            break;
        case 4:
            (void)mt_json_read_quoted_number(&json);
            break;
        case 5:
            mt_json_expect(&json, (char)bytes[i]);
            break;
        case 6:
            mt_json_skip(&json);
            break;
        default:
            for (int is_first = 1; mt_json_next(&json, is_first, ']'); is_first = 0) {
                mt_json_skip(&json);
            }
        }
    }
    free(text);
    return 0;
}
