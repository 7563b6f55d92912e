/* Whatever JSON arrives, its reader stays inside of it. */
#include "mt_json.h"
#include "mt_prove.h"

#ifndef MOST
#define MOST 24u
#endif

static char text[MOST];

int main(void)
{
    any_bytes(text, sizeof text);
    struct mt_json json = {text, text + any(0, MOST), (uint8_t)any(0, 1)};
    switch (any(0, 6)) {
    case 0: {
        const struct mt_json found = mt_json_find(json, "nodes");
        (void)found;
        break;
    }
    case 1: {
        const struct mt_json_text word = mt_json_read_text(&json);
        for (const char *at = word.begin; at < word.end; ++at) {
            use_bytes((const uint8_t *)at, 1);
        }
        break;
    }
    case 2: {
        const struct mt_json_text word = mt_json_read_text(&json);
        (void)mt_json_is(word, "storage_id");
        break;
    }
    case 3:
        (void)mt_json_read_number(&json);
        break;
    case 4:
        (void)mt_json_read_quoted_number(&json);
        break;
    case 5:
        mt_json_skip(&json);
        break;
    default:
        for (int is_first = 1; mt_json_next(&json, is_first, ']'); is_first = 0) {
            mt_json_skip(&json);
        }
    }
    return 0;
}
