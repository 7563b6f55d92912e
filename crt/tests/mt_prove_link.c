/* Whatever arrives over the line, and in whatever state the link is, its functions access only their buffer and leave a
 * valid state. */
#include "mt_cobs.h"
#include "mt_link.h"
#include "mt_prove.h"
#include "mt_protocol.h"
#include "mtool.h"

#define HALF (MT_LINK_FRAME_BYTES + 3u) /* of the smallest buffer */
#define MOST 253u /* bytes of a frame that takes one block */

static uint8_t buffer[2u * HALF], whole[MOST + 2u];
static struct mt_link link;

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    any_bytes(bytes, capacity);
    for (*count = 0; *count < capacity && any(0, 1); ++*count) { /* each number of bytes by itself */
    }
    return (int32_t)any(0, 31);
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    use_bytes(bytes, count);
    return (int32_t)any(0, 31);
}

void mt_port_idle(void)
{
}

#ifndef MT_LINK_KEY
static void poll(size_t begin, size_t scanned, size_t end)
{
    struct mt_frame frame = {0};
    any_bytes(buffer, sizeof buffer);
    mt_link_open(&link, buffer, sizeof buffer);
    link.begin = begin;
    link.scanned = scanned;
    link.end = end;
    link.overlong = (uint8_t)any(0, 1);
    if (mt_link_poll(&link, &frame) == MT_OK && frame.payload != NULL) {
        use_bytes(frame.payload, frame.count);
    }
}

#else
/* The MAC of a frame that was received at this place. */
static void poll(size_t begin, size_t scanned, size_t end)
{
    struct mt_frame frame = {0};
    any_bytes(buffer, sizeof buffer);
    any_bytes(&link.key, sizeof link.key);
    link.next = any(0, UINT32_MAX);
    if (scanned == begin && end - begin >= MT_FRAME_MIN_BYTES) {
        frame.payload = buffer + begin + MT_FRAME_PAYLOAD;
        frame.count = end - begin - MT_FRAME_MIN_BYTES;
        if (mt_link_check(&link, &frame) == MT_OK) {
            use_bytes(frame.payload, frame.count);
        }
    }
}
#endif

static void send(size_t count)
{
    any_bytes(buffer, sizeof buffer);
    mt_link_open(&link, buffer, sizeof buffer);
#ifdef MT_LINK_KEY
    mt_link_open_session(&link, buffer);
    link.is_plain = (uint8_t)any(0, 1);
    link.next = any(0, UINT32_MAX);
#endif
    if (count <= mt_link_payload_bytes(&link)) {
        (void)mt_link_send(&link, (uint8_t)any(0, 255), (uint16_t)any(0, 65535), (uint16_t)any(0, 65535), count);
    }
}

int main(void)
{
    size_t decoded;
    any_bytes(whole, sizeof whole);
    if (mt_cobs_decode(whole, any(0, sizeof whole), &decoded) == MT_OK) {
        use_bytes(whole, decoded);
    }
    (void)mt_cobs_encode(whole, whole + 2, any(0, MOST));
    for (size_t begin = 0; begin <= HALF; ++begin) {
        send(begin);
        for (size_t scanned = begin; scanned <= HALF; ++scanned) {
            for (size_t end = scanned; end <= HALF; ++end) {
                poll(begin, scanned, end);
            }
        }
    }
    return 0;
}
