/* Internal to mtool: applications include mtool.h. */
/* What a host asks of the model in a session: its tensors, runs, times and functions. mt_server.c has the rest of the
 * conversation; crt/PROTOCOL.md has the bytes. */
#ifndef MT_REQUESTS_H
#define MT_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "mt_link.h"
#include "mtool.h"
#include "mt_work.h"

#define MT_REQUESTS_WORK_BYTES 13u /* the longest reply that is kept, without its status */

/* Begins as zeros, with `config`, its first `model` and an open `link`. */
struct mt_requests {
    const struct mt_server_config *config;
    const struct mt_model *model;         /* what the requests are for: the first, until SELECT names another */
    struct mt_link link;                  /* RUNNING is sent over it */
    struct mt_work last;                  /* what the last CALL, TIME or INVOKE found */
    uint16_t work_sequence;               /* of the last CALL, TIME, TIMER, INVOKE or LOAD */
    uint8_t work[MT_REQUESTS_WORK_BYTES]; /* its reply */
    uint8_t work_count;                   /* bytes of it; 0 where the session has none */
};

/* What is sent back, but for its status. */
struct mt_reply {
    uint8_t *bytes;
    size_t count;
};

/* A part of the runtime that not every firmware links: requests that it answers, and models that it has besides. */
struct mt_extension {
    int32_t (*execute)(struct mt_extension *extension, struct mt_requests *state, const struct mt_frame *request,
                       struct mt_reply *reply);
    const struct mt_model *models; /* counted on from the firmware's own; NULL: none */
};

/* Do what a frame asks, and write its reply, which is empty before. Returns the reply's status; MT_UNKNOWN_MESSAGE:
 * it asks nothing of the model. */
int32_t mt_requests_execute(struct mt_requests *state, const struct mt_frame *request, struct mt_reply *reply);

/* Answer a frame once more, whose status was `status`. What only looks is done again, what changes something is not. */
int32_t mt_requests_repeat(struct mt_requests *state, const struct mt_frame *request, int32_t status,
                           struct mt_reply *reply);

/* For what takes long: tell the host that the frame has come. The status is the port's. */
int32_t mt_requests_begin_work(struct mt_requests *state, const struct mt_frame *request);

/* Keep the first `count` bytes of the reply, at most MT_REQUESTS_WORK_BYTES, for when the host asks again: what changes
 * something must not be done twice. */
void mt_requests_keep_work(struct mt_requests *state, struct mt_reply *reply, uint8_t count);

/* The `index`-th model, from the firmware's first to the extension's last; NULL: there are fewer. */
const struct mt_model *mt_requests_model_at(const struct mt_requests *state, uint8_t index);

#endif
