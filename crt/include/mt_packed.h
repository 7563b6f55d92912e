/* Internal to mtool: applications include mtool.h. */
/* Packed functions: all have the same signature, that of TVM's TVMBackendPackedCFunc. The arguments are values with
 * a type code each; tensors are pointers to DLTensor. Header only: a model that uses none of it links none of it. */
#ifndef MT_PACKED_H
#define MT_PACKED_H

#include <stddef.h>
#include <stdint.h>

#include "mt_dlpack.h"
#include "mtool.h"

/* Defined once per file, not in every wrapper. */
#if defined(__GNUC__)
#define MT_PACKED_ONCE static __attribute__((noinline, unused))
#else
#define MT_PACKED_ONCE static inline
#endif

/* TVMValue. */
union mt_value {
    int64_t v_int64;
    double v_float64;
    void *v_handle;
    const char *v_str;
};

/* Type codes, with TVM's numbers (kDLInt, kDLFloat, kTVMOpaqueHandle, kTVMNullptr, kTVMDLTensorHandle). */
enum { MT_ARG_INT = 0, MT_ARG_FLOAT = 2, MT_ARG_HANDLE = 3, MT_ARG_NULL = 4, MT_ARG_TENSOR = 7 };

/* `count` arguments and their type codes. A function that returns something writes *result and its type code to
 * *result_code; others leave them unchanged. `resource` is the caller's. Returns MT_OK or another status. */
typedef int32_t mt_packed(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                          int32_t *result_code, void *resource);

/* The expected tensor: its element type as DLPack's code and bits, and its shape. */
struct mt_tensor_type {
    const int64_t *shape;
    uint8_t ndim;
    uint8_t code;
    uint8_t bits;
};

/* Return a tensor of that type at `data`. */
static inline DLTensor mt_tensor_of(const void *data, const struct mt_tensor_type *type)
{
    DLTensor tensor;
    tensor.data = (void *)data;
    tensor.device.device_type = kDLCPU;
    tensor.device.device_id = 0;
    tensor.ndim = type->ndim;
    tensor.dtype.code = type->code;
    tensor.dtype.bits = type->bits;
    tensor.dtype.lanes = 1;
    tensor.shape = (int64_t *)type->shape;
    tensor.strides = NULL;
    tensor.byte_offset = 0;
    return tensor;
}

/* Return a value that is a pointer to raw data. */
static inline union mt_value mt_pointer_value(const void *data)
{
    union mt_value value;
    value.v_handle = (void *)data;
    return value;
}

/* MT_BAD_TYPE: another element type or device, or not contiguous. MT_BAD_SHAPE: another shape. */
static inline int32_t mt_packed_check_tensor(const DLTensor *tensor, const struct mt_tensor_type *type)
{
    int64_t stride = 1;
    if (tensor == NULL || tensor->device.device_type != kDLCPU || tensor->dtype.code != type->code ||
        tensor->dtype.bits != type->bits || tensor->dtype.lanes != 1) {
        return MT_BAD_TYPE;
    }
    if (tensor->ndim != type->ndim) {
        return MT_BAD_SHAPE;
    }
    for (int32_t i = type->ndim - 1; i >= 0; --i) {
        if (tensor->shape[i] != type->shape[i]) {
            return MT_BAD_SHAPE;
        }
        if (tensor->strides != NULL && tensor->strides[i] != stride && type->shape[i] > 1) {
            return MT_BAD_TYPE;
        }
        stride *= type->shape[i];
    }
    return MT_OK;
}

/* Check that the arguments are tensors of these types. MT_BAD_COUNT: there are more or fewer. MT_BAD_TYPE: one is
 * not a tensor, or has another element type. MT_BAD_SHAPE: one has another shape. */
MT_PACKED_ONCE int32_t mt_packed_check(const union mt_value *arguments, const int32_t *type_codes, int32_t count,
                                       const struct mt_tensor_type *const *types, int32_t expected)
{
    int32_t status = count == expected ? MT_OK : MT_BAD_COUNT;
    for (int32_t i = 0; i < expected && status == MT_OK; ++i) {
        status = type_codes[i] == MT_ARG_TENSOR
                     ? mt_packed_check_tensor((const DLTensor *)arguments[i].v_handle, types[i])
                     : (int32_t)MT_BAD_TYPE;
    }
    return status;
}

/* The same for a function that takes pointers to raw data, whose types can't be checked. */
MT_PACKED_ONCE int32_t mt_packed_check_pointers(const int32_t *type_codes, int32_t count, int32_t expected)
{
    int32_t status = count == expected ? MT_OK : MT_BAD_COUNT;
    for (int32_t i = 0; i < expected && status == MT_OK; ++i) {
        status = type_codes[i] == MT_ARG_HANDLE ? MT_OK : MT_BAD_TYPE;
    }
    return status;
}

/* Return the first element of a tensor argument. */
static inline void *mt_packed_data(const union mt_value *argument)
{
    const DLTensor *const tensor = (const DLTensor *)argument->v_handle;
    return (uint8_t *)tensor->data + (size_t)tensor->byte_offset;
}

/* Call a function with only tensors, and a resource; `values` and `codes` are arrays of `count` elements. */
MT_PACKED_ONCE int32_t mt_packed_call_with(mt_packed *function, DLTensor *tensors, union mt_value *values,
                                           int32_t *codes, int32_t count, void *resource)
{
    union mt_value result;
    int32_t result_code = MT_ARG_NULL;
    result.v_int64 = 0;
    for (int32_t i = 0; i < count; ++i) {
        values[i].v_handle = &tensors[i];
        codes[i] = MT_ARG_TENSOR;
    }
    return function(values, codes, count, &result, &result_code, resource);
}

/* The same without a resource. */
static inline int32_t mt_packed_call(mt_packed *function, DLTensor *tensors, union mt_value *values, int32_t *codes,
                                     int32_t count)
{
    return mt_packed_call_with(function, tensors, values, codes, count, NULL);
}

#endif
