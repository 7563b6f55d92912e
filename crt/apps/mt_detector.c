#include "mt_detector.h"

#include <string.h>

void mt_detector_reset(struct mt_detector *detector)
{
    memset(detector->scores, 0, sizeof detector->scores);
    detector->sum = 0;
    detector->wait = 0;
    detector->at = 0;
    detector->is_armed = 1;
}

int32_t mt_detector_next(struct mt_detector *detector, int32_t score)
{
    const struct mt_detector_settings *const settings = &detector->settings;
    const uint16_t limited = (uint16_t)(score < 0 ? 0 : score > MT_SCORE_ONE ? MT_SCORE_ONE : score);
    detector->sum += limited;
    detector->sum -= detector->scores[detector->at];
    detector->scores[detector->at] = limited;
    detector->at = (uint8_t)(detector->at + 1u < settings->smoothing ? detector->at + 1u : 0u);
    if (detector->wait > 0) {
        --detector->wait;
    }
    /* Sums instead of means: nothing is rounded. */
    if (detector->sum < (uint32_t)settings->release * settings->smoothing) {
        detector->is_armed = 1;
    }
    if (!detector->is_armed || detector->wait > 0 ||
        detector->sum < (uint32_t)settings->threshold * settings->smoothing) {
        return 0;
    }
    detector->is_armed = 0;
    detector->wait = settings->refractory;
    return 1;
}

int32_t mt_detector_mean(const struct mt_detector *detector)
{
    return (int32_t)(detector->sum / detector->settings.smoothing);
}
