#include "mt_server.h"

#include <string.h>

#include "mt_bytes.h"
#include "mt_functions.h"
#include "mt_link.h"
#include "mt_port.h"
#include "mt_protocol.h"
#include "mt_status.h"
#include "mt_work.h"

#define WORK_BYTES 13u /* the longest reply to CALL, TIME, TIMER or INVOKE, without its status */

static struct {
    const struct mt_server_config *config;
    struct mt_link link;
    uint32_t nonce;                     /* the host's, which names the session */
    uint32_t host;                      /* the computer it is open with; 0: not known */
    struct mt_work last;                /* what the last CALL, TIME or INVOKE found */
    uint16_t session;                   /* the lower half of `nonce`, in every frame */
    uint16_t expected;                  /* sequence number of the next frame to execute */
    uint16_t work_sequence;             /* of the last CALL, TIME, TIMER or INVOKE */
    uint8_t work[WORK_BYTES];           /* its reply */
    uint8_t work_count;
    uint8_t statuses[MT_WINDOW_FRAMES]; /* of the frames before `expected`, by sequence number */
    uint8_t is_open;
    uint8_t is_used;                    /* a request of the open session was executed */
    uint8_t is_rejecting;               /* RESEND was sent, and no frame in order has come since */
    uint8_t is_done;                    /* the host asked for a reset */
} server;

/* A handler reads the request, writes its reply's bytes (after the status) and sets *count to their number. */
typedef int32_t handler(const struct mt_frame *request, uint8_t *reply, size_t *count);

static int32_t send(uint8_t type, uint16_t sequence, size_t count)
{
    return mt_link_send(&server.link, type, server.session, sequence, count);
}

static size_t put_text(uint8_t *bytes, const char *text, size_t capacity)
{
    size_t count = 0;
    for (; count < capacity && text[count] != '\0'; ++count) {
        bytes[count] = (uint8_t)text[count];
    }
    return count;
}

static void put_hash(uint8_t *bytes, const char *digits)
{
    const size_t count = put_text(bytes, digits, MT_HASH_DIGITS);
    memset(bytes + count, '0', MT_HASH_DIGITS - count);
}

static void open_session(uint32_t nonce, uint32_t host)
{
    uint64_t elapsed_ns;
    (void)mt_port_timer_stop(&elapsed_ns); /* the session before may have broken off while it ran */
    server.nonce = nonce;
    server.host = host;
    server.session = (uint16_t)nonce;
    server.expected = 0;
    server.work_count = 0;
    server.is_open = 1;
    server.is_used = 0;
    server.is_rejecting = 0;
}

static int32_t on_hello(const struct mt_frame *request)
{
    uint8_t *reply = mt_link_payload(&server.link);
    if (request->count < 5) {
        return MT_OK; /* nobody to answer: without a nonce it is no HELLO of any version */
    }
    const uint32_t nonce = mt_get_u32(request->payload + 1);
    const uint8_t flags = request->count > 5 ? request->payload[5] : 0;
    const uint32_t host = request->count > 9 ? mt_get_u32(request->payload + 6) : 0;
    reply[1] = MT_PROTOCOL_VERSION;
    mt_put_u32(reply + 2, nonce);
    if (!server.is_open || nonce != server.nonce) { /* else it is a repetition, and the session goes on */
        const int may_take_over = (flags & MT_HELLO_TAKE_OVER) != 0 || (host != 0 && host == server.host);
        if (server.is_open && server.is_used && !may_take_over) {
            *reply = MT_BUSY;
            return mt_link_send(&server.link, MT_HELLO | MT_REPLY, request->session, request->sequence, 6);
        }
        open_session(nonce, host);
    }
    *reply = MT_OK;
    reply += 2;
    mt_put_u16(reply + 4, (uint16_t)(server.link.packet < 0xFFFFu ? server.link.packet : 0xFFFFu));
    mt_put_u32(reply + 6, server.config->window_bytes);
    reply[10] = MT_WINDOW_FRAMES;
    reply += 11;
    put_hash(reply, server.config->build_hash);
    put_hash(reply + MT_HASH_DIGITS, server.config->model->model_hash);
    reply += 2u * MT_HASH_DIGITS;
    reply += put_text(reply, server.config->model->name, MT_NAME_BYTES);
    return send(MT_HELLO | MT_REPLY, request->sequence, (size_t)(reply - mt_link_payload(&server.link)));
}

static int32_t on_info(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    const struct mt_model *const model = server.config->model;
    const size_t capacity = mt_link_payload_bytes(&server.link) - 1u;
    (void)request;
    mt_put_u32(reply, mt_port_timer_granularity_ns());
    reply[4] = model->input_count;
    reply[5] = model->output_count;
    *count = 6;
    for (uint16_t i = 0; i < model->input_count + model->output_count && *count + 4u <= capacity; ++i) {
        const int is_input = i < model->input_count;
        mt_put_u32(reply + *count, is_input ? model->inputs[i].bytes : model->outputs[i - model->input_count].bytes);
        *count += 4u;
    }
    return MT_OK;
}

/* Find the `length` bytes that the start of a WRITE or READ names. */
static int32_t find_bytes(const struct mt_frame *request, uint32_t length, uint8_t **bytes)
{
    const uint8_t *const payload = request->payload;
    return mt_model_find(server.config->model, payload[0], payload[1], mt_get_u32(payload + 2), length, bytes);
}

static int32_t on_write(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    uint8_t *bytes = NULL;
    (void)reply;
    (void)count;
    if (request->count < 6) {
        return MT_BAD_MESSAGE;
    }
    const size_t length = request->count - 6u;
    const int32_t status = find_bytes(request, (uint32_t)length, &bytes);
    if (status == MT_OK && length > 0) {
        memcpy(bytes, request->payload + 6, length);
    }
    return status;
}

static int32_t on_read(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    uint8_t *bytes = NULL;
    if (request->count != 8) {
        return MT_BAD_MESSAGE;
    }
    const uint16_t length = mt_get_u16(request->payload + 6);
    if (length > mt_link_payload_bytes(&server.link) - 1u) {
        return MT_TOO_LARGE;
    }
    const int32_t status = find_bytes(request, length, &bytes);
    if (status == MT_OK && length > 0) {
        memcpy(reply, bytes, length);
        *count = length;
    }
    return status;
}

/* Tell the host that the frame has come, as its reply takes as long as the model. */
static int32_t begin_work(const struct mt_frame *request)
{
    server.work_sequence = request->sequence;
    server.work_count = 0;
    return send(MT_RUNNING, request->sequence, 0);
}

/* Keep the reply, for when the host asks again: the model must not run twice. */
static void keep_work(const uint8_t *reply, size_t count)
{
    memcpy(server.work, reply, count);
    server.work_count = (uint8_t)count;
}

static void watch(uint32_t limit_ms)
{
    if (server.config->watch != NULL) {
        server.config->watch(limit_ms);
    }
}

static int32_t on_call(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    if (request->count != 5 || request->payload[0] > MT_CALL_RUN) {
        return MT_BAD_MESSAGE;
    }
    const uint8_t how = request->payload[0]; /* what is sent leaves the request alone, but the model may not */
    const uint32_t limit_ms = mt_get_u32(request->payload + 1);
    int32_t status = begin_work(request);
    if (status != MT_OK) {
        return status;
    }
    watch(limit_ms);
    status = (how == MT_CALL_RUN ? mt_work_run : mt_work_steps)(server.config->model, server.config->stack_low,
                                                                &server.last);
    watch(0);
    mt_put_u32(reply, (uint32_t)server.last.result);
    mt_put_u16(reply + 4, server.last.where);
    *count = 6;
    keep_work(reply, *count);
    return status;
}

static int32_t on_time(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    if (request->count != 6) {
        return MT_BAD_MESSAGE;
    }
    const uint32_t runs = mt_get_u32(request->payload);
    const uint16_t number = mt_get_u16(request->payload + 4);
    if (number != MT_NO_OPERATOR && number >= server.config->model->operator_count) {
        return MT_BAD_INDEX;
    }
    int32_t status = begin_work(request);
    if (status != MT_OK) {
        return status;
    }
    status = mt_work_time(server.config->model, number, runs, server.config->stack_low, &server.last);
    mt_put_u32(reply, (uint32_t)server.last.result);
    mt_put_u64(reply + 4, server.last.elapsed_ns);
    *count = 12;
    keep_work(reply, *count);
    return status;
}

static int32_t on_timer(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    uint64_t elapsed_ns = 0;
    if (request->count != 1 || request->payload[0] > MT_TIMER_END) {
        return MT_BAD_MESSAGE;
    }
    const int32_t status =
        request->payload[0] == MT_TIMER_BEGIN ? mt_port_timer_start() : mt_port_timer_stop(&elapsed_ns);
    mt_put_u64(reply, elapsed_ns);
    *count = 8;
    server.work_sequence = request->sequence;
    keep_work(reply, *count);
    return status;
}

static int32_t on_lookup(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    const struct mt_functions *const functions = server.config->model->functions;
    uint16_t index = 0;
    if (functions == NULL) {
        return MT_NOT_SUPPORTED;
    }
    const int32_t status = functions->find(functions, request->payload, request->count, &index);
    mt_put_u16(reply, index);
    *count = 2;
    return status;
}

static int32_t on_invoke(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    struct mt_returned returned;
    if (server.config->model->functions == NULL) {
        return MT_NOT_SUPPORTED;
    }
    int32_t status = begin_work(request);
    if (status != MT_OK) {
        return status;
    }
    status = mt_work_invoke(server.config->model, request->payload, request->count, server.config->stack_low,
                            &server.last, &returned);
    mt_put_u32(reply, (uint32_t)server.last.result);
    reply[4] = (uint8_t)returned.type_code;
    mt_put_u64(reply + 5, (uint64_t)returned.value.v_int64); /* a float: its bits */
    *count = 13;
    keep_work(reply, *count);
    return status;
}

static int32_t on_stack(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    (void)request;
    mt_put_u32(reply, server.last.stack_bytes);
    *count = 4;
    return server.config->stack_low != NULL ? MT_OK : MT_NOT_SUPPORTED;
}

static int32_t on_reset(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    (void)request;
    (void)reply;
    (void)count;
    server.is_done = 1;
    return MT_OK;
}

static int32_t on_ping(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    (void)request;
    (void)reply;
    (void)count;
    return MT_OK;
}

static int32_t on_bye(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    (void)request;
    (void)reply;
    (void)count;
    server.is_open = 0;
    return MT_OK;
}

static handler *handler_of(uint8_t type)
{
    switch (type) {
    case MT_INFO:
        return on_info;
    case MT_WRITE:
        return on_write;
    case MT_READ:
        return on_read;
    case MT_CALL:
        return on_call;
    case MT_TIME:
        return on_time;
    case MT_STACK:
        return on_stack;
    case MT_RESET:
        return on_reset;
    case MT_PING:
        return on_ping;
    case MT_BYE:
        return on_bye;
    case MT_TIMER:
        return on_timer;
    case MT_LOOKUP:
        return on_lookup;
    case MT_INVOKE:
        return on_invoke;
    default:
        return NULL;
    }
}

/* Ask for the frames from `expected` on, unless that has been asked. */
static int32_t reject(int32_t why)
{
    if (server.is_rejecting) {
        return MT_OK;
    }
    server.is_rejecting = 1;
    *mt_link_payload(&server.link) = (uint8_t)why;
    return send(MT_RESEND, server.expected, 1);
}

/* Answer a frame once more. What only looks is done again, what changes something is not. */
static int32_t repeat(const struct mt_frame *request, uint8_t *reply, size_t *count)
{
    const uint8_t status = server.statuses[request->sequence % MT_WINDOW_FRAMES];
    switch (request->type) {
    case MT_INFO:
    case MT_READ:
    case MT_STACK:
    case MT_LOOKUP:
        return handler_of(request->type)(request, reply, count);
    case MT_CALL:
    case MT_TIME:
    case MT_TIMER:
    case MT_INVOKE:
        if (request->sequence == server.work_sequence) {
            memcpy(reply, server.work, server.work_count);
            *count = server.work_count;
        }
        return status;
    default:
        return status;
    }
}

static int32_t on_frame(const struct mt_frame *request)
{
    uint8_t *const reply = mt_link_payload(&server.link);
    const uint16_t behind = (uint16_t)(server.expected - request->sequence); /* 0: it is the expected one */
    size_t count = 0;
    int32_t status;
    if (!server.is_open || request->session != server.session) {
        reply[0] = MT_NO_SESSION; /* of an earlier session, or from before a reset */
        reply[1] = server.is_open;
        return mt_link_send(&server.link, MT_RESEND, request->session, request->sequence, 2);
    }
    if (behind > MT_WINDOW_FRAMES) {
        return reject(MT_BAD_FRAME); /* one before it was lost */
    }
    server.is_rejecting = 0;
    if (behind > 0) {
        status = repeat(request, reply + 1, &count);
    } else {
        handler *const handle = handler_of(request->type);
        server.is_used = 1;
        status = handle != NULL ? handle(request, reply + 1, &count) : MT_UNKNOWN_MESSAGE;
        server.statuses[request->sequence % MT_WINDOW_FRAMES] = (uint8_t)status;
        ++server.expected;
    }
    *reply = (uint8_t)status;
    return send((uint8_t)(request->type | MT_REPLY), request->sequence, 1u + count);
}

int32_t mt_server_run(const struct mt_server_config *config)
{
    if (config->buffer_bytes < MT_SERVER_MIN_BUFFER) {
        return MT_TOO_LARGE;
    }
    memset(&server, 0, sizeof server);
    server.config = config;
    mt_link_open(&server.link, config->buffer, (size_t)config->buffer_bytes);
    while (!server.is_done) {
        struct mt_frame frame;
        int32_t status = mt_link_receive(&server.link, &frame);
        if (status == MT_BAD_FRAME || status == MT_TOO_LARGE) {
            status = server.is_open ? reject(status) : MT_OK;
        } else if (status == MT_OK) {
            status = frame.type == MT_HELLO ? on_hello(&frame) : on_frame(&frame);
        }
        if (status != MT_OK) {
            return status;
        }
    }
    return MT_OK;
}

void mt_server_log(const char *text)
{
    if (server.is_open) {
        (void)send(MT_LOG, 0, put_text(mt_link_payload(&server.link), text, mt_link_payload_bytes(&server.link)));
    }
}

void mt_server_fault(uint8_t kind, uint8_t machine, const uint32_t *registers, uint8_t count)
{
    uint8_t *const payload = mt_link_payload(&server.link);
    for (uint8_t time = 0; server.is_open && time < MT_FAULT_TIMES; ++time) {
        payload[0] = kind;
        mt_put_u16(payload + 1, mt_work_operator());
        payload[3] = machine;
        for (uint8_t i = 0; i < count; ++i) {
            mt_put_u32(payload + 4u + 4u * i, registers[i]);
        }
        (void)send(MT_FAULT, server.work_sequence, 4u + 4u * count);
    }
}
