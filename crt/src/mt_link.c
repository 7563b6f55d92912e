#include "mt_link.h"

#include <string.h>

#include "mt_bytes.h"
#include "mt_cobs.h"
#include "mt_crc32.h"
#include "mtool.h"
#include "mt_protocol.h"

void mt_link_open(struct mt_link *link, uint8_t *bytes, size_t count)
{
    memset(link, 0, sizeof *link);
    link->half = count / 2u;
    link->received = bytes;
    link->to_send = bytes + link->half;
    link->packet = link->half - MT_COBS_OVERHEAD(link->half) - 2u; /* a delimiter on each side */
}

/* Check the encoded frame in `bytes` from `begin` to `end`, and decode it. */
static int32_t open_frame(uint8_t *bytes, size_t begin, size_t end, struct mt_frame *frame)
{
    size_t decoded = 0;
    bytes += begin;
    if (mt_cobs_decode(bytes, end - begin, &decoded) != MT_OK || decoded < MT_FRAME_MIN_BYTES) {
        return MT_BAD_FRAME;
    }
    decoded -= MT_FRAME_CRC_BYTES;
    if (mt_get_u32(bytes + decoded) != mt_crc32(bytes, decoded)) {
        return MT_BAD_FRAME;
    }
    frame->type = bytes[0];
    frame->session = mt_get_u16(bytes + MT_FRAME_SESSION);
    frame->sequence = mt_get_u16(bytes + MT_FRAME_SEQUENCE);
    frame->payload = bytes + MT_FRAME_PAYLOAD;
    frame->count = decoded - MT_FRAME_PAYLOAD;
    return MT_OK;
}

/* Wait for more bytes and append them to the buffer, whose bytes from `begin` to `end` are kept. */
static int32_t fill(struct mt_link *link, size_t begin, size_t end)
{
    size_t kept = end - begin, count = 0;
    if (begin > 0) {
        memmove(link->received, link->received + begin, kept);
    }
    if (kept == link->half) {
        link->overlong = 1;
        kept = 0;
    }
    link->begin = 0;
    link->scanned = kept;
    const int32_t status = mt_port_read(link->received + kept, link->half - kept, &count);
    if (status == MT_OK && count == 0) {
        mt_port_idle();
    }
    link->end = kept + count;
    return status;
}

int32_t mt_link_poll(struct mt_link *link, struct mt_frame *frame)
{
    for (uint8_t has_read = 0;; has_read = 1) {
        const size_t end = link->end;
        size_t begin = link->begin, at = link->scanned;
        for (; at < end; ++at) {
            if (link->received[at] == 0) {
                if (at > begin || link->overlong) {
                    break;
                }
                begin = at + 1u; /* two delimiters in a row do not enclose a frame */
            }
        }
        if (at < end) {
            link->begin = link->scanned = at + 1u;
            if (link->overlong) {
                link->overlong = 0;
                return MT_TOO_LARGE;
            }
            return open_frame(link->received, begin, at, frame);
        }
        link->begin = begin;
        link->scanned = at;
        frame->payload = NULL;
        if (has_read) {
            return MT_OK;
        }
        const int32_t status = fill(link, begin, end);
        if (status != MT_OK) {
            return status;
        }
    }
}

int32_t mt_link_receive(struct mt_link *link, struct mt_frame *frame)
{
    int32_t status;
    do {
        status = mt_link_poll(link, frame);
    } while (status == MT_OK && frame->payload == NULL);
    return status;
}

/* The frame is laid out far enough above the buffer's start to be encoded in place. */
static uint8_t *frame_of(const struct mt_link *link)
{
    return link->to_send + 1u + MT_COBS_OVERHEAD(link->packet);
}

uint8_t *mt_link_payload(const struct mt_link *link)
{
    return frame_of(link) + MT_FRAME_PAYLOAD;
}

size_t mt_link_payload_bytes(const struct mt_link *link)
{
    return link->packet - MT_LINK_FRAME_BYTES;
}

#ifdef MT_LINK_KEY
enum { FROM_HOST, FROM_DEVICE };

void mt_link_open_session(struct mt_link *link, const uint8_t *challenges)
{
    uint8_t text[1u + 2u * MT_CHALLENGE_BYTES];
    memcpy(text + 1, challenges, 2u * MT_CHALLENGE_BYTES);
    for (text[0] = 0; text[0] < 2u; ++text[0]) {
        mt_put_u64(link->key + 8u * text[0], mt_siphash(mt_link_key, text, sizeof text));
    }
    link->next = 0;
}

/* The MAC of a frame's first `count` bytes. It also covers the direction and the full sequence number, which take its
 * place after them for the moment. */
static uint64_t mac_of(const struct mt_link *link, uint8_t *frame, size_t count, uint8_t direction)
{
    const uint16_t behind = (uint16_t)(link->next - mt_get_u16(frame + MT_FRAME_SEQUENCE));
    mt_put_u32(frame + count, link->next - behind);
    mt_put_u32(frame + count + 4, direction);
    return mt_siphash(link->key, frame, count + MT_MAC_BYTES);
}

int32_t mt_link_check(struct mt_link *link, struct mt_frame *frame)
{
    uint8_t *const bytes = link->received + (frame->payload - MT_FRAME_PAYLOAD - link->received);
    if (frame->count < MT_MAC_BYTES) {
        return MT_BAD_FRAME;
    }
    frame->count -= MT_MAC_BYTES;
    const uint64_t found = mt_get_u64(bytes + MT_FRAME_PAYLOAD + frame->count);
    const uint64_t wrong = found ^ mac_of(link, bytes, MT_FRAME_PAYLOAD + frame->count, FROM_HOST);
    return ((uint32_t)wrong | (uint32_t)(wrong >> 32)) == 0 ? MT_OK : MT_BAD_FRAME; /* takes the same time for all */
}
#endif

int32_t mt_link_send(struct mt_link *link, uint8_t type, uint16_t session, uint16_t sequence, size_t count)
{
    uint8_t *const frame = frame_of(link);
    size_t checked = MT_FRAME_PAYLOAD + count;
    frame[0] = type;
    mt_put_u16(frame + MT_FRAME_SESSION, session);
    mt_put_u16(frame + MT_FRAME_SEQUENCE, sequence);
#ifdef MT_LINK_KEY
    if (!link->is_plain) {
        mt_put_u64(frame + checked, mac_of(link, frame, checked, FROM_DEVICE));
        checked += MT_MAC_BYTES;
    }
    link->is_plain = 0;
#endif
    mt_put_u32(frame + checked, mt_crc32(frame, checked));
    const size_t encoded = mt_cobs_encode(link->to_send + 1, frame, checked + MT_FRAME_CRC_BYTES);
    link->to_send[0] = 0;
    link->to_send[1u + encoded] = 0;
    return mt_port_write(link->to_send, encoded + 2u);
}
