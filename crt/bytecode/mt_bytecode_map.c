/* Bytecode's expressions, computed for each element: everything that has no kernel of its own. */
#include "mt_bytecode_map.h"

#include <string.h>

#include "mt_bytecode_bounds.h"
#include "mt_float.h"
#include "mt_math.h"

#define MOST 64 /* values of an element */
#define AXES 5
#define ROUNDS 16 /* elements that are accumulated into others, for each byte of arena and constants */

enum {
#define STEP(code, name, kinds, words) STEP_##name = code,
    MT_BYTECODE_STEPS(STEP)
#undef STEP
        STEPS
};

enum { TYPE_I8, TYPE_U8, TYPE_I16, TYPE_U16, TYPE_I32, TYPE_F32, TYPES };

static const struct {
    char kinds[5];
    uint8_t words;
} steps[STEPS] = {
#define STEP(code, name, kinds, words) {kinds, words},
    MT_BYTECODE_STEPS(STEP)
#undef STEP
};

union value {
    int32_t i;
    float f;
};

static uint32_t bytes_of(uint32_t type)
{
    return type >= TYPE_I32 ? 4 : type >= TYPE_I16 ? 2 : 1;
}

static int is_shift(const uint32_t *words)
{
    const int32_t shift = (int32_t)words[3];
    uint32_t most = UINT32_C(1) << (shift & 31);
    for (int32_t i = 0; i < 3; ++i) /* factors of int8, the offset */
        most = mt_bytecode_plus(most, mt_bytecode_times((int32_t)words[i] < 0 ? 0u - words[i] : words[i], i < 2 ? 128 : 1));
    return shift >= 1 && shift <= 30 && most < UINT32_C(0x80000000);
}

/* Zero point and limits of any 8-bit or 16-bit type. */
static int is_range(const uint32_t *words)
{
    for (int32_t i = 0; i < 3; ++i)
        if (words[i] + 32768u > 65535u + 32768u)
            return 0;
    return (int32_t)words[1] <= (int32_t)words[2];
}

/* The words of a step, besides the kinds of its values. */
static int are_words(const struct mt_bytecode *module, const struct mt_bytecode_map *call, uint32_t step,
                     const uint32_t *words)
{
    const uint32_t type = step >> 8 & 255;
    uint32_t bytes;
    switch (step & 255) {
    case STEP_load:
        bytes = bytes_of(type);
        for (int32_t i = 0; i < AXES; ++i) {
            if (words[1 + i] % bytes_of(type))
                return 0;
            bytes = mt_bytecode_plus(bytes, mt_bytecode_times((uint32_t)call->sizes[i] - 1, words[1 + i]));
        }
        return mt_bytecode_reads(module, words[0], bytes, bytes_of(type));
    case STEP_look_up:
        return words[1] > 0 && words[1] < UINT32_C(0x80000000) &&
               mt_bytecode_reads(module, words[0], mt_bytecode_times(words[1], bytes_of(type)), bytes_of(type));
    case STEP_add_to:
    case STEP_mul_to:
    case STEP_min_to:
    case STEP_max_to:
        if (type < TYPE_I32)
            return 0;
        /* fall through */
    case STEP_store:
        bytes = bytes_of(type);
        for (int32_t i = 0; i < AXES; ++i) {
            if (call->to[i] % bytes_of(type))
                return 0;
            bytes = mt_bytecode_plus(bytes, mt_bytecode_times((uint32_t)call->sizes[i] - 1, call->to[i]));
        }
        return mt_bytecode_writes(module, call->output, bytes, bytes_of(type));
    case STEP_axis:
        return type < AXES;
    case STEP_requantize:
    case STEP_quantize:
        return is_range(words);
    case STEP_rescale_pair:
        return is_shift(words) && is_range(words + 5);
    default:
        return 1;
    }
}

/* Check one step: its values exist and have the right kinds. `floats` has a bit for each of the `made` values that
 * is a float. */
static int is_step(uint32_t code, uint32_t step, uint32_t made, uint64_t *floats)
{
    const char *const kinds = steps[code].kinds;
    const uint32_t first = step >> 8 & 255;
    int is_float = kinds[0] == 'f';
    for (uint32_t i = 1; i < 4; ++i) {
        const uint32_t named = step >> (8 * i) & 255;
        const int named_float = named < made && (*floats >> named & 1);
        if (kinds[i] == 't' && named >= TYPES)
            return 0;
        if ((kinds[i] == 'i' && (named >= made || named_float)) || (kinds[i] == 'f' && !named_float))
            return 0;
        if (kinds[i] == '?' && (named >= made || named_float != (first == TYPE_F32)))
            return 0;
    }
    if (kinds[0] == '?')
        is_float = first == TYPE_F32;
    *floats |= (uint64_t)is_float << made;
    return code != STEP_wrap || first != TYPE_F32;
}

/* Whether a number of elements that are accumulated is within a model's limits. */
static int is_short(const struct mt_bytecode *module, const struct mt_bytecode_map *call)
{
    uint32_t elements = 1;
    for (int32_t i = 0; i < AXES; ++i)
        elements = mt_bytecode_times(elements, (uint32_t)call->sizes[i]);
    return elements / ROUNDS <= mt_bytecode_plus(module->arena_bytes, module->constant_bytes);
}

static int fits(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(map, operands);
    const uint32_t *step = operands + sizeof(*call) / sizeof(uint32_t), *const end = operands + count;
    uint64_t floats = 0;
    uint32_t made = 0;
    for (int32_t i = 0; i < AXES; ++i)
        if (call->sizes[i] < 1)
            return 0;
    for (; step < end && made < MOST; ++made) {
        const uint32_t code = *step & 255;
        if (code >= STEPS || steps[code].words >= (uint32_t)(end - step) || !is_step(code, *step, made, &floats) ||
            !are_words(module, call, *step, step + 1))
            return 0;
        step += 1 + steps[code].words;
        if (code == STEP_store)
            return step == end && mt_bytecode_are_elements(module, call->sizes, AXES, 1);
        if (code >= STEP_add_to)
            return step == end && is_short(module, call);
    }
    return 0;
}

static union value loaded(const uint8_t *from, uint32_t type)
{
    union value value;
    int16_t two;
    switch (type) {
    case TYPE_I8:
        value.i = (int8_t)*from;
        break;
    case TYPE_U8:
        value.i = *from;
        break;
    case TYPE_I16:
    case TYPE_U16:
        memcpy(&two, from, 2);
        value.i = type == TYPE_I16 ? two : (uint16_t)two;
        break;
    default:
        memcpy(&value, from, 4);
        break;
    }
    return value;
}

static int32_t wrapped(int32_t value, uint32_t type)
{
    return type == TYPE_I8 ? (int8_t)(value & 255) : type == TYPE_U8 ? (value & 255) : type == TYPE_I16 ? (int16_t)(value & 65535)
           : type == TYPE_U16 ? (value & 65535) : value;
}

static const uint8_t *place(const struct mt_bytecode *module, const uint8_t *arena, const uint32_t *words,
                            const uint32_t *at)
{
    const uint8_t *from = mt_bytecode_at(module, arena, words[0]);
    for (int32_t i = 0; i < AXES; ++i)
        from += words[1 + i] * at[i];
    return from;
}

/* Combine the present element with a value. */
static union value joined(uint32_t code, uint32_t type, union value old, union value value)
{
    if (type == TYPE_F32)
        value.f = code == STEP_add_to   ? old.f + value.f
                  : code == STEP_mul_to ? old.f * value.f
                  : code == STEP_min_to ? mt_min_f32(old.f, value.f)
                                        : mt_max_f32(old.f, value.f);
    else
        value.i = code == STEP_add_to   ? (int32_t)((uint32_t)old.i + (uint32_t)value.i)
                  : code == STEP_mul_to ? (int32_t)((uint32_t)old.i * (uint32_t)value.i)
                  : code == STEP_min_to ? mt_min_i32(old.i, value.i)
                                        : mt_max_i32(old.i, value.i);
    return value;
}

/* One element; `at` is its index along the dimensions, `values` has space for the values of the steps. */
static void element(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, const uint32_t *at,
                    union value *values)
{
    MT_BYTECODE_CALL(map, operands);
    const uint32_t *words = operands + sizeof(*call) / sizeof(uint32_t);
    union value *made = values;
    for (;; ++made) {
        const uint32_t step = *words++, type = step >> 8 & 255;
        const union value a = values[type % MOST], b = values[(step >> 16 & 255) % MOST], c = values[(step >> 24) % MOST];
        const uint32_t left = (uint32_t)a.i, right = (uint32_t)b.i;
        uint8_t *to;
        int32_t index;
        switch (step & 255) {
        case STEP_load:
            *made = loaded(place(module, arena, words, at), type);
            break;
        case STEP_integer:
        case STEP_real:
            memcpy(made, words, 4);
            break;
        case STEP_axis:
            made->i = (int32_t)at[type];
            break;
        case STEP_look_up:
            index = b.i < 0 ? 0 : right < words[1] ? b.i : (int32_t)words[1] - 1;
            *made = loaded((const uint8_t *)mt_bytecode_at(module, arena, words[0]) +
                               (uint32_t)index * bytes_of(type), type);
            break;
        case STEP_store:
        case STEP_add_to:
        case STEP_mul_to:
        case STEP_min_to:
        case STEP_max_to:
            to = arena + call->output;
            for (int32_t i = 0; i < AXES; ++i)
                to += call->to[i] * at[i];
            *made = (step & 255) == STEP_store ? b : joined(step & 255, type, loaded(to, type), b);
            memcpy(to, made, bytes_of(type)); /* the low bytes come first */
            return;
        case STEP_add_i:
            made->i = (int32_t)(left + right);
            break;
        case STEP_sub_i:
            made->i = (int32_t)(left - right);
            break;
        case STEP_mul_i:
            made->i = (int32_t)(left * right);
            break;
        case STEP_min_i:
            made->i = mt_min_i32(a.i, b.i);
            break;
        case STEP_max_i:
            made->i = mt_max_i32(a.i, b.i);
            break;
        case STEP_less_i:
            made->i = a.i < b.i;
            break;
        case STEP_equal_i:
            made->i = a.i == b.i;
            break;
        case STEP_div_i: /* subtract the remainder first: it has the divisor's sign */
            made->i = mt_div_i32((int32_t)(left - (uint32_t)mt_mod_i32(a.i, b.i)), b.i);
            break;
        case STEP_mod_i:
            made->i = mt_mod_i32(a.i, b.i);
            break;
        case STEP_where_i:
        case STEP_where_f:
            *made = a.i ? b : c;
            break;
        case STEP_wrap:
            made->i = wrapped(b.i, type);
            break;
        case STEP_to_f:
            made->f = (float)a.i;
            break;
        case STEP_to_i:
            made->i = mt_i32_from_f32(a.f);
            break;
        case STEP_add_f:
            made->f = a.f + b.f;
            break;
        case STEP_sub_f:
            made->f = a.f - b.f;
            break;
        case STEP_mul_f:
            made->f = a.f * b.f;
            break;
        case STEP_div_f:
            made->f = a.f / b.f;
            break;
        case STEP_min_f:
            made->f = mt_min_f32(a.f, b.f);
            break;
        case STEP_max_f:
            made->f = mt_max_f32(a.f, b.f);
            break;
        case STEP_less_f:
            made->i = a.f < b.f;
            break;
        case STEP_equal_f:
            made->i = a.f == b.f;
            break;
        case STEP_abs_f:
            made->f = fabsf(a.f);
            break;
        case STEP_sqrt_f:
            made->f = sqrtf(a.f);
            break;
        case STEP_exp_f:
            made->f = expf(a.f);
            break;
        case STEP_log_f:
            made->f = logf(a.f);
            break;
        case STEP_tanh_f:
            made->f = tanhf(a.f);
            break;
        case STEP_sigmoid_f:
            made->f = mt_sigmoid_f32(a.f);
            break;
        case STEP_floor_f:
            made->f = floorf(a.f);
            break;
        case STEP_requantize:
            made->i = mt_requantize_wide(a.i, b.f, (int32_t)words[0], (int32_t)words[1], (int32_t)words[2]);
            break;
        case STEP_quantize:
            made->i = mt_quantize(a.f, b.f, (int32_t)words[0], (int32_t)words[1], (int32_t)words[2]);
            break;
        case STEP_rescale_pair: {
            const int32_t total = (int32_t)((uint32_t)wrapped(a.i, TYPE_I8) * words[0] +
                                            (uint32_t)wrapped(b.i, TYPE_I8) * words[1] + words[2]);
            const int32_t shifted = words[4] ? mt_shift_even(total, (int32_t)words[3]) : total >> words[3];
            made->i = mt_clamp(shifted + (words[4] ? (int32_t)words[5] : 0), (int32_t)words[6], (int32_t)words[7]);
            break;
        }
        case STEP_bit_and:
            made->i = (int32_t)(left & right);
            break;
        default:
            made->i = (int32_t)(left | right);
            break;
        }
        words += steps[step & 255].words;
    }
}

static void run(const struct mt_bytecode *module, uint8_t *arena, const uint32_t *operands, uint32_t count)
{
    MT_BYTECODE_CALL(map, operands);
    union value values[MOST];
    uint32_t at[AXES];
    (void)count;
    memset(values, 0, sizeof(values));
    for (at[0] = 0; at[0] < (uint32_t)call->sizes[0]; ++at[0])
        for (at[1] = 0; at[1] < (uint32_t)call->sizes[1]; ++at[1])
            for (at[2] = 0; at[2] < (uint32_t)call->sizes[2]; ++at[2])
                for (at[3] = 0; at[3] < (uint32_t)call->sizes[3]; ++at[3])
                    for (at[4] = 0; at[4] < (uint32_t)call->sizes[4]; ++at[4])
                        element(module, arena, operands, at, values);
}

MT_BYTECODE_KERNEL_OF(map, 1);
