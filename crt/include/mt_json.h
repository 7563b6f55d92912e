/* Internal to mtool: applications include mtool.h. */
/* Read JSON where it lies, without memory of its own. Whatever the text is, nothing outside it is read. */
#ifndef MT_JSON_H
#define MT_JSON_H

#include <stddef.h>
#include <stdint.h>

/* A piece of the JSON that is being read. A failed read leaves `failed` set, and all later ones do nothing. */
struct mt_json {
    const char *at;
    const char *end;
    uint8_t failed;
};

struct mt_json_text {
    const char *begin;
    size_t count;
};

/* Take a character if it is the next one but for spaces; 1 if it was. */
int mt_json_take(struct mt_json *json, char wanted);

/* The same, where everything else is a failure. */
void mt_json_expect(struct mt_json *json, char wanted);

/* Read a string as it stands; escapes are not resolved. */
struct mt_json_text mt_json_read_text(struct mt_json *json);

/* Tell whether a string is this word. */
int mt_json_is(struct mt_json_text text, const char *word);

/* Read a number of digits alone, up to 2^32 - 1; 0 if it fails. */
uint32_t mt_json_read_number(struct mt_json *json);

/* The same in quotation marks. */
uint32_t mt_json_read_quoted_number(struct mt_json *json);

/* Skip a value of any kind. */
void mt_json_skip(struct mt_json *json);

/* Step to the next element of a list or an object, whose opening bracket has been taken; 0 at its end, which is taken,
 * and after a failure. */
int mt_json_next(struct mt_json *json, int is_first, char closing);

/* Find the value of a key in the object at which `object` stands; what is returned has failed if there is none. */
struct mt_json mt_json_find(struct mt_json object, const char *key);

#endif
