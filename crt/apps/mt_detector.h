/* Detections from the scores of a model that runs again and again: their mean over the last results, a threshold,
 * hysteresis and a refractory time. Integers, so the detections are the same on every core. */
#ifndef MT_DETECTOR_H
#define MT_DETECTOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A score of 1.0; scores are from 0 to this. */
#define MT_SCORE_ONE 32768

/* The most results that are averaged. */
#define MT_DETECTOR_MOST 64

struct mt_detector_settings {
    uint16_t threshold;  /* a mean score of at least this is a detection */
    uint16_t release;    /* after a detection, the mean has to fall below this before the next one; at most `threshold` */
    uint16_t refractory; /* the least number of results from a detection to the next; 0: no limit */
    uint8_t smoothing;   /* the number of results that are averaged: 1 to MT_DETECTOR_MOST */
};

/* One for each class that is detected. */
struct mt_detector {
    struct mt_detector_settings settings; /* set by the caller; the rest is set by mt_detector_reset */
    uint16_t scores[MT_DETECTOR_MOST];
    uint32_t sum;
    uint16_t wait;
    uint8_t at;
    uint8_t is_armed;
};

/* Start a new sequence: the scores before its first are 0. */
void mt_detector_reset(struct mt_detector *detector);

/* Add the score of the next result, from 0 to MT_SCORE_ONE; return 1 at a detection, otherwise 0. */
int32_t mt_detector_next(struct mt_detector *detector, int32_t score);

/* Return the mean of the last scores, from 0 to MT_SCORE_ONE. */
int32_t mt_detector_mean(const struct mt_detector *detector);

#ifdef __cplusplus
}
#endif

#endif
