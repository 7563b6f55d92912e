/* CRC-32, COBS and the link, with memory as the port. Prints nothing and exits with 0 on success. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mt_cobs.h"
#include "mt_crc32.h"
#include "mt_link.h"
#include "mtool.h"

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

#include "mt_test_wire.h"

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    CHECK(count <= sizeof wire - wire_end);
    memcpy(wire + wire_end, bytes, count);
    wire_end += count;
    return MT_OK;
}

void mt_port_idle(void)
{
}

static uint32_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* About `zeros` of 256 bytes are 0. */
static void fill(uint8_t *bytes, size_t count, uint32_t zeros)
{
    for (size_t i = 0; i < count; ++i) {
        bytes[i] = next_random() % 256u < zeros ? 0u : (uint8_t)(1u + next_random() % 255u);
    }
}

static void test_crc(void)
{
    CHECK(mt_crc32((const uint8_t *)"123456789", 9) == 0xCBF43926u);
    CHECK(mt_crc32((const uint8_t *)"", 0) == 0);
}

static void test_cobs(void)
{
    static uint8_t data[1100], memory[1200];
    for (size_t count = 0; count < sizeof data; ++count) {
        for (uint32_t zeros = 0; zeros <= 256; zeros += 64) {
            const size_t lead = MT_COBS_OVERHEAD(count);
            size_t decoded = 0;
            fill(data, count, zeros);
            memset(memory, 0xEE, sizeof memory);
            memcpy(memory + lead, data, count);
            const size_t encoded = mt_cobs_encode(memory, memory + lead, count);
            CHECK(encoded > count && encoded <= count + lead);
            CHECK(memchr(memory, 0, encoded) == NULL);
            for (size_t i = count + lead; i < sizeof memory; ++i) {
                CHECK(memory[i] == 0xEE);
            }
            CHECK(mt_cobs_decode(memory, encoded, &decoded) == MT_OK);
            CHECK(decoded == count && memcmp(memory, data, count) == 0);
        }
    }
}

/* Input that no encoder produces is refused or decoded, without access outside of it. */
static void test_cobs_on_garbage(void)
{
    for (uint32_t round = 0; round < 20000; ++round) {
        size_t decoded = 0;
        const size_t count = next_random() % 300u;
        uint8_t *bytes = malloc(count > 0 ? count : 1u); /* its exact size, for the sanitizers */
        CHECK(bytes != NULL);
        fill(bytes, count, round % 3u);
        if (mt_cobs_decode(bytes, count, &decoded) == MT_OK) {
            CHECK(count == 0 || decoded < count);
        } else {
            CHECK(decoded == 0);
        }
        free(bytes);
    }
}

static void test_link(void)
{
    static uint8_t buffer[1000], sent[3][600];
    struct mt_link link;
    struct mt_frame frame;
    mt_link_open(&link, buffer, sizeof buffer);
    for (size_t count = 0; count <= mt_link_payload_bytes(&link); ++count) {
        wire_end = wire_at = 0;
        read_most = 1u + next_random() % 700u;
        for (size_t i = 0; i < 3; ++i) {
            fill(sent[i], count, 20);
            memcpy(mt_link_payload(&link), sent[i], count);
            CHECK(mt_link_send(&link, (uint8_t)(i + 1u), 0xBEEF, (uint16_t)(0xFF00u + i), count) == MT_OK);
        }
        CHECK(wire_end <= 3u * (sizeof buffer / 2u));
        for (size_t i = 0; i < 3; ++i) {
            CHECK(mt_link_receive(&link, &frame) == MT_OK);
            CHECK(frame.type == i + 1u && frame.session == 0xBEEF && frame.sequence == 0xFF00u + i);
            CHECK(frame.count == count && memcmp(frame.payload, sent[i], count) == 0);
        }
        CHECK(mt_link_receive(&link, &frame) == MT_IO);
    }
}

/* A frame with any single bit flipped is not accepted, and the next one is. */
static void test_flipped_bits(void)
{
    static uint8_t buffer[256];
    struct mt_link link;
    struct mt_frame frame;
    for (size_t bit = 0; bit < 8u * 16u; ++bit) {
        mt_link_open(&link, buffer, sizeof buffer);
        wire_end = wire_at = 0;
        read_most = 7;
        memcpy(mt_link_payload(&link), "abc", 3);
        CHECK(mt_link_send(&link, 1, 2, 3, 3) == MT_OK);
        CHECK(wire_end == 15);
        if (bit < 8u * wire_end) {
            wire[bit / 8u] ^= (uint8_t)(1u << bit % 8u);
        }
        CHECK(mt_link_send(&link, 4, 5, 6, 0) == MT_OK);
        int32_t status;
        while ((status = mt_link_receive(&link, &frame)) == MT_BAD_FRAME || frame.type == 1) {
            CHECK(bit >= 8u * 14u || bit < 8u || status == MT_BAD_FRAME); /* only a delimiter may be damaged */
            frame.type = 0;
        }
        CHECK(status == MT_OK && frame.type == 4 && frame.sequence == 6);
    }
}

static void test_too_large(void)
{
    static uint8_t buffer[256];
    struct mt_link link;
    struct mt_frame frame;
    mt_link_open(&link, buffer, sizeof buffer);
    wire_at = 0;
    wire_end = 1000;
    read_most = 50;
    memset(wire, 7, wire_end);
    wire[wire_end++] = 0;
    CHECK(mt_link_send(&link, 9, 0, 0, 0) == MT_OK);
    CHECK(mt_link_receive(&link, &frame) == MT_TOO_LARGE);
    CHECK(mt_link_receive(&link, &frame) == MT_OK && frame.type == 9);
}

int main(void)
{
    test_crc();
    test_cobs();
    test_cobs_on_garbage();
    test_link();
    test_flipped_bits();
    test_too_large();
    return 0;
}
