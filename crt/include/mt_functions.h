/* Internal to mtool: applications include mtool.h. */
/* Packed functions that a host can call by name. A model with such functions points to them, and to this code, in
 * its structure: a server without functions links none of it. */
#ifndef MT_FUNCTIONS_H
#define MT_FUNCTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "mtool.h"
#include "mt_packed.h"

struct mt_function {
    const char *name;
    mt_packed *function;
};

/* What a function returned, in addition to its status. */
struct mt_returned {
    union mt_value value;
    int32_t type_code;
};

/* The functions, and memory for the arguments of one call. The first functions are the model's operators, in order. */
struct mt_functions {
    const struct mt_function *list;
    uint16_t count;
    uint8_t most_arguments;     /* elements of `tensors`, `values` and `codes` */
    uint8_t most_dims;          /* elements of `dims` */
    DLTensor *tensors;
    union mt_value *values;
    int32_t *codes;
    int64_t *dims;              /* for all tensors of a call together */
    int32_t (*find)(const struct mt_functions *functions, const uint8_t *name, size_t count, uint16_t *index);
    int32_t (*invoke)(const struct mt_model *model, const uint8_t *request, size_t count, int32_t *status,
                      struct mt_returned *returned);
};

/* Find the function whose name has `count` bytes. MT_UNKNOWN_FUNCTION: there is none. */
int32_t mt_functions_find(const struct mt_functions *functions, const uint8_t *name, size_t count, uint16_t *index);

/* Call a function with the arguments of an INVOKE (crt/PROTOCOL.md). MT_MODEL: the function returned a status other
 * than MT_OK, which is *status. MT_BAD_INDEX: there is no such function or tensor. MT_BAD_COUNT: more arguments than
 * any function takes. MT_BAD_RANGE: a tensor lies outside its memory, or is not aligned in it. MT_BAD_TYPE: its
 * elements are not whole bytes. MT_BAD_MESSAGE: the request is malformed. */
int32_t mt_functions_invoke(const struct mt_model *model, const uint8_t *request, size_t count, int32_t *status,
                            struct mt_returned *returned);

#endif
