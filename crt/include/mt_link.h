/* Internal to mtool: applications include mtool.h. */
/* Frames over the port's byte channel: finds, checks and sends them. */
#ifndef MT_LINK_H
#define MT_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "mt_protocol.h"
#include "mt_siphash.h"

/* The bytes of a frame before encoding, besides its payload. */
#ifdef MT_LINK_KEY
#define MT_LINK_FRAME_BYTES (MT_FRAME_MIN_BYTES + MT_MAC_BYTES)
#else
#define MT_LINK_FRAME_BYTES MT_FRAME_MIN_BYTES
#endif

/* A received frame. `payload` lies in the link's receive buffer until the next mt_link_poll. */
struct mt_frame {
    const uint8_t *payload;
    size_t count;       /* bytes of the payload */
    uint16_t session;
    uint16_t sequence;
    uint8_t type;
};

struct mt_link {
    uint8_t *received;      /* encoded bytes: half of the buffer */
    uint8_t *to_send;       /* the other half */
    size_t half;            /* size of each half */
    size_t packet;          /* the most bytes of a frame before encoding, including the CRC */
    size_t begin;           /* received bytes before this were processed */
    size_t end;             /* bytes in `received` */
    size_t scanned;         /* there is no delimiter between `begin` and this */
    uint8_t overlong;       /* the current frame is too large; its rest is skipped */
#ifdef MT_LINK_KEY
    uint8_t is_plain;       /* the next frame is sent without a MAC */
    uint32_t next;          /* the full number of the request that is expected next */
    uint8_t key[MT_SIPHASH_KEY_BYTES]; /* the session's */
#endif
};

/* Open a link with `count` bytes of memory, which it keeps. */
/*@ requires \valid(link) && \valid(bytes + (0 .. count - 1)) && count >= 2 * (MT_LINK_FRAME_BYTES + 3); */
void mt_link_open(struct mt_link *link, uint8_t *bytes, size_t count);

/* Take the next frame, after reading from the port at most once; frame->payload is NULL if no frame is complete.
 * Statuses as for mt_link_receive. */
int32_t mt_link_poll(struct mt_link *link, struct mt_frame *frame);

/* Wait for the next frame.
 * MT_BAD_FRAME, MT_TOO_LARGE: something that is not a valid frame was skipped. Any other status is the port's. */
int32_t mt_link_receive(struct mt_link *link, struct mt_frame *frame);

/* Return where to put the payload of the next frame to send. */
uint8_t *mt_link_payload(const struct mt_link *link);

/* Return the most bytes of a payload. */
size_t mt_link_payload_bytes(const struct mt_link *link);

/* Send a frame with the first `count` bytes at mt_link_payload, which are overwritten. A status other than MT_OK is
 * the port's. */
/*@ requires \valid(link) && count <= link->packet - MT_LINK_FRAME_BYTES; */
int32_t mt_link_send(struct mt_link *link, uint8_t type, uint16_t session, uint16_t sequence, size_t count);

#ifdef MT_LINK_KEY
/* Begin a session, whose key follows from the challenges of the host and the device, 16 bytes together. */
void mt_link_open_session(struct mt_link *link, const uint8_t *challenges);

/* Check the MAC of a frame of the open session that was just received, and remove it. MT_BAD_FRAME: it is wrong. */
int32_t mt_link_check(struct mt_link *link, struct mt_frame *frame);
#endif

#endif
