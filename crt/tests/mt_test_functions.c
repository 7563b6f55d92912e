/* A model of one operator with packed functions, called by a test over the wire:
 *   test_double   float32[4] in the arena -> float32[4], each times 2
 *   test_sum      an integer and a float; returns their sum
 *   test_fail     returns MT_BAD_SHAPE */
#include <stdint.h>

#include "mt_functions.h"
#include "mtool.h"

#define ARENA_BYTES 64u

static uint64_t arena[ARENA_BYTES / 8u];

static const int64_t shape[] = {4};
static const struct mt_tensor_type vector = {shape, 1, kDLFloat, 32};

static int32_t twice(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                     int32_t *result_code, void *resource)
{
    static const struct mt_tensor_type *const types[] = {&vector, &vector};
    const int32_t status = mt_packed_check(arguments, type_codes, count, types, 2);
    (void)result;
    (void)result_code;
    (void)resource;
    if (status == MT_OK) {
        const float *const input = mt_packed_data(&arguments[0]);
        float *const output = mt_packed_data(&arguments[1]);
        for (int32_t i = 0; i < 4; ++i) {
            output[i] = input[i] * 2.0f;
        }
    }
    return status;
}

static int32_t sum(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                   int32_t *result_code, void *resource)
{
    (void)resource;
    if (count != 2 || type_codes[0] != MT_ARG_INT || type_codes[1] != MT_ARG_FLOAT) {
        return count != 2 ? MT_BAD_COUNT : MT_BAD_TYPE;
    }
    result->v_float64 = (double)arguments[0].v_int64 + arguments[1].v_float64;
    *result_code = MT_ARG_FLOAT;
    return MT_OK;
}

static int32_t fail(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                    int32_t *result_code, void *resource)
{
    (void)arguments;
    (void)type_codes;
    (void)count;
    (void)result;
    (void)result_code;
    (void)resource;
    return MT_BAD_SHAPE;
}

static int32_t run(const struct mt_model *model)
{
    (void)model;
    return 0;
}

static int32_t step(const struct mt_model *model, uint16_t number)
{
    (void)model;
    return number == 0 ? 0 : -1;
}

static const struct mt_function list[] = {{"test_double", twice}, {"test_sum", sum}, {"test_fail", fail}};
static DLTensor tensors[3];
static union mt_value values[3];
static int32_t codes[3];
static int64_t dims[4];

static const struct mt_functions functions = {
    .list = list,
    .count = 3,
    .most_arguments = 3,
    .most_dims = 4,
    .tensors = tensors,
    .values = values,
    .codes = codes,
    .dims = dims,
    .find = mt_functions_find,
    .invoke = mt_functions_invoke,
};

const struct mt_model mt_model = {
    .name = "test_model",
    .model_hash = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    .operator_count = 1,
    .arena = (uint8_t *)arena,
    .arena_bytes = ARENA_BYTES,
    .run = run,
    .step = step,
    .functions = &functions,
};
