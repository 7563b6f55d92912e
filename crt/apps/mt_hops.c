#include "mt_hops.h"

#include <stddef.h>
#include <string.h>

#include "mtool.h"

enum mode { LISTENS, REPLAYS, RECORDS };

static int32_t write_text(const char *text)
{
    return mt_port_write((const uint8_t *)text, strlen(text));
}

/* Write a number, and what precedes it. */
static int32_t write_number(const char *before, uint32_t number)
{
    char digits[11];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10u);
        number /= 10u;
    } while (number > 0);
    const int32_t status = write_text(before);
    return status == MT_OK ? write_text(&digits[at]) : status;
}

static int32_t write_signed(const char *before, int32_t number)
{
    const int32_t status = write_text(before);
    return status != MT_OK ? status : number < 0 ? write_number("-", 0u - (uint32_t)number) : write_number("", (uint32_t)number);
}

int32_t mt_hops_print(const char *text, int32_t number)
{
    int32_t status = write_text(text);
    status = status == MT_OK ? write_signed(" ", number) : status;
    return status == MT_OK ? write_text("\n") : status;
}

int32_t mt_hops_begin(struct mt_hops *hops)
{
    hops->mode = LISTENS;
    hops->is_first = 1;
    hops->is_timed = 0;
    hops->count = hops->missed = hops->worst_us = hops->since_report = 0;
    hops->busy_us = hops->whole_us = 0;
    return mt_port_init();
}

/* Read `count` bytes, however long that takes. */
static int32_t read_all(uint8_t *bytes, size_t count)
{
    while (count > 0) {
        size_t got = 0;
        const int32_t status = mt_port_read(bytes, count, &got);
        if (status != MT_OK) {
            return status;
        }
        if (got == 0) {
            mt_port_idle();
        }
        bytes += got;
        count -= got;
    }
    return MT_OK;
}

/* Carry out the host's next command, if there is one; *has_hop: it was a hop. */
static int32_t obey(struct mt_hops *hops, int *has_hop)
{
    uint8_t command = 0;
    size_t got = 0;
    int32_t status = mt_port_read(&command, 1, &got);
    if (status != MT_OK || got == 0) {
        return status;
    }
    switch (command) {
    case 'b':
        hops->mode = REPLAYS;
        hops->is_first = 1;
        return mt_hops_print("mt-begin", (int32_t)hops->bytes);
    case 'h':
        *has_hop = 1;
        return read_all(hops->buffer, (size_t)hops->bytes);
    case 'r':
        hops->mode = RECORDS;
        return MT_OK;
    case 'e':
        hops->mode = LISTENS;
        hops->is_first = 1;
        return write_text("mt-end\n");
    default:
        return MT_OK; /* the line end of a terminal, or noise */
    }
}

/* Take the sensor's next hop; *has_hop: it is to be processed. */
static int32_t sense(struct mt_hops *hops, int *has_hop)
{
    uint32_t lost = 0;
    const int32_t sensed = hops->sense(hops->buffer, &lost);
    hops->missed += lost;
    hops->whole_us += (uint64_t)lost * hops->hop_us;
    if (sensed == MT_SENSOR_FAILED) {
        return MT_IO;
    }
    if (sensed == MT_SENSOR_NOTHING) {
        return MT_OK;
    }
    if (hops->mode == RECORDS) {
        const int32_t status = mt_hops_print("mt-sensor", (int32_t)lost);
        return status == MT_OK ? mt_port_write(hops->buffer, (size_t)hops->bytes) : status;
    }
    *has_hop = 1;
    return MT_OK;
}

int32_t mt_hops_next(struct mt_hops *hops)
{
    int has_hop = 0;
    int32_t status = MT_OK;
    while (status == MT_OK && !has_hop) {
        status = obey(hops, &has_hop);
        if (status != MT_OK || has_hop) {
            break;
        }
        if (hops->sense != NULL && hops->mode != REPLAYS) {
            status = sense(hops, &has_hop);
        } else {
            mt_port_idle();
        }
    }
    hops->is_timed = mt_port_timer_start() == MT_OK;
    return status;
}

static int32_t report(struct mt_hops *hops)
{
    const uint32_t duty = mt_hops_duty(hops);
    int32_t status = write_number("hops ", hops->count);
    status = status == MT_OK ? write_number(", missed ", hops->missed) : status;
    status = status == MT_OK ? write_number(", longest ", hops->worst_us) : status;
    status = status == MT_OK ? write_number(" us, duty cycle ", duty / 100u) : status;
    status = status == MT_OK ? write_number(".", duty / 10u % 10u) : status;
    return status == MT_OK ? write_text("%\n") : status;
}

int32_t mt_hops_done(struct mt_hops *hops, int32_t detected, int32_t score)
{
    uint64_t elapsed_ns = 0;
    const int32_t is_known = mt_port_timer_stop(&elapsed_ns) == MT_OK && hops->is_timed;
    const uint32_t us = is_known && elapsed_ns < 1000u * (uint64_t)INT32_MAX ? (uint32_t)(elapsed_ns / 1000u) : INT32_MAX;
    hops->is_first = 0;
    if (hops->mode == REPLAYS) {
        const uint32_t ns = is_known && elapsed_ns < INT32_MAX ? (uint32_t)elapsed_ns : INT32_MAX;
        int32_t status = write_number("mt-hop ", ns);
        status = status == MT_OK ? write_signed(" ", detected) : status;
        return status == MT_OK ? mt_hops_print("", score) : status;
    }
    ++hops->count;
    hops->busy_us += us;
    hops->whole_us += hops->hop_us;
    hops->worst_us = us > hops->worst_us ? us : hops->worst_us;
    if (hops->report_s > 0 && (uint64_t)++hops->since_report * hops->hop_us >= hops->report_s * UINT64_C(1000000)) {
        hops->since_report = 0;
        return report(hops);
    }
    return MT_OK;
}

uint32_t mt_hops_duty(const struct mt_hops *hops)
{
    return hops->whole_us > 0 ? (uint32_t)(hops->busy_us * 10000u / hops->whole_us) : 0u;
}
