/* libFuzzer: whatever arrives over the line, the server accesses only its own memory, sends only whole frames, and runs
 * the model at most as often as requested.
 *
 * An input's first byte selects how the rest reaches the server:
 *   even: as bytes on the line
 *   odd:  as records (kind, length, bytes), which are sent as frames with a valid checksum, to get past the link */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mt_bytes.h"
#include "mt_cobs.h"
#include "mt_crc32.h"
#include "mt_functions.h"
#include "mtool.h"
#include "mt_protocol.h"

#define BUFFER_BYTES 512u
#define MOST_RUNS 64u
#define SESSION 0x1234u

#define MOST_PAYLOAD 200u /* fits into a frame, so that the server accepts what is sent to it in order */

/* Record kinds: frames of that type, in order, and these. The latter have two more bytes: the frame's type, and its
 * age. */
enum { RAW = 0xF0, REPEATED = 0xF1, AHEAD = 0xF2, OTHER_SESSION = 0xF3, OPEN = 0xF4 };

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            abort();                                                            \
        }                                                                       \
    } while (0)

#include "mt_test_wire.h"

static uint32_t runs;
static int is_running;

static uint8_t input[100], arena[64];
static uint32_t output[10];
static const struct mt_tensor inputs[] = {{input, sizeof input}};
static const struct mt_tensor outputs[] = {{output, sizeof output}, {NULL, 0}};

static int32_t run(const struct mt_model *model)
{
    (void)model;
    output[0] += input[0];
    memset(input, 0x11, sizeof input);
    return ++runs % MOST_RUNS == 0; /* fails now and then, so that a TIME with 4 billion runs ends */
}

static int32_t step(const struct mt_model *model, uint16_t number)
{
    (void)model;
    CHECK(number < 3);
    arena[number] = input[number];
    return ++runs % MOST_RUNS == 0;
}

/* A function that writes every byte of its tensors: the sanitizers notice if one is outside the model's memory. */
static int32_t fill(union mt_value *arguments, int32_t *type_codes, int32_t count, union mt_value *result,
                    int32_t *result_code, void *resource)
{
    (void)resource;
    for (int32_t i = 0; i < count; ++i) {
        if (type_codes[i] == MT_ARG_TENSOR) {
            const DLTensor *const tensor = arguments[i].v_handle;
            uint64_t bytes = tensor->dtype.bits / 8u;
            for (int32_t d = 0; d < tensor->ndim; ++d) {
                bytes *= (uint64_t)tensor->shape[d];
            }
            if (bytes > 0) {
                memset(tensor->data, 0x33, (size_t)bytes);
            }
        }
    }
    result->v_int64 = count;
    *result_code = MT_ARG_INT;
    return count % 3;
}

static const struct mt_function list[] = {{"fill", fill}, {"fill too", fill}};
static DLTensor tensors[3];
static union mt_value values[3];
static int32_t codes[3];
static int64_t dims[6];

static const struct mt_functions functions = {
    .list = list,
    .count = 2,
    .most_arguments = 3,
    .most_dims = 6,
    .tensors = tensors,
    .values = values,
    .codes = codes,
    .dims = dims,
    .find = mt_functions_find,
    .invoke = mt_functions_invoke,
};

const struct mt_model mt_model = {
    .name = "a name of more bytes than a reply to HELLO has room for",
    .model_hash = "short",
    .inputs = inputs,
    .outputs = outputs,
    .input_count = 1,
    .output_count = 2,
    .operator_count = 3,
    .arena = arena,
    .arena_bytes = sizeof arena,
    .run = run,
    .step = step,
    .functions = &functions,
};

int32_t mt_port_init(void)
{
    return MT_OK;
}

/* The server sends one whole frame between two delimiters. */
int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    uint8_t frame[BUFFER_BYTES];
    size_t decoded = 0;
    CHECK(count >= 2u + MT_FRAME_MIN_BYTES && count <= BUFFER_BYTES / 2u);
    CHECK(bytes[0] == 0 && bytes[count - 1u] == 0);
    CHECK(memchr(bytes + 1, 0, count - 2u) == NULL);
    memcpy(frame, bytes + 1, count - 2u);
    CHECK(mt_cobs_decode(frame, count - 2u, &decoded) == MT_OK && decoded >= MT_FRAME_MIN_BYTES);
    decoded -= MT_FRAME_CRC_BYTES;
    CHECK(mt_get_u32(frame + decoded) == mt_crc32(frame, decoded));
    CHECK((frame[0] & MT_REPLY) != 0);
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    if (is_running) {
        return MT_TIMER_RUNNING;
    }
    is_running = 1;
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    *elapsed_ns = 0;
    if (!is_running) {
        return MT_TIMER_NOT_STARTED;
    }
    is_running = 0;
    *elapsed_ns = runs;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    return 1;
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    memset(bytes, 0, count);
    return MT_OK;
}

void mt_port_abort(int32_t status)
{
    (void)status;
    abort();
}

void mt_port_idle(void)
{
}

static void put_raw(const uint8_t *bytes, size_t count)
{
    if (count <= sizeof wire - wire_end) {
        memcpy(wire + wire_end, bytes, count);
        wire_end += count;
    }
}

static void put_frame(uint8_t type, uint16_t session, uint16_t sequence, const uint8_t *payload, size_t count)
{
    uint8_t frame[MT_FRAME_MIN_BYTES + 255u];
    uint8_t encoded[sizeof frame + MT_COBS_OVERHEAD(sizeof frame) + 2u];
    const size_t checked = MT_FRAME_PAYLOAD + count;
    frame[0] = type;
    mt_put_u16(frame + MT_FRAME_SESSION, session);
    mt_put_u16(frame + MT_FRAME_SEQUENCE, sequence);
    if (count > 0) {
        memcpy(frame + MT_FRAME_PAYLOAD, payload, count);
    }
    mt_put_u32(frame + checked, mt_crc32(frame, checked));
    encoded[0] = 0;
    const size_t length = mt_cobs_encode(encoded + 1, frame, checked + MT_FRAME_CRC_BYTES);
    encoded[1u + length] = 0;
    put_raw(encoded, length + 2u);
}

static void put_hello(uint32_t nonce, uint8_t flags)
{
    uint8_t payload[10] = {MT_PROTOCOL_VERSION};
    mt_put_u32(payload + 1, nonce);
    payload[5] = flags & 1u;
    mt_put_u32(payload + 6, flags / 2u % 3u);
    put_frame(MT_HELLO, (uint16_t)nonce, 0, payload, flags < 32u ? 6u : sizeof payload);
}

/* Make frames from the records at `bytes`; returns the most times that they may run something. */
static uint64_t put_records(const uint8_t *bytes, size_t count)
{
    uint16_t sequence = 0;
    uint64_t may_run = 0;
    put_hello(SESSION, MT_HELLO_TAKE_OVER);
    for (size_t at = 0; at + 2u <= count;) {
        const uint8_t what = bytes[at];
        const uint8_t *payload = bytes + at + 2u;
        size_t length = bytes[at + 1u];
        at += 2u;
        length = length < count - at ? length : count - at;
        at += length;
        length = length < MOST_PAYLOAD ? length : MOST_PAYLOAD;
        const int is_frame = what < RAW || what > OPEN;
        const uint8_t first = length > 0 ? payload[0] : 0;
        const uint8_t second = length > 1 ? payload[1] : 0;
        const uint8_t type = is_frame ? what : first;
        if (!is_frame && what != RAW) {
            const size_t used = length < 2u ? length : 2u;
            payload += used;
            length -= used;
        }
        if (what != REPEATED && what != OTHER_SESSION) { /* these run nothing */
            may_run += type == MT_CALL ? 3u : 0u;        /* operators */
            may_run += type == MT_TIME && length >= 4 ? mt_get_u32(payload) : 0u;
        }
        if (type == MT_HELLO) {
            may_run = UINT32_MAX; /* perhaps a new session: repetitions are no longer known */
        }
        switch (what) {
        case RAW:
            put_raw(payload, length);
            may_run = UINT32_MAX; /* a fuzzer eventually finds the checksum */
            break;
        case OPEN:
            put_hello(SESSION + ((uint32_t)first << 16), second);
            sequence = 0;
            break;
        case REPEATED:
            put_frame(first, SESSION, (uint16_t)(sequence - 1u - second % 32u), payload, length);
            break;
        case AHEAD:
            put_frame(first, SESSION, (uint16_t)(sequence + 1u), payload, length);
            break;
        case OTHER_SESSION:
            put_frame(first, SESSION + 1u, sequence, payload, length);
            break;
        default:
            put_frame(what, SESSION, sequence++, payload, length);
        }
    }
    return may_run;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static uint8_t buffer[BUFFER_BYTES];
    const struct mt_server_config config = {.model = &mt_model, .build_hash = "0", .buffer = buffer,
                                            .buffer_bytes = sizeof buffer};
    if (count < 1) {
        return 0;
    }
    wire_end = wire_at = 0;
    runs = 0;
    is_running = 0;
    read_most = 1u + bytes[0] / 2u;
    uint64_t may_run = UINT64_MAX;
    if (bytes[0] % 2u == 0) {
        put_raw(bytes + 1, count - 1u);
    } else {
        may_run = put_records(bytes + 1, count - 1u);
    }
    const int32_t status = mt_server_run(&config);
    CHECK(status == MT_IO || status == MT_OK); /* the end of the input, or a RESET */
    CHECK(runs <= may_run);
    return 0;
}
