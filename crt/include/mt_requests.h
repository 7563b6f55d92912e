/* Internal to mtool: applications include mtool.h. */
/* A session's requests to the model: tensors, runs, times, functions. mt_server.c handles the rest of the protocol;
 * crt/PROTOCOL.md has the bytes. */
#ifndef MT_REQUESTS_H
#define MT_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "mt_link.h"
#include "mtool.h"
#include "mt_work.h"

#define MT_REQUESTS_WORK_BYTES 13u /* the longest stored reply, without its status */

/* Initially zero, except for `config`, its first `model` and an open `link`. */
struct mt_requests {
    const struct mt_server_config *config;
    const struct mt_model *model;         /* the requests' target: the first model, until SELECT chooses another */
    struct mt_link link;                  /* RUNNING is sent over it */
    struct mt_work last;                  /* the results of the last CALL, TIME or INVOKE */
    uint16_t work_sequence;               /* of the last CALL, TIME, TIMER, INVOKE or LOAD */
    uint8_t work[MT_REQUESTS_WORK_BYTES]; /* its reply */
    uint8_t work_count;                   /* its size; 0: the session has none */
};

/* A reply, without its status. */
struct mt_reply {
    uint8_t *bytes;
    size_t count;
};

/* A part of the runtime that not every firmware links: requests that it handles, and models that it adds. */
struct mt_extension {
    int32_t (*execute)(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply);
    /* A fault stopped the model; with memory protection only. */
    void (*stopped)(struct mt_extension *extension, const struct mt_model *model);
#ifdef MT_LINK_KEY
    /* Write 8 bytes that no session had before, also before a reset. MT_NOT_SUPPORTED: there is no storage for that. */
    int32_t (*draw)(struct mt_extension *extension, uint8_t *bytes);
#endif
    const struct mt_model *models; /* numbered after the firmware's own; NULL: none */
};

/* Handle a frame's request, and write its reply, initially empty. Returns the reply's status; MT_UNKNOWN_MESSAGE: it
 * is not a request to the model. */
int32_t mt_requests_execute(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply);

/* Answer a repeated frame whose status was `status`. A query is executed again, a change is not. */
int32_t mt_requests_repeat(struct mt_requests *state, const struct mt_frame *request, int32_t status,
                           struct mt_reply *reply);

/* Tell the host that the frame has arrived, before long work. The status is the port's. */
int32_t mt_requests_begin_work(struct mt_requests *state, const struct mt_frame *request);

/* Store the first `count` bytes of the reply, at most MT_REQUESTS_WORK_BYTES, for a repeated request: a change must
 * not be executed twice. */
void mt_requests_keep_work(struct mt_requests *state, struct mt_reply *reply, uint8_t count);

/* The `index`-th model, from the firmware's first to the extension's last; NULL: there are fewer. */
const struct mt_model *mt_requests_model_at(const struct mt_requests *state, uint8_t index);

#endif
