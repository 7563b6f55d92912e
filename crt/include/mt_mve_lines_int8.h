/* Internal to mtool: applications include mtool.h. */
/* Convolutions of int8 with Helium whose window lies in one piece: four windows by two sets of weights, eight sums.
 * Plain C where mt_mve.h is.
 *
 * A line is a row of the image, or a column. A position has a byte of each channel of a group for each line that a
 * window spans, and line n begins n of these bytes behind line 0: a new line takes the bytes that the oldest one has at
 * the position behind it, and the window moves on without a copy. */
#ifndef MT_MVE_LINES_INT8_H
#define MT_MVE_LINES_INT8_H

#include "mt_mve_tile_int8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of a layer: how lines are copied, eight bytes at a time; where results are stored, a step of eight at a
 * time; and all sets of weights. */
struct mt_mve_lines {
    uint16_t copies[8];             /* where eight bytes are copied to, */
    int32_t step, next;             /* bytes to the next eight: in the input, in lines */
    int32_t before, pairs, odd;     /* eights of padding; of the image, by twos, and whether there is one more; */
    int32_t behind;                 /* of padding, */
    int32_t image, all;             /* where the image begins, and eights of a line of padding */
    int32_t pad;                    /* the padding */
    int32_t first, height;          /* the image's first line, and their number */
    int32_t across, inputs;         /* bytes to the next line: in the input, in lines */
    int32_t channels;               /* of which eight are copied together */
    uint16_t places[8];             /* of the results of a step */
    int32_t out_step, steps;        /* bytes from a step to the next, and how they are counted: MT_MVE_LINES_HELD */
    int32_t back, out_back;         /* bytes by which the last step begins earlier, to end with the line */
    uint32_t stored;                /* the lanes that are, two bits each */
    int32_t pitch, along;           /* bytes to the next (pair of) sets: in lines, back in the output */
    int32_t windows, out_across;    /* the number of windows across lines, and bytes between their results */
    int32_t lines, slide;           /* the lines of a window, and to the next one */
    int32_t last_slide, out_last;   /* the same of the last window, which ends with the image */
    int32_t calls, last_calls;      /* groups one by one, for eight channels and for the last */
    int32_t sets, last_sets;        /* (pairs of) sets of weights of each */
    int32_t group_pitch, call_outputs, call_weights, call_numbers; /* bytes to the next group: lines, outputs, … */
    int32_t outputs, chunk_weights, chunk_numbers;                 /* and to the next eight channels */
    int32_t weights, numbers;                                      /* where these begin */
};

#define MT_MVE_PAIRS 16 /* the second set of weights is another channel's, by turns with the first */

#ifdef MT_MVE_ASM

#define MT_MVE_COPY_LINE                                                                                           \
    __asm__ volatile("wls lr, %[n], 2f\n\t"                                                                        \
                     "1:\n\t"                                                                                      \
                     "vldrb.u16 q0, [%[x]]\n\t"                                                                    \
                     "add %[x], %[step]\n\t"                                                                       \
                     "vldrb.u16 q1, [%[x]]\n\t"                                                                    \
                     "add %[x], %[step]\n\t"                                                                       \
                     "vstrb.16 q0, [%[to], %q[at]]\n\t"                                                            \
                     "vstrb.16 q1, [%[to], %q[behind]]\n\t"                                                        \
                     "add %[to], %[to], %[next], lsl #1\n\t"                                                       \
                     "le lr, 1b\n\t"                                                                               \
                     "2:"                                                                                          \
                     : [x] "+&l"(x), [to] "+&r"(to)                                                                \
                     : [n] "r"(how->pairs), [step] "r"(step), [next] "r"(next), [at] "w"(at), [behind] "w"(behind) \
                     : "lr", "q0", "q1", "cc", "memory")

/* Lines from `line` to the one before `end`. Of eight bytes the first `lanes` are read. */
MT_OPERATOR void mt_mve_copy_lines(int8_t *lines, const int8_t *input, int32_t line, int32_t end, int32_t lanes,
                                   const struct mt_mve_lines *how)
{
    const uint16x8_t at = vldrhq_u16(how->copies), behind = vaddq_n_u16(at, (uint16_t)how->next);
    const uint16x8_t pad = vdupq_n_u16((uint16_t)how->pad);
    const mve_pred16_t some = vctp16q((uint32_t)lanes);
    const int32_t next = how->next, step = how->step;
    for (; line < end; ++line) {
        const int is_inside = (uint32_t)(line - how->first) < (uint32_t)how->height;
        const int8_t *x = input + (line - how->first) * how->across;
        uint8_t *to = (uint8_t *)lines + line * how->inputs;
        for (int32_t n = is_inside ? how->before : how->all; n; --n, to += next)
            vstrbq_scatter_offset_u16(to, at, pad);
        if (!is_inside)
            continue;
        to = (uint8_t *)lines + line * how->inputs + how->image;
        if (lanes == 8)
            MT_MVE_COPY_LINE;
        for (int32_t n = lanes == 8 ? how->odd : 2 * how->pairs + how->odd; n; --n, x += step, to += next)
            vstrbq_scatter_offset_p_u16(to, at, vldrbq_z_u16((const uint8_t *)x, some), some);
        for (int32_t n = how->behind; n; --n, to += next)
            vstrbq_scatter_offset_u16(to, at, pad);
    }
}

/* Four windows, `apart` bytes from one to the next, by both sets: a vector of each. */
#define MT_MVE_LINES_BLOCK(sum)                \
    "vldrb.u8 q1, [%[w], #%c[second]]\n\t"     \
    "vldrb.u8 q0, [%[w]], #%c[both]\n\t"       \
    "vldrb.u8 q2, [%[c]], #16\n\t"             \
    sum " r0, q0, q2\n\t"                      \
    "vldrb.u8 q3, [%[c], #%c[apart]-16]\n\t"   \
    sum " r2, q1, q2\n\t"                      \
    sum " r4, q0, q3\n\t"                      \
    "vldrb.u8 q2, [%[c], #2*%c[apart]-16]\n\t" \
    sum " r6, q1, q3\n\t"                      \
    sum " r8, q0, q2\n\t"                      \
    "vldrb.u8 q3, [%[c], #3*%c[apart]-16]\n\t" \
    sum " r10, q1, q2\n\t"                     \
    sum " r12, q0, q3\n\t"                     \
    sum " lr, q1, q3\n\t"
#define MT_MVE_LINES_MORE(block) "1:\n\t" block "cmp %[c], %[end]\n\tbne 1b\n\t"

#define MT_MVE_LINES_SUMS            \
    "vmov q0[2], q0[0], r0, r4\n\t"  \
    "vmov q0[3], q0[1], r2, r6\n\t"  \
    "vmov q1[2], q1[0], r8, r12\n\t" \
    "vmov q1[3], q1[1], r10, lr\n\t"
#define MT_MVE_LINES_BIAS           \
    "vadd.i32 q0, q0, %q[bias]\n\t" \
    "vadd.i32 q1, q1, %q[bias]\n\t"
#define MT_MVE_LINES_ALL "vstrb.16 q0, [%[o], %q[at]]\n\t"
#define MT_MVE_LINES_SOME "ldr r0, %[stored]\n\tvmsr p0, r0\n\tvpst\n\tvstrbt.16 q0, [%[o], %q[at]]\n\t"
#define MT_MVE_LINES_USED "r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "cc", "memory"

/* A step: the products, what is added to the sums, the scaling, what is stored, and their operands. */
#define MT_MVE_LINES_STEP(products, added, scale, store, ...)                                                \
    __asm__ volatile(products MT_MVE_LINES_SUMS added scale store                                            \
                     : [c] "+&r"(x), [w] "+&r"(w)                                                            \
                     : [o] "r"(o), [at] "w"(at), [apart] "i"(apart), [second] "i"(second), [both] "i"(both), \
                       __VA_ARGS__                                                                           \
                     : MT_MVE_LINES_USED, "q0", "q1", "q2", "q3")
#define MT_MVE_LINES_STORED(products, added, scale, ...)                                                     \
    do {                                                                                                     \
        if (some)                                                                                            \
            MT_MVE_LINES_STEP(products, added, scale, MT_MVE_LINES_SOME, __VA_ARGS__, [stored] "m"(stored)); \
        else                                                                                                 \
            MT_MVE_LINES_STEP(products, added, scale, MT_MVE_LINES_ALL, __VA_ARGS__);                        \
    } while (0)
#define MT_MVE_LINES_NEAR(products, scaling, ...)                                                        \
    MT_MVE_LINES_STORED(products, MT_MVE_LINES_BIAS, scaling("%q[scale]", "%q[near]"), [bias] "w"(bias), \
                        [scale] "w"(scale), [near] "w"(near), __VA_ARGS__)

/* Steps are counted in twos: k begins at twice their number less 1 or, if the last one begins earlier than behind the
 * one before it, at twice their number less 2. It is negative after the last, and 0 before one that begins earlier.
 *
 * All sets, with windows of one vector and near floats: one set's weights and numbers stay in registers. */
#define MT_MVE_LINES_HELD(get, scaling, store)                                                                       \
    __asm__ volatile("1:\n\t"                                                                                        \
                     "vldrb.u8 q3, [%[w], #%c[second]]\n\t"                                                          \
                     "vldrb.u8 q2, [%[w]], #%c[both]\n\t" get                                                        \
                     "ldr %[k], %[steps]\n\t"                                                                        \
                     "2:\n\t"                                                                                        \
                     "vldrb.u8 q0, [%[c]], #4*%c[apart]\n\t"                                                         \
                     "vmladav.s8 r0, q0, q2\n\t"                                                                     \
                     "vldrb.u8 q1, [%[c], #-3*%c[apart]]\n\t"                                                        \
                     "vmladav.s8 r2, q0, q3\n\t"                                                                     \
                     "vmladav.s8 r4, q1, q2\n\t"                                                                     \
                     "vldrb.u8 q0, [%[c], #-2*%c[apart]]\n\t"                                                        \
                     "vmladav.s8 r6, q1, q3\n\t"                                                                     \
                     "vmladav.s8 r8, q0, q2\n\t"                                                                     \
                     "vldrb.u8 q1, [%[c], #-%c[apart]]\n\t"                                                          \
                     "vmladav.s8 r10, q0, q3\n\t"                                                                    \
                     "vmladav.s8 r12, q1, q2\n\t"                                                                    \
                     "vmladav.s8 lr, q1, q3\n\t" MT_MVE_LINES_SUMS                                                   \
                     "vadd.i32 q0, q0, q4\n\t"                                                                       \
                     "vadd.i32 q1, q1, q4\n\t" scaling("q5", "%q[near]") store                                       \
                     "add %[o], %[step]\n\t"                                                                         \
                     "subs %[k], #2\n\t"                                                                             \
                     "bgt 2b\n\t"                                                                                    \
                     "bmi 3f\n\t"                                                                                    \
                     "ldr r0, %[back]\n\t"                                                                           \
                     "ldr r2, %[out_back]\n\t"                                                                       \
                     "sub %[c], r0\n\t"                                                                              \
                     "sub %[o], r2\n\t"                                                                              \
                     "b 2b\n\t"                                                                                      \
                     "3:\n\t"                                                                                        \
                     "ldr r0, %[pitch]\n\t"                                                                          \
                     "ldr r2, %[along]\n\t"                                                                          \
                     "ldr r4, %[sets]\n\t"                                                                           \
                     "add %[c], r0\n\t"                                                                              \
                     "sub %[o], r2\n\t"                                                                              \
                     "subs r4, #1\n\t"                                                                               \
                     "str r4, %[sets]\n\t"                                                                           \
                     "bne 1b"                                                                                        \
                     : [c] "+&r"(x), [w] "+&r"(w), [n] "+&r"(numbers), [o] "+&r"(o), [k] "=&r"(k), [sets] "+m"(left) \
                     : [step] "r"(step), [steps] "m"(steps), [pitch] "m"(pitch), [along] "m"(along), [at] "w"(at),   \
                       [near] "w"(near), [stored] "m"(stored), [back] "m"(back), [out_back] "m"(out_back),           \
                       [apart] "i"(apart), [second] "i"(second), [both] "i"(both)                                    \
                     : MT_MVE_LINES_USED, "q0", "q1", "q2", "q3", "q4", "q5")
#define MT_MVE_LINES_ONE          \
    "ldrd r0, r2, [%[n]], #8\n\t" \
    "vdup.32 q4, r0\n\t"          \
    "vdup.32 q5, r2\n\t"
#define MT_MVE_LINES_TWO            \
    "ldrd r0, r2, [%[n]], #8\n\t"   \
    "vdup.32 q4, r0\n\t"            \
    "vmov q4[3], q4[1], r2, r2\n\t" \
    "ldrd r0, r2, [%[n]], #8\n\t"   \
    "vdup.32 q5, r0\n\t"            \
    "vmov q5[3], q5[1], r2, r2\n\t"
#define MT_MVE_LINES_HELD_BY(scaling)                                        \
    do {                                                                     \
        if (pairs && some)                                                   \
            MT_MVE_LINES_HELD(MT_MVE_LINES_TWO, scaling, MT_MVE_LINES_SOME); \
        else if (pairs)                                                      \
            MT_MVE_LINES_HELD(MT_MVE_LINES_TWO, scaling, MT_MVE_LINES_ALL);  \
        else if (some)                                                       \
            MT_MVE_LINES_HELD(MT_MVE_LINES_ONE, scaling, MT_MVE_LINES_SOME); \
        else                                                                 \
            MT_MVE_LINES_HELD(MT_MVE_LINES_ONE, scaling, MT_MVE_LINES_ALL);  \
    } while (0)

#define MT_MVE_LINES_WIDE(products, scale, ...)                                                                   \
    MT_MVE_LINES_STORED(products, "vldrw.32 q2, [%[n]]\n\tvadd.i32 q0, q0, q2\n\tvadd.i32 q1, q1, q2\n\t", scale, \
                        [n] "r"(spread), [zero] "w"(zero), [low] "w"(low), [high] "w"(high), __VA_ARGS__)
#define MT_MVE_LINES_SCALES "vldrw.32 q2, [%[n], #16]\n\t"
#define MT_MVE_LINES_MULTIPLIERS MT_MVE_LINES_SCALES "vldrw.32 q3, [%[n], #32]\n\t"
#define MT_MVE_LINES_SCALED(products, ...)                                                          \
    do {                                                                                            \
        if (by == MT_TWICE)                                                                         \
            MT_MVE_LINES_WIDE(products, MT_MVE_SCALE_TWICE(MT_MVE_LINES_MULTIPLIERS), __VA_ARGS__); \
        else if (by == MT_ONCE)                                                                     \
            MT_MVE_LINES_WIDE(products, MT_MVE_SCALE_ONCE(MT_MVE_LINES_MULTIPLIERS), __VA_ARGS__);  \
        else if (by == MT_BY_FLOAT)                                                                 \
            MT_MVE_LINES_WIDE(products, MT_MVE_SCALE_FLOAT(MT_MVE_LINES_SCALES), __VA_ARGS__);      \
        else if (by == MT_BY_ODD_FLOAT)                                                             \
            MT_MVE_LINES_NEAR(products, MT_MVE_ODD_FLOATS, __VA_ARGS__);                            \
        else                                                                                        \
            MT_MVE_LINES_NEAR(products, MT_MVE_NEAR_FLOATS, __VA_ARGS__);                           \
    } while (0)
#define MT_MVE_LINES_OF(times) times(MT_MVE_LINES_BLOCK(MT_MVE_BEGIN), MT_MVE_LINES_BLOCK)

/* The results of a line, or two, for `sets` of weights or pairs of them. */
MT_MVE_INLINE void mt_mve_line_sets(const int8_t *x, int8_t *o, const int8_t *w, const int32_t *numbers, int32_t sets,
                                    const struct mt_mve_lines *how, const struct mt_mve_range *range,
                                    int vectors, int apart, int second, int some, enum mt_scaling by)
{
    const int pairs = second == MT_MVE_PAIRS, both = pairs ? 32 : 16;
    const int words = by <= MT_BY_ODD_FLOAT ? 2 : 3, odd = by == MT_BY_ODD_FLOAT;
    const uint16x8_t at = vldrhq_u16(how->places);
    const int16x8_t zero = vldrhq_s16(range->zero_point), low = vldrhq_s16(range->low), high = vldrhq_s16(range->high);
    const uint32x4_t whole = vdupq_n_u32(MT_MVE_WHOLE_STEPS + (uint32_t)(int32_t)range->zero_point[0]);
    const uint32x4_t near = odd ? vreinterpretq_u32_s16(zero) : whole;
    const uint32x4_t lane = vandq_u32(vidupq_n_u32(0, 4), vdupq_n_u32(4));
    const int32_t step = how->out_step, steps = how->steps, pitch = how->pitch, along = how->along;
    const int32_t back = how->back, out_back = how->out_back;
    const uint32_t stored = how->stored;
    int32_t k;
    if (vectors == 1 && (odd || by == MT_BY_NEAR_FLOAT)) {
        int32_t left = sets;
        if (odd)
            MT_MVE_LINES_HELD_BY(MT_MVE_ODD_FLOATS);
        else
            MT_MVE_LINES_HELD_BY(MT_MVE_NEAR_FLOATS);
        return;
    }
    for (; sets; --sets) {
        int32x4_t spread[3], bias, scale;
        for (int i = 0; i < words; ++i, numbers += both / 16)
            spread[i] = pairs ? vldrwq_gather_offset_s32(numbers, lane) : vdupq_n_s32(*numbers);
        bias = spread[0];
        scale = spread[1];
        for (k = steps;;) {
            const int8_t *const end = x + 16 * vectors;
            if (vectors == 1)
                MT_MVE_LINES_SCALED(MT_MVE_LINES_OF(MT_MVE_TILE_1), "i"(0));
            else if (vectors == 2)
                MT_MVE_LINES_SCALED(MT_MVE_LINES_OF(MT_MVE_TILE_2), "i"(0));
            else if (vectors == 3)
                MT_MVE_LINES_SCALED(MT_MVE_LINES_OF(MT_MVE_TILE_3), "i"(0));
            else if (vectors == 4)
                MT_MVE_LINES_SCALED(MT_MVE_LINES_OF(MT_MVE_TILE_4), "i"(0));
            else
                MT_MVE_LINES_SCALED(
                    MT_MVE_LINES_OF(MT_MVE_TILE_1) MT_MVE_LINES_MORE(MT_MVE_LINES_BLOCK(MT_MVE_GO_ON)),
                    [end] "r"(end));
            w -= both * vectors;
            x += 4 * apart - 16 * vectors;
            o += step;
            if ((k -= 2) > 0)
                continue;
            if (k < 0)
                break;
            x -= back;
            o -= out_back;
        }
        w += both * vectors;
        x += pitch;
        o -= along;
    }
}

#else /* portable version */

MT_OPERATOR void mt_mve_copy_lines(int8_t *lines, const int8_t *input, int32_t line, int32_t end, int32_t lanes,
                                   const struct mt_mve_lines *how)
{
    for (; line < end; ++line) {
        const int is_inside = (uint32_t)(line - how->first) < (uint32_t)how->height;
        const int8_t *x = input + (line - how->first) * how->across;
        int8_t *to = lines + line * how->inputs;
        for (int32_t n = is_inside ? how->before : how->all; n; --n, to += how->next)
            for (int32_t i = 0; i < 8; ++i)
                to[how->copies[i]] = (int8_t)how->pad;
        if (!is_inside)
            continue;
        to = lines + line * how->inputs + how->image;
        for (int32_t n = 2 * how->pairs + how->odd; n; --n, x += how->step, to += how->next)
            for (int32_t i = 0; i < lanes; ++i)
                to[how->copies[i]] = x[i];
        for (int32_t n = how->behind; n; --n, to += how->next)
            for (int32_t i = 0; i < 8; ++i)
                to[how->copies[i]] = (int8_t)how->pad;
    }
}

MT_MVE_INLINE void mt_mve_line_sets(const int8_t *x, int8_t *o, const int8_t *w, const int32_t *numbers, int32_t sets,
                                    const struct mt_mve_lines *how, const struct mt_mve_range *range,
                                    int vectors, int apart, int second, int some, enum mt_scaling by)
{
    const int pairs = second == MT_MVE_PAIRS, each = pairs ? 2 : 1;
    (void)some;
    for (; sets; --sets, w += each * 16 * vectors) {
        for (int32_t k = how->steps; k >= 0; k -= 2, x += 4 * apart, o += how->out_step) {
            x -= k ? 0 : how->back;
            o -= k ? 0 : how->out_back;
            for (int32_t lane = 0; lane < 8; ++lane) {
                /* lanes: a0 a2 b0 b2 a1 a3 b1 b3 */
                const int32_t q = lane / 2 % 2, own = pairs ? q : 0;
                const int8_t *const window = x + (lane / 4 + lane % 2 * 2) * apart;
                int32_t sum = numbers[own];
                if (!(how->stored >> (2 * lane) & 1U))
                    continue;
                for (int32_t i = pairs ? 0 : q * -second; i < 16 * vectors; ++i)
                    sum += window[i] * (pairs ? w[i / 16 * 32 + 16 * q + i % 16] : w[i + q * second]);
                o[how->places[lane]] = mt_mve_narrow(sum, (const int8_t *)(numbers + each + own), each, by, range);
            }
        }
        numbers += (by <= MT_BY_ODD_FLOAT ? 2 : 3) * each;
        x += how->pitch;
        o -= how->along;
    }
}

#endif

typedef void mt_mve_sets(const int8_t *x, int8_t *o, const int8_t *w, const int32_t *numbers, int32_t sets,
                         const struct mt_mve_lines *how, const struct mt_mve_range *range);

/* A layer. */
MT_OPERATOR void mt_mve_by_lines(const int8_t *input, int8_t *output, const int8_t *weights, int8_t *scratch,
                                 mt_mve_sets *of_sets, const struct mt_mve_lines *how, const struct mt_mve_range *range)
{
    const int8_t *w = weights + how->weights;
    const int8_t *numbers = weights + how->numbers;
    for (int32_t left = how->channels; left > 0; left -= 8, input += 8) {
        const int32_t lanes = left < 8 ? left : 8;
        const int32_t calls = left < 8 ? how->last_calls : how->calls, sets = left < 8 ? how->last_sets : how->sets;
        const int8_t *window = scratch;
        int8_t *o = output;
        int32_t line = 0, end = how->lines;
        for (int32_t n = how->windows; n; --n) {
            mt_mve_copy_lines(scratch, input, line, end, lanes, how);
            for (int32_t i = 0; i < calls; ++i)
                of_sets(window + i * how->group_pitch, o + i * how->call_outputs, w + i * how->call_weights,
                        (const int32_t *)(const void *)(numbers + i * how->call_numbers), sets, how, range);
            line = end;
            end += n == 2 ? how->last_slide : how->slide;
            window = scratch + (end - how->lines) * how->inputs;
            o += n == 2 ? how->out_last : how->out_across;
        }
        output += how->outputs;
        w += how->chunk_weights;
        numbers += how->chunk_numbers;
    }
}

/* The instances that operators share: of windows of `vectors`, `apart` bytes from one to the next; `second`: where the
 * second set of weights begins, before the first, or MT_MVE_PAIRS; `some`: not all results of a step are stored. */
#define MT_MVE_LINES(name, vectors, apart, second, some, by)                                                 \
    MT_OPERATOR void name(const int8_t *x, int8_t *o, const int8_t *w, const int32_t *numbers, int32_t sets, \
                          const struct mt_mve_lines *how, const struct mt_mve_range *range)                  \
    {                                                                                                        \
        mt_mve_line_sets(x, o, w, numbers, sets, how, range, vectors, apart, second, some, by);              \
    }

#ifdef __cplusplus
}
#endif

#endif
