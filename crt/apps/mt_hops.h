/* A program that processes a sensor's data hop by hop: the next hop, from the sensor or from the host, and how long the
 * processing takes.
 *
 * The host takes over with a command over the port (mt_port_*): it sends recordings instead of the sensor, or records
 * what the sensor gives. The code that processes a hop is the same. Commands of one byte; numbers are decimal text:
 *
 *   b          begin a recording: the next hop is the first of a sequence. Answer: "mt-begin BYTES", of a hop
 *   h BYTES    process a hop. Answer: "mt-hop NANOSECONDS DETECTED SCORE": the time of processing, the index of what was
 *              detected or -1, and the program's score
 *   r          send each hop of the sensor instead of processing it: "mt-sensor LOST", and its bytes
 *   e          end: back to the sensor. Answer: "mt-end"
 *
 * Other lines are the program's own. */
#ifndef MT_HOPS_H
#define MT_HOPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a sensor returns. */
enum mt_sensor { MT_SENSOR_FAILED = -1, MT_SENSOR_NOTHING = 0, MT_SENSOR_HOP = 1 };

struct mt_hops {
    uint8_t *buffer;   /* where the next hop is stored: the model's input */
    uint32_t bytes;    /* the size of a hop */
    uint32_t hop_us;   /* the time from one hop to the next, in microseconds */
    uint32_t report_s; /* the seconds between reports of the statistics; 0: there are none */
    /* Wait for the sensor's next hop, at most about as long as a hop and in a low-power state, and store it; add the
     * number of hops that were lost before it to *lost. NULL: there is no sensor, the host sends all hops. */
    int32_t (*sense)(uint8_t *buffer, uint32_t *lost);

    /* Set by mt_hops_next: the hop is the first of a sequence, so models with states start again. */
    uint8_t is_first;

    /* The statistics of the sensor's hops. */
    uint32_t count;    /* that were processed, modulo 2^32 */
    uint32_t missed;   /* that were lost: the program was late, or the sensor failed */
    uint32_t worst_us; /* the longest processing */
    uint64_t busy_us;  /* that of all together */
    uint64_t whole_us; /* the time of all hops, also of those that were lost */

    /* Private. */
    uint8_t mode;
    uint8_t is_timed;
    uint32_t since_report;
};

/* Initialize the port and start with the sensor. Returns a status of mtool.h. */
int32_t mt_hops_begin(struct mt_hops *hops);

/* Wait for the next hop; its processing is timed from here. Returns MT_OK, or MT_IO: the host closed the channel, or the
 * sensor failed. */
int32_t mt_hops_next(struct mt_hops *hops);

/* A hop is processed: end the measurement, and answer the host.
 * detected: the index of what was detected, or -1. score: of any kind, for the host to compare. */
int32_t mt_hops_done(struct mt_hops *hops, int32_t detected, int32_t score);

/* The share of the time that is spent on processing, in hundredths of a percent. */
uint32_t mt_hops_duty(const struct mt_hops *hops);

/* Send text and a number to the host, in a line: "detected marvin 97". */
int32_t mt_hops_print(const char *text, int32_t number);

#ifdef __cplusplus
}
#endif

#endif
