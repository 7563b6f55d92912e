/* The checks of mt_packed.h, and the layout of DLTensor. Returns 0, or the line of the failed check. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mt_packed.h"

#define CHECK(condition)     \
    do {                     \
        if (!(condition)) {  \
            return __LINE__; \
        }                    \
    } while (0)

/* The offsets in dlpack.h's structure; a pointer has 2, 4 or 8 bytes. */
#define POINTER sizeof(void *)
#define AFTER_DTYPE ((POINTER + 16u + POINTER - 1u) / POINTER * POINTER)
#define AFTER_POINTERS (AFTER_DTYPE + 2u * POINTER)

static const int64_t shape[] = {2, 3};
static const struct mt_tensor_type matrix = {shape, 2, kDLInt, 8};
static const struct mt_tensor_type *const types[] = {&matrix, &matrix};

static int32_t add(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                   int32_t *result_code, void *resource)
{
    const int32_t status = mt_packed_check(arguments, type_codes, count, types, 2);
    (void)resource;
    if (status != MT_OK) {
        return status;
    }
    const int8_t *const input = mt_packed_data(&arguments[0]);
    int8_t *const output = mt_packed_data(&arguments[1]);
    for (int32_t i = 0; i < 6; ++i) {
        output[i] = (int8_t)(input[i] + 1);
    }
    result->v_int64 = 6;
    *result_code = MT_ARG_INT;
    return MT_OK;
}

static int check_layout(void)
{
    CHECK(sizeof(DLDevice) == 8 && offsetof(DLDevice, device_id) == 4);
    CHECK(sizeof(DLDataType) == 4 && offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2);
    CHECK(offsetof(DLTensor, data) == 0 && offsetof(DLTensor, device) == POINTER);
    CHECK(offsetof(DLTensor, ndim) == POINTER + 8 && offsetof(DLTensor, dtype) == POINTER + 12);
    CHECK(offsetof(DLTensor, shape) == AFTER_DTYPE && offsetof(DLTensor, strides) == AFTER_DTYPE + POINTER);
    CHECK(offsetof(DLTensor, byte_offset) >= AFTER_POINTERS && offsetof(DLTensor, byte_offset) < AFTER_POINTERS + 8);
    CHECK(sizeof(DLTensor) == offsetof(DLTensor, byte_offset) + 8);
    CHECK(sizeof(union mt_value) == 8);
    return 0;
}

static int call(DLTensor *tensors, int32_t count)
{
    union mt_value values[3];
    int32_t codes[3];
    return (int)mt_packed_call(add, tensors, values, codes, count);
}

int main(void)
{
    int8_t data[16] = {1, 2, 3, 4, 5, 6};
    const int64_t other[] = {3, 2};
    int64_t compact[] = {3, 1};
    int64_t gaps[] = {4, 1};
    const struct mt_tensor_type turned = {other, 2, kDLInt, 8};
    const struct mt_tensor_type flat = {shape, 1, kDLInt, 8};
    const struct mt_tensor_type wide = {shape, 2, kDLInt, 16};
    const struct mt_tensor_type natural = {shape, 2, kDLUInt, 8};
    DLTensor tensors[3] = {mt_tensor_of(data, &matrix), mt_tensor_of(data, &matrix), mt_tensor_of(data, &matrix)};
    const int layout = check_layout();
    if (layout != 0) {
        return layout;
    }
    tensors[1].byte_offset = 8;
    CHECK(call(tensors, 2) == MT_OK && data[8] == 2 && data[13] == 7);
    CHECK(call(tensors, 1) == MT_BAD_COUNT && call(tensors, 3) == MT_BAD_COUNT);
    tensors[0].strides = compact;
    CHECK(call(tensors, 2) == MT_OK);
    tensors[0].strides = gaps;
    CHECK(call(tensors, 2) == MT_BAD_TYPE);
    tensors[0] = mt_tensor_of(data, &turned);
    CHECK(call(tensors, 2) == MT_BAD_SHAPE);
    tensors[0] = mt_tensor_of(data, &flat);
    CHECK(call(tensors, 2) == MT_BAD_SHAPE);
    tensors[0] = mt_tensor_of(data, &wide);
    CHECK(call(tensors, 2) == MT_BAD_TYPE);
    tensors[0] = mt_tensor_of(data, &natural);
    CHECK(call(tensors, 2) == MT_BAD_TYPE);
    tensors[0] = mt_tensor_of(data, &matrix);
    tensors[0].dtype.lanes = 4;
    CHECK(call(tensors, 2) == MT_BAD_TYPE);
    tensors[0] = mt_tensor_of(data, &matrix);
    tensors[0].device.device_type = 2;
    CHECK(call(tensors, 2) == MT_BAD_TYPE);
    union mt_value values[2] = {mt_pointer_value(data), mt_pointer_value(data)};
    int32_t codes[2] = {MT_ARG_HANDLE, MT_ARG_HANDLE};
    union mt_value result;
    int32_t result_code = MT_ARG_NULL;
    CHECK(add(values, codes, 2, &result, &result_code, NULL) == MT_BAD_TYPE && result_code == MT_ARG_NULL);
    codes[0] = codes[1] = MT_ARG_TENSOR;
    values[1].v_handle = NULL;
    values[0].v_handle = &tensors[1];
    CHECK(add(values, codes, 2, &result, &result_code, NULL) == MT_BAD_TYPE);
    values[1].v_handle = &tensors[1];
    CHECK(add(values, codes, 2, &result, &result_code, NULL) == MT_OK && result.v_int64 == 6 && result_code == MT_ARG_INT);
    CHECK(mt_packed_check_pointers(codes, 2, 2) == MT_BAD_TYPE && mt_packed_check_pointers(codes, 2, 3) == MT_BAD_COUNT);
    return 0;
}
