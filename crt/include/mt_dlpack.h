/* Internal to mtool: applications include mtool.h. */
/* DLTensor, laid out as in DLPack's dlpack.h (https://dmlc.github.io/dlpack), the argument of TVM's packed
 * functions. A file that also includes dlpack.h includes it before this one. */
#ifndef MT_DLPACK_H
#define MT_DLPACK_H

#include <stdint.h>

#ifndef DLPACK_DLPACK_H_

/* The device that a tensor lies on: only the processor's own memory here. */
enum { kDLCPU = 1 };

/* Element types. */
enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

/* dlpack.h has an enum instead of the first int32_t; a compiler with short enums would make it a byte. */
typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* 1: no vectors */
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: row-major, without gaps */
    uint64_t byte_offset; /* from `data` to the first element */
} DLTensor;

#endif

#endif
