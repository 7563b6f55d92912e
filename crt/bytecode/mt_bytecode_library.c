/* The library of a firmware with all kernels, except for families whose macro is 0. */
#include "mt_bytecode_kernels.h"

#ifndef MT_BYTECODE_INT8
#define MT_BYTECODE_INT8 1
#endif
#ifndef MT_BYTECODE_FLOAT32
#define MT_BYTECODE_FLOAT32 1
#endif
#ifndef MT_BYTECODE_MAP
#define MT_BYTECODE_MAP 1
#endif

const struct mt_bytecode_kernel *const mt_bytecode_library[] = {
    &mt_bytecode_copy,
#if MT_BYTECODE_INT8
    &mt_bytecode_conv2d_int8, &mt_bytecode_depthwise_int8, &mt_bytecode_dense_int8, &mt_bytecode_pool_int8,
    &mt_bytecode_softmax_int8, &mt_bytecode_add_int8,
#endif
#if MT_BYTECODE_FLOAT32
    &mt_bytecode_conv2d_f32, &mt_bytecode_pool_f32, &mt_bytecode_softmax_f32,
#endif
#if MT_BYTECODE_MAP
    &mt_bytecode_map,
#endif
};

const uint32_t mt_bytecode_library_count = sizeof(mt_bytecode_library) / sizeof(*mt_bytecode_library);
