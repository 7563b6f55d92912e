/* Internal to mtool: applications include mtool.h. */
/* Read JSON in place, without memory of its own. Nothing outside the text is read, whatever it contains. */
#ifndef MT_JSON_H
#define MT_JSON_H

#include <stddef.h>
#include <stdint.h>

/* The JSON that remains to be read. A failed read sets `failed`, and all later reads do nothing. */
struct mt_json {
    const char *at;
    const char *end;
    uint8_t failed;
};

struct mt_json_text {
    const char *begin;
    const char *end;
};

/* Skip spaces, and take a character if it is the next one; returns whether it was. */
int mt_json_take(struct mt_json *json, char wanted);

/* The same, but anything else is a failure. */
void mt_json_expect(struct mt_json *json, char wanted);

/* Read a string as it is; escapes are not resolved. */
struct mt_json_text mt_json_read_text(struct mt_json *json);

/* Return whether a string equals this word. */
int mt_json_is(struct mt_json_text text, const char *word);

/* Read a number that consists of digits, up to 2^32 - 1; 0 if that fails. */
uint32_t mt_json_read_number(struct mt_json *json);

/* The same in quotation marks. */
uint32_t mt_json_read_quoted_number(struct mt_json *json);

/* Skip a value of any kind. */
void mt_json_skip(struct mt_json *json);

/* Step to the next element of a list or object whose opening bracket was taken; 0 at its end, which is taken, and
 * after a failure. */
int mt_json_next(struct mt_json *json, int is_first, char closing);

/* Find the value of a key in the object at `object`; the result has `failed` set if there is none. */
struct mt_json mt_json_find(struct mt_json object, const char *key);

#endif
