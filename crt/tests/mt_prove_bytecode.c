/* Whatever bytecode arrives, checking it reads only the module: files of any bytes, then a call of each kernel, whose
 * operands are arbitrary. Those that say how many constants are read take each value for which these fit, then any
 * other. */
#include "mt_bytecode_bounds.h"
#include "mt_bytecode_map.h"
#include "mt_prove.h"

#define MOST_CONSTANTS 1024u
#define MOST_OPERANDS 32u
#define HEAD (MT_BYTECODE_HEAD + 1u)
#define EACH(number, last) for (uint32_t number = 1; number <= (last); ++number)

static uint32_t bytes[HEAD + MOST_OPERANDS + MOST_CONSTANTS / 4u]; /* a module ends where this does */

/* A size of which `last` and more can't be stored. */
static int32_t size(uint32_t number, uint32_t last)
{
    return (int32_t)(number < last ? number : any(last, 32767));
}

/* A module of one call and some constants, of which only the sizes are known; return the operands. */
static void *begin(const struct mt_bytecode_kernel *kernel, uint32_t operands, uint32_t constants)
{
    uint32_t *const words = bytes + sizeof bytes / 4u - HEAD - operands - constants / 4u;
    any_bytes(bytes, sizeof bytes);
    words[2] = 1u + operands;
    words[4] = kernel->number | (any(0, 1) ? MT_BYTECODE_MORE : 0) | operands << 16;
    return words + HEAD;
}

static void open_any(const struct mt_bytecode_kernel *kernel, const void *module)
{
    const struct mt_bytecode_kernel *const library[] = {kernel};
    struct mt_bytecode opened;
    const uint8_t *const end = (const uint8_t *)bytes + sizeof bytes;
    (void)mt_bytecode_open(&opened, module, (uint32_t)(end - (const uint8_t *)module), library, 1);
}

static void check(const struct mt_bytecode_kernel *kernel, const void *operands)
{
    open_any(kernel, (const uint32_t *)operands - HEAD);
}

static int may_fit(const struct mt_bytecode *module, const uint32_t *operands, uint32_t count)
{
    (void)module, (void)operands, (void)count;
    return (int)any(0, 1);
}

/* Files of any bytes, with a kernel that takes any operands. */
static void check_files(void)
{
    static const struct mt_bytecode_kernel kernel = {1, 0, 1, may_fit, NULL};
    for (size_t size = 0; size <= 4u * MOST_OPERANDS; ++size) {
        any_bytes(bytes, sizeof bytes);
        open_any(&kernel, (const uint8_t *)bytes + sizeof bytes - size);
    }
}

#define BEGIN(name, constants) \
    struct mt_bytecode_##name *const call = begin(&mt_bytecode_##name, sizeof *call / 4u, (constants))

#define REFUSE(name, size)                                          \
    {                                                               \
        BEGIN(name, MOST_CONSTANTS);                                \
        call->size = Frama_C_interval(limits[i][0], limits[i][1]); \
        check(&mt_bytecode_##name, call);                           \
    }

/* Kernels whose operands need not be taken one by one. */
static void check_plain(void)
{
    static const struct mt_bytecode_kernel *const kernels[] = {
        &mt_bytecode_copy, &mt_bytecode_add_int8, &mt_bytecode_pool_int8, &mt_bytecode_softmax_int8,
        &mt_bytecode_conv2d_f32, &mt_bytecode_pool_f32, &mt_bytecode_softmax_f32, &mt_bytecode_map,
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        check(kernels[i], begin(kernels[i], kernels[i]->operands, MOST_CONSTANTS));
    }
    for (uint32_t more = 1; more <= 12; ++more) { /* steps of a map */
        check(&mt_bytecode_map, begin(&mt_bytecode_map, mt_bytecode_map.operands + more, MOST_CONSTANTS));
    }
}

/* What is not a size is refused, whatever else the call has. */
static void check_no_sizes(void)
{
    static const int32_t limits[][2] = {{INT32_MIN, 0}, {32768, INT32_MAX}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; ++i) {
        REFUSE(dense_int8, depth);
        REFUSE(dense_int8, outputs);
        REFUSE(conv2d_int8, depth);
        REFUSE(conv2d_int8, out_channels);
        REFUSE(depthwise_int8, kernel_rows);
        REFUSE(depthwise_int8, steps);
        REFUSE(depthwise_int8, channels);
        REFUSE(depthwise_int8, multiplier);
    }
}

static void check_dense(void)
{
    EACH (depth, 21) {
        EACH (outputs, 17) {
            BEGIN(dense_int8, 256);
            call->depth = size(depth, 21);
            call->outputs = size(outputs, 17);
            check(&mt_bytecode_dense_int8, call);
        }
    }
}

static void check_conv2d(void)
{
    EACH (depth, 54) {
        EACH (channels, 7) {
            BEGIN(conv2d_int8, 128);
            call->depth = size(depth, 54);
            call->out_channels = size(channels, 7);
            check(&mt_bytecode_conv2d_int8, call);
        }
    }
}

static void check_depthwise(void)
{
    EACH (rows, 19) {
        const uint32_t most = 18u / rows + 1u;
        EACH (steps, most) {
            EACH (channels, 4) {
                const uint32_t each = 3u / channels + 1u;
                EACH (multiplier, each) {
                    BEGIN(depthwise_int8, 48);
                    call->kernel_rows = size(rows, 19);
                    call->steps = size(steps, most);
                    call->channels = size(channels, 4);
                    call->multiplier = size(multiplier, each);
                    check(&mt_bytecode_depthwise_int8, call);
                }
            }
        }
    }
}

int main(void)
{
    check_files();
    check_plain();
    check_no_sizes();
    check_dense();
    check_conv2d();
    check_depthwise();
    return 0;
}
