#include "mt_functions.h"

#include <string.h>

#include "mt_bytes.h"
#include "mtool.h"

#define HEAD_BYTES 3u   /* of a request: the function, the number of arguments */
#define VALUE_BYTES 8u  /* of an integer or float argument */
#define TENSOR_BYTES 9u /* of a tensor argument before its dimensions */
#define DIM_BYTES 4u

int32_t mt_functions_find(const struct mt_functions *functions, const uint8_t *name, size_t count, uint16_t *index)
{
    for (uint16_t i = 0; i < functions->count; ++i) {
        const char *const other = functions->list[i].name;
        if (strlen(other) == count && memcmp(other, name, count) == 0) {
            *index = i;
            return MT_OK;
        }
    }
    return MT_UNKNOWN_FUNCTION;
}

/* Read one tensor from the message; *used is its size there, and its shape is written to `dims`. */
static int32_t read_tensor(const struct mt_model *model, const uint8_t *bytes, size_t count, int64_t *dims,
                           size_t most_dims, DLTensor *tensor, size_t *used)
{
    if (count < TENSOR_BYTES || count - TENSOR_BYTES < (size_t)bytes[8] * DIM_BYTES) {
        return MT_BAD_MESSAGE;
    }
    const uint32_t offset = mt_get_u32(bytes + 2);
    const uint8_t ndim = bytes[8];
    const uint32_t size = bytes[7] / 8u; /* of an element */
    uint64_t total = size;
    if (ndim > most_dims) {
        return MT_BAD_SHAPE;
    }
    if (size == 0 || size > 8 || bytes[7] % 8u != 0) {
        return MT_BAD_TYPE;
    }
    for (uint8_t i = 0; i < ndim; ++i) {
        const uint32_t dim = mt_get_u32(bytes + TENSOR_BYTES + DIM_BYTES * i);
        dims[i] = dim;
        total *= dim;
        if (total > UINT32_MAX) {
            return MT_BAD_RANGE;
        }
    }
    const struct mt_tensor_type type = {dims, ndim, bytes[6], bytes[7]};
    uint8_t *data = NULL;
    const int32_t status = mt_model_find(model, bytes[0], bytes[1], offset, (uint32_t)total, &data);
    if (status != MT_OK) {
        return status;
    }
    if ((uintptr_t)data % size != 0) {
        return MT_BAD_RANGE;
    }
    *tensor = mt_tensor_of(data, &type);
    *used = TENSOR_BYTES + (size_t)ndim * DIM_BYTES;
    return MT_OK;
}

static void read_value(const uint8_t *bytes, int32_t code, union mt_value *value)
{
    const uint64_t bits = mt_get_u32(bytes) | (uint64_t)mt_get_u32(bytes + 4) << 32;
    if (code == MT_ARG_FLOAT && sizeof value->v_float64 == sizeof bits) {
        memcpy(&value->v_float64, &bits, sizeof value->v_float64);
    } else {
        value->v_int64 = (int64_t)bits;
    }
}

/* Read a call's arguments into the model's argument arrays. */
static int32_t read_arguments(const struct mt_model *model, const uint8_t *bytes, size_t count, uint8_t arguments)
{
    const struct mt_functions *const functions = model->functions;
    size_t dims = 0;
    for (uint8_t i = 0; i < arguments; ++i) {
        size_t used = VALUE_BYTES;
        if (count < 1) {
            return MT_BAD_MESSAGE;
        }
        const int32_t code = *bytes++;
        --count;
        functions->codes[i] = code;
        if (code == MT_ARG_TENSOR) {
            DLTensor *const tensor = &functions->tensors[i];
            const int32_t status =
                read_tensor(model, bytes, count, functions->dims + dims, functions->most_dims - dims, tensor, &used);
            if (status != MT_OK) {
                return status;
            }
            functions->values[i].v_handle = tensor;
            dims += (size_t)tensor->ndim;
        } else if ((code == MT_ARG_INT || code == MT_ARG_FLOAT) && count >= used) {
            read_value(bytes, code, &functions->values[i]);
        } else {
            return MT_BAD_MESSAGE;
        }
        bytes += used;
        count -= used;
    }
    return count == 0 ? MT_OK : MT_BAD_MESSAGE;
}

int32_t mt_functions_invoke(const struct mt_model *model, const uint8_t *request, size_t count, int32_t *status,
                            struct mt_returned *returned)
{
    const struct mt_functions *const functions = model->functions;
    *status = MT_OK;
    returned->type_code = MT_ARG_NULL;
    returned->value.v_int64 = 0;
    if (count < HEAD_BYTES) {
        return MT_BAD_MESSAGE;
    }
    const uint16_t index = mt_get_u16(request);
    const uint8_t arguments = request[2];
    if (index >= functions->count) {
        return MT_BAD_INDEX;
    }
    if (arguments > functions->most_arguments) {
        return MT_BAD_COUNT;
    }
    const int32_t wrong = read_arguments(model, request + HEAD_BYTES, count - HEAD_BYTES, arguments);
    if (wrong != MT_OK) {
        return wrong;
    }
    *status = functions->list[index].function(functions->values, functions->codes, arguments, &returned->value,
                                              &returned->type_code, NULL);
    return *status == MT_OK ? MT_OK : MT_MODEL;
}
