#include "mt_json.h"

#include <string.h>

/* The deepest nesting of lists and objects; a graph has 5 levels. A level is one bit here, so that closing brackets
 * are matched without recursion. */
#define MOST_LEVELS 16u

static char peek(struct mt_json *json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t')) {
        ++json->at;
    }
    return json->at < json->end && !json->failed ? *json->at : '\0';
}

int mt_json_take(struct mt_json *json, char wanted)
{
    if (peek(json) != wanted || wanted == '\0') {
        return 0;
    }
    ++json->at;
    return 1;
}

void mt_json_expect(struct mt_json *json, char wanted)
{
    if (!mt_json_take(json, wanted)) {
        json->failed = 1;
    }
}

struct mt_json_text mt_json_read_text(struct mt_json *json)
{
    struct mt_json_text text;
    mt_json_expect(json, '"');
    text.begin = json->at;
    while (!json->failed && json->at < json->end && *json->at != '"') {
        if (*json->at++ == '\\' && json->at < json->end) {
            ++json->at;
        }
    }
    text.end = json->at;
    mt_json_expect(json, '"');
    return text;
}

int mt_json_is(struct mt_json_text text, const char *word)
{
    while (text.begin < text.end && *word != '\0' && *text.begin == *word) {
        ++text.begin;
        ++word;
    }
    return text.begin == text.end && *word == '\0';
}

uint32_t mt_json_read_number(struct mt_json *json)
{
    uint64_t number = 0;
    if (peek(json) < '0' || peek(json) > '9') {
        json->failed = 1;
    }
    while (!json->failed && json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        number = number * 10u + (uint64_t)(*json->at++ - '0');
        if (number > UINT32_MAX) {
            json->failed = 1;
        }
    }
    return json->failed ? 0 : (uint32_t)number;
}

uint32_t mt_json_read_quoted_number(struct mt_json *json)
{
    mt_json_expect(json, '"');
    const uint32_t number = mt_json_read_number(json);
    mt_json_expect(json, '"');
    return number;
}

static void skip_word(struct mt_json *json)
{
    const char *const begin = json->at;
    static const char ends[] = ",]}: \n\r\t"; /* and its 0 */
    while (json->at < json->end && memchr(ends, *json->at, sizeof(ends)) == NULL) {
        ++json->at;
    }
    if (json->at == begin) {
        json->failed = 1;
    }
}

void mt_json_skip(struct mt_json *json)
{
    uint32_t objects = 0; /* one bit per level: whether it is an object */
    uint32_t level = 0;
    do {
        const char next = peek(json);
        if (next == '{' || next == '[') {
            (void)mt_json_take(json, next);
            objects = objects << 1 | (next == '{' ? 1u : 0u);
            if (++level > MOST_LEVELS) {
                json->failed = 1;
            }
        } else if (level > 0 && next == ((objects & 1u) ? '}' : ']')) {
            (void)mt_json_take(json, next);
            objects >>= 1;
            --level;
        } else if (next == '"') {
            (void)mt_json_read_text(json);
        } else if (level > 0 && (next == ',' || (next == ':' && (objects & 1u)))) {
            (void)mt_json_take(json, next);
        } else if (next == '\0') {
            json->failed = 1;
        } else {
            skip_word(json);
        }
    } while (level > 0 && !json->failed);
}

int mt_json_next(struct mt_json *json, int is_first, char closing)
{
    if (mt_json_take(json, closing)) {
        return 0;
    }
    if (!is_first) {
        mt_json_expect(json, ',');
    }
    return !json->failed;
}

struct mt_json mt_json_find(struct mt_json object, const char *key)
{
    struct mt_json found = object;
    found.failed = 1;
    mt_json_expect(&object, '{');
    for (int is_first = 1; mt_json_next(&object, is_first, '}'); is_first = 0) {
        const struct mt_json_text name = mt_json_read_text(&object);
        mt_json_expect(&object, ':');
        if (!object.failed && mt_json_is(name, key)) {
            return object;
        }
        mt_json_skip(&object);
    }
    return found;
}
