#include "mt_requests.h"

#include <string.h>

#include "mt_bytes.h"
#include "mt_functions.h"
#include "mtool.h"
#include "mt_protocol.h"

/* A handler reads the request, writes the reply's bytes that follow the status, and sets reply->count to their
 * number. */
typedef int32_t handler(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply);

static void put_sizes(struct mt_reply *reply, size_t capacity, const struct mt_tensor *tensors, uint8_t count)
{
    for (uint8_t i = 0; i < count && reply->count + 4u <= capacity; ++i) {
        mt_put_u32(reply->bytes + reply->count, tensors[i].bytes);
        reply->count += 4u;
    }
}

static int32_t on_info(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    const struct mt_model *const model = state->model;
    const size_t capacity = mt_link_payload_bytes(&state->link) - 1u;
    (void)request;
    mt_put_u32(reply->bytes, mt_port_timer_granularity_ns());
    reply->bytes[4] = model->input_count;
    reply->bytes[5] = model->output_count;
    reply->count = 6;
    put_sizes(reply, capacity, model->inputs, model->input_count);
    put_sizes(reply, capacity, model->outputs, model->output_count);
    return MT_OK;
}

/* Find the `length` bytes that the first bytes of a WRITE or READ select. */
static int32_t find_bytes(const struct mt_requests *state, const struct mt_frame *request, uint32_t length,
                          uint8_t **bytes)
{
    const uint8_t *const payload = request->payload;
    return mt_model_find(state->model, payload[0], payload[1], mt_get_u32(payload + 2), length, bytes);
}

/* Pass rows of its streamed input to the model. That may take a while, so the arrival is acknowledged first. */
static int32_t feed(struct mt_requests *state, const struct mt_frame *request, size_t length)
{
    const struct mt_model *const model = state->model;
    if (model->stream == NULL || request->payload[1] != model->stream->input) {
        return MT_BAD_INDEX;
    }
    const int32_t status = mt_link_send(&state->link, MT_RUNNING, request->session, request->sequence, 0);
    if (status != MT_OK) {
        return status;
    }
    return mt_work_feed(model, mt_get_u32(request->payload + 2), request->payload + 6, length,
                        state->config->stack_low, &state->last);
}

static int32_t on_write(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    uint8_t *bytes = NULL;
    (void)reply;
    if (request->count < 6) {
        return MT_BAD_MESSAGE;
    }
    const size_t length = request->count - 6u;
    if (request->payload[0] == MT_ROWS) {
        return feed(state, request, length);
    }
    const int32_t status = find_bytes(state, request, (uint32_t)length, &bytes);
    if (status == MT_OK && length > 0) {
        memcpy(bytes, request->payload + 6, length);
    }
    return status;
}

static int32_t on_read(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    uint8_t *bytes = NULL;
    if (request->count != 8) {
        return MT_BAD_MESSAGE;
    }
    const uint16_t length = mt_get_u16(request->payload + 6);
    if (length > mt_link_payload_bytes(&state->link) - 1u) {
        return MT_TOO_LARGE;
    }
    const int32_t status = find_bytes(state, request, length, &bytes);
    if (status == MT_OK && length > 0) {
        memcpy(reply->bytes, bytes, length);
        reply->count = length;
    }
    return status;
}

int32_t mt_requests_begin_work(struct mt_requests *state, const struct mt_frame *request)
{
    state->work_sequence = request->sequence;
    state->work_count = 0;
    return mt_link_send(&state->link, MT_RUNNING, request->session, request->sequence, 0);
}

void mt_requests_keep_work(struct mt_requests *state, struct mt_reply *reply, uint8_t count)
{
    memcpy(state->work, reply->bytes, count);
    state->work_count = count;
    reply->count = count;
}

/* Replies to CALL, TIME and INVOKE begin with the model's result. */
static void end_work(struct mt_requests *state, struct mt_reply *reply, uint8_t count)
{
    mt_put_u32(reply->bytes, (uint32_t)state->last.result);
    mt_requests_keep_work(state, reply, count);
}

static void watch(const struct mt_requests *state, uint32_t limit_ms)
{
    if (state->config->watch != NULL) {
        state->config->watch(limit_ms);
    }
}

static int32_t on_call(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    if (request->count != 5 || request->payload[0] > MT_CALL_RUN) {
        return MT_BAD_MESSAGE;
    }
    const uint8_t how = request->payload[0]; /* sending keeps the request intact, but the model may overwrite it */
    const uint32_t limit_ms = mt_get_u32(request->payload + 1);
    int32_t status = mt_requests_begin_work(state, request);
    if (status != MT_OK) {
        return status;
    }
    watch(state, limit_ms);
    status = (how == MT_CALL_RUN ? mt_work_run : mt_work_steps)(state->model, state->config->stack_low,
                                                                &state->last);
    watch(state, 0);
    mt_put_u16(reply->bytes + 4, state->last.where);
    end_work(state, reply, 6);
    return status;
}

static int32_t on_time(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    if (request->count != 6) {
        return MT_BAD_MESSAGE;
    }
    const uint32_t runs = mt_get_u32(request->payload);
    const uint16_t number = mt_get_u16(request->payload + 4);
    if (number != MT_NO_OPERATOR && number >= state->model->operator_count) {
        return MT_BAD_INDEX;
    }
    int32_t status = mt_requests_begin_work(state, request);
    if (status != MT_OK) {
        return status;
    }
    status = mt_work_time(state->model, number, runs, state->config->stack_low, &state->last);
    mt_put_u64(reply->bytes + 4, state->last.elapsed_ns);
    end_work(state, reply, 12);
    return status;
}

static int32_t on_timer(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    uint64_t elapsed_ns = 0;
    if (request->count != 1 || request->payload[0] > MT_TIMER_END) {
        return MT_BAD_MESSAGE;
    }
    const int32_t status =
        request->payload[0] == MT_TIMER_BEGIN ? mt_port_timer_start() : mt_port_timer_stop(&elapsed_ns);
    mt_put_u64(reply->bytes, elapsed_ns);
    state->work_sequence = request->sequence;
    mt_requests_keep_work(state, reply, 8);
    return status;
}

static int32_t on_lookup(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    const struct mt_functions *const functions = state->model->functions;
    uint16_t index = 0;
    if (functions == NULL) {
        return MT_NOT_SUPPORTED;
    }
    const int32_t status = functions->find(functions, request->payload, request->count, &index);
    mt_put_u16(reply->bytes, index);
    reply->count = 2;
    return status;
}

static int32_t on_invoke(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    struct mt_returned returned;
    if (state->model->functions == NULL) {
        return MT_NOT_SUPPORTED;
    }
    int32_t status = mt_requests_begin_work(state, request);
    if (status != MT_OK) {
        return status;
    }
    status = mt_work_invoke(state->model, request->payload, request->count, state->config->stack_low,
                            &state->last, &returned);
    reply->bytes[4] = (uint8_t)returned.type_code;
    mt_put_u64(reply->bytes + 5, (uint64_t)returned.value.v_int64); /* the bits of a float */
    end_work(state, reply, 13);
    return status;
}

const struct mt_model *mt_requests_model_at(const struct mt_requests *state, uint8_t index)
{
    const struct mt_extension *const extension = state->config->extension;
    const struct mt_model *model = state->config->model;
    for (; model != NULL && index > 0; --index) {
        model = model->next;
    }
    return model != NULL || extension == NULL ? model : mt_model_at(extension->models, index);
}

static int32_t on_select(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    (void)reply;
    if (request->count != 1) {
        return MT_BAD_MESSAGE;
    }
    const struct mt_model *const model = mt_requests_model_at(state, request->payload[0]);
    if (model == NULL) {
        return MT_BAD_INDEX;
    }
    if (model != state->model) {
        state->model = model;
        state->last.fed_bytes = 0; /* rows of the previous model */
    }
    return MT_OK;
}

static int32_t on_stack(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    (void)request;
    mt_put_u32(reply->bytes, state->last.stack_bytes);
    reply->count = 4;
    return state->config->stack_low != NULL ? MT_OK : MT_NOT_SUPPORTED;
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
    case MT_TIMER:
        return on_timer;
    case MT_LOOKUP:
        return on_lookup;
    case MT_INVOKE:
        return on_invoke;
    case MT_SELECT:
        return on_select;
    default:
        return NULL;
    }
}

int32_t mt_requests_execute(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply)
{
    handler *const handle = handler_of(request->type);
    struct mt_extension *const extension = state->config->extension;
    if (handle != NULL) {
        const int32_t status = handle(state, request, reply);
#ifdef MT_PROTECT
        if (status == MT_STOPPED && extension != NULL) {
            extension->stopped(extension, state->model);
        }
#endif
        return status;
    }
    return extension != NULL ? extension->execute(extension, state, request, reply) : MT_UNKNOWN_MESSAGE;
}

int32_t mt_requests_repeat(struct mt_requests *state, const struct mt_frame *request, int32_t status,
                           struct mt_reply *reply)
{
    switch (request->type) {
    case MT_INFO:
    case MT_READ:
    case MT_STACK:
    case MT_LOOKUP:
    case MT_MODELS:
    case MT_ROOM:
    case MT_FETCH:
        return mt_requests_execute(state, request, reply);
    case MT_CALL:
    case MT_TIME:
    case MT_TIMER:
    case MT_INVOKE:
    case MT_LOAD:
        if (request->sequence == state->work_sequence) {
            memcpy(reply->bytes, state->work, state->work_count);
            reply->count = state->work_count;
        }
        return status;
    default:
        return status;
    }
}
