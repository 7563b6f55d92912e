#include "mtool.h"

#include <string.h>

#include "mt_bytes.h"
#include "mt_link.h"
#include "mt_protocol.h"
#include "mt_requests.h"
#include "mt_work.h"

static struct {
    struct mt_requests requests;
    uint32_t nonce;                     /* chosen by the host: identifies the session */
    uint32_t host;                      /* the computer that opened it; 0: unknown */
    uint16_t session;                   /* the lower half of `nonce`, in every frame */
    uint16_t expected;                  /* sequence number of the next frame to execute */
    uint8_t statuses[MT_WINDOW_FRAMES]; /* of the frames before `expected`, by sequence number */
    uint8_t is_open;
    uint8_t is_used;                    /* a request of the open session was executed */
    uint8_t is_rejecting;               /* RESEND was sent, and no frame in order has arrived since */
    uint8_t is_done;                    /* the host asked for a reset */
#ifdef MT_LINK_KEY
    uint8_t challenges[2u * MT_CHALLENGE_BYTES]; /* the host's and the device's, of the open session */
#endif
} server;

static int32_t send(uint8_t type, uint16_t sequence, size_t count)
{
    return mt_link_send(&server.requests.link, type, server.session, sequence, count);
}

/* The same to a host that has no session. */
static int32_t send_outside(uint8_t type, const struct mt_frame *request, size_t count)
{
#ifdef MT_LINK_KEY
    server.requests.link.is_plain = 1;
#endif
    return mt_link_send(&server.requests.link, type, request->session, request->sequence, count);
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
    (void)mt_port_timer_stop(&elapsed_ns); /* the previous session may have ended while it was running */
    server.nonce = nonce;
    server.host = host;
    server.session = (uint16_t)nonce;
    server.expected = 0;
    server.requests.work_count = 0;
    server.requests.model = server.requests.config->model;
    server.is_open = 1;
    server.is_used = 0;
    server.is_rejecting = 0;
}

#ifdef MT_LINK_KEY
/* Draw the device's challenge for a new session; its key follows from that and the host's, at the end of HELLO. The
 * status is the port's, or MT_UNAUTHENTICATED: the host sent none. */
static int32_t draw_key(const struct mt_frame *request)
{
    uint8_t challenges[2u * MT_CHALLENGE_BYTES];
    if (request->count != 10u + MT_CHALLENGE_BYTES) {
        return MT_UNAUTHENTICATED;
    }
    memcpy(challenges, request->payload + 10, MT_CHALLENGE_BYTES);
    struct mt_extension *const extension = server.requests.config->extension;
    int32_t status = mt_port_random(challenges + MT_CHALLENGE_BYTES, MT_CHALLENGE_BYTES);
    if (status == MT_NOT_SUPPORTED && extension != NULL) {
        status = extension->draw(extension, challenges + MT_CHALLENGE_BYTES);
    }
    if (status == MT_OK) {
        memcpy(server.challenges, challenges, sizeof challenges);
        mt_link_open_session(&server.requests.link, challenges);
    }
    return status;
}
#endif

static int32_t on_hello(const struct mt_frame *request)
{
    uint8_t *reply = mt_link_payload(&server.requests.link);
    if (request->count < 5) {
        return MT_OK; /* no host to answer: a HELLO of any version has a nonce */
    }
    const uint32_t nonce = mt_get_u32(request->payload + 1);
    const uint8_t flags = request->count > 5 ? request->payload[5] : 0;
    const uint32_t host = request->count > 9 ? mt_get_u32(request->payload + 6) : 0;
    reply[1] = MT_PROTOCOL_VERSION;
    mt_put_u32(reply + 2, nonce);
    if (!server.is_open || nonce != server.nonce) { /* otherwise this is a repetition, and the session continues */
        const int may_take_over = (flags & MT_HELLO_TAKE_OVER) != 0 || (host != 0 && host == server.host);
        if (server.is_open && server.is_used && !may_take_over) {
            *reply = MT_BUSY;
            return send_outside(MT_HELLO | MT_REPLY, request, 6);
        }
#ifdef MT_LINK_KEY
        *reply = (uint8_t)draw_key(request);
        if (*reply != MT_OK) {
            return send_outside(MT_HELLO | MT_REPLY, request, 6);
        }
#endif
        open_session(nonce, host);
    }
    *reply = MT_OK;
    reply += 2;
    mt_put_u16(reply + 4, (uint16_t)(server.requests.link.packet < 0xFFFFu ? server.requests.link.packet : 0xFFFFu));
    mt_put_u32(reply + 6, server.requests.config->window_bytes);
    reply[10] = MT_WINDOW_FRAMES;
    reply += 11;
    put_hash(reply, server.requests.config->build_hash);
    put_hash(reply + MT_HASH_DIGITS, server.requests.config->model->model_hash);
    reply += 2u * MT_HASH_DIGITS;
    reply += put_text(reply, server.requests.config->model->name, MT_NAME_BYTES);
#ifdef MT_LINK_KEY
    memcpy(reply, server.challenges + MT_CHALLENGE_BYTES, MT_CHALLENGE_BYTES);
    reply += MT_CHALLENGE_BYTES;
#endif
    return send(MT_HELLO | MT_REPLY, request->sequence, (size_t)(reply - mt_link_payload(&server.requests.link)));
}

/* Request the frames from `expected` on, unless that has been done. */
static int32_t reject(int32_t why)
{
    if (server.is_rejecting) {
        return MT_OK;
    }
    server.is_rejecting = 1;
    *mt_link_payload(&server.requests.link) = (uint8_t)why;
    return send(MT_RESEND, server.expected, 1);
}

static uint8_t *status_of(const struct mt_frame *request)
{
    return server.statuses + request->sequence % MT_WINDOW_FRAMES;
}

/* Requests that end the session, and those that only check that the device is present, are handled here. */
static int32_t execute(const struct mt_frame *request, struct mt_reply *reply)
{
    switch (request->type) {
    case MT_RESET:
        server.is_done = 1;
        return MT_OK;
    case MT_PING:
        return MT_OK;
    case MT_BYE:
        server.is_open = 0;
        return MT_OK;
    default:
        return mt_requests_execute(&server.requests, request, reply);
    }
}

static int32_t on_frame(struct mt_frame *request)
{
    uint8_t *const payload = mt_link_payload(&server.requests.link);
    const uint16_t behind = (uint16_t)(server.expected - request->sequence); /* 0: it is the expected one */
    struct mt_reply reply = {payload + 1, 0};
    int32_t status;
    if (!server.is_open || request->session != server.session) {
        payload[0] = MT_NO_SESSION; /* from an earlier session, or from before a reset */
        payload[1] = server.is_open;
        return send_outside(MT_RESEND, request, 2);
    }
#ifdef MT_LINK_KEY
    if (mt_link_check(&server.requests.link, request) != MT_OK) {
        return reject(MT_BAD_FRAME); /* also if an earlier one was lost, as the number does not fit */
    }
#endif
    if (behind > MT_WINDOW_FRAMES) {
        return reject(MT_BAD_FRAME); /* an earlier one was lost */
    }
    server.is_rejecting = 0;
    if (behind > 0) {
        status = mt_requests_repeat(&server.requests, request, *status_of(request), &reply);
    } else {
        server.is_used = 1;
        status = execute(request, &reply);
        *status_of(request) = (uint8_t)status;
        ++server.expected;
#ifdef MT_LINK_KEY
        server.is_open &= ++server.requests.link.next != 0; /* no number is used twice */
#endif
    }
    *payload = (uint8_t)status;
    return send((uint8_t)(request->type | MT_REPLY), request->sequence, 1u + reply.count);
}

int32_t mt_server_start(const struct mt_server_config *config)
{
    if (config->buffer_bytes < MT_SERVER_MIN_BUFFER) {
        return MT_TOO_LARGE;
    }
    memset(&server, 0, sizeof server);
    server.requests.config = config;
    server.requests.model = config->model;
    mt_link_open(&server.requests.link, config->buffer, (size_t)config->buffer_bytes);
    return MT_OK;
}

int32_t mt_server_poll(uint8_t *is_over)
{
    struct mt_frame frame;
    int32_t status = mt_link_poll(&server.requests.link, &frame);
    if (status == MT_BAD_FRAME || status == MT_TOO_LARGE) {
        status = server.is_open ? reject(status) : MT_OK;
    } else if (status == MT_OK && frame.payload != NULL) {
        status = frame.type == MT_HELLO ? on_hello(&frame) : on_frame(&frame);
    }
    *is_over = server.is_done;
    return status;
}

int32_t mt_server_run(const struct mt_server_config *config)
{
    uint8_t is_over = 0;
    int32_t status = mt_server_start(config);
    while (status == MT_OK && !is_over) {
        status = mt_server_poll(&is_over);
    }
    return status;
}

void mt_server_log(const char *text)
{
    if (server.is_open) {
        const struct mt_link *const link = &server.requests.link;
#ifdef MT_LINK_KEY
        const uint16_t sequence = server.expected; /* as the MAC covers it */
#else
        const uint16_t sequence = 0;
#endif
        (void)send(MT_LOG, sequence, put_text(mt_link_payload(link), text, mt_link_payload_bytes(link)));
    }
}

void mt_server_fault(uint8_t kind, uint8_t machine, const uint32_t *registers, uint8_t count)
{
    uint8_t *const payload = mt_link_payload(&server.requests.link);
    for (uint8_t time = 0; server.is_open && time < MT_FAULT_TIMES; ++time) {
        payload[0] = kind;
        mt_put_u16(payload + 1, mt_work_operator());
        payload[3] = machine;
        for (uint8_t i = 0; i < count; ++i) {
            mt_put_u32(payload + 4u + 4u * i, registers[i]);
        }
        (void)send(MT_FAULT, server.requests.work_sequence, 4u + 4u * count);
    }
}
