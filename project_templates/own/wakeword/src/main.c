/* {{ title }}: {{ manifest.model_file }} listens for a wake word.
 *
 * This file is yours: mtool wrote it once, and never touches it again. mt_app.h has the settings of [app] in mtool.toml;
 * generated/ has the front end and the model, and mt_hops.h and mt_detector.h, which this program is made of. */
#include <stdint.h>

#include "mt_app.h"
#include "mt_detector.h"
#include "mt_hops.h"
#include "mtool.h"
#include "sensor.h"
#include "{{ model }}.h"
{% import "texts/tensors.c" as t %}
{% include "texts/places.c" %}
{% set input = manifest.inputs[0] %}
{% set output = manifest.outputs[0] %}

#define HOP_US ((uint32_t)((uint64_t){{ t.of(model, input) }}_COUNT * 1000000u / MT_APP_RATE))

/* 1. What is to happen when a keyword is detected: keyword is its index in [app.keywords] of mtool.toml. */
static void act(int32_t keyword, int32_t score)
{
    (void)score; /* its mean: 0 to MT_SCORE_ONE */
    mt_hops_print("detected", keyword);
}

static const struct {
    const char *name;
    int32_t element; /* of the model's output */
} keywords[] = MT_APP_KEYWORDS;

enum { KEYWORDS = sizeof keywords / sizeof keywords[0] };

static struct mt_detector detectors[KEYWORDS];

static struct mt_hops hops = {
    .bytes = {{ t.of(model, input) }}_COUNT * sizeof({{ t.c_type(input) }}),
    .hop_us = HOP_US,
    .report_s = MT_APP_REPORT_S,
    .sense = SENSOR,
};
{% if inference == "infer()" %}

{% include "shared/infer.c" %}
{% endif %}

/* The probability of element i of the output: 0 to MT_SCORE_ONE. */
static int32_t score_of(int32_t i)
{
{% if t.is_on_a_scale(output) %}
    return (int32_t)((float)({{ output_of }}{{ output.c_name }}[i] - {{ t.of(model, output) }}_ZERO_POINT) * ({{ t.of(model, output) }}_SCALE * MT_SCORE_ONE));
{% else %}
    return (int32_t)({{ output_of }}{{ output.c_name }}[i] * MT_SCORE_ONE);
{% endif %}
}

/* Process a hop; its samples are in the model's input. Of several keywords, the one with the highest mean is detected.
 * Return the status of the model. */
static int32_t process(int32_t *detected, int32_t *score)
{
    if (hops.is_first) {
{% if manifest.states or manifest.inputs | selectattr("window", "defined") | selectattr("window") | list %}
        {{ model }}_reset();
{% endif %}
        for (int32_t i = 0; i < KEYWORDS; ++i) {
            mt_detector_reset(&detectors[i]);
        }
    }
    const int32_t status = {{ inference }};
    int32_t most = -1;
    for (int32_t i = 0; status == 0 && i < KEYWORDS; ++i) {
        const int32_t is_detected = mt_detector_next(&detectors[i], score_of(keywords[i].element));
        const int32_t mean = mt_detector_mean(&detectors[i]);
        if (is_detected && mean > most) {
            *detected = i;
            most = mean;
        }
        *score = mean > *score ? mean : *score;
    }
    return status;
}

int32_t app_begin(void)
{
    for (int32_t i = 0; i < KEYWORDS; ++i) {
        detectors[i].settings.threshold = MT_APP_THRESHOLD;
        detectors[i].settings.release = MT_APP_RELEASE;
        detectors[i].settings.refractory = (uint16_t)(MT_APP_REFRACTORY_MS * 1000u / HOP_US);
        detectors[i].settings.smoothing = MT_APP_SMOOTHING;
    }
    hops.buffer = (uint8_t *){{ input_of }}{{ input.c_name }};
    const int32_t status = mt_hops_begin(&hops);
    return status == 0 ? sensor_begin() : status;
}

/* Wait for the next hop, asleep, and process it. */
int32_t app_step(void)
{
    int32_t detected = -1;
    int32_t score = 0;
    int32_t status = mt_hops_next(&hops);
    if (status == 0) {
        status = process(&detected, &score);
        if (status != 0) {
            mt_hops_print("the model failed with status", status);
            return status;
        }
        status = mt_hops_done(&hops, detected, score);
    }
    if (status == 0 && detected >= 0) {
        act(detected, score);
    }
    return status;
}

{{ "#ifndef ARDUINO
" if language == "sketch" }}int main(void)
{
    int32_t status = app_begin();
    while (status == 0) {
        status = app_step();
    }
    return status == MT_IO ? 0 : (int)status; /* the host closed the channel: a clean end */
}
{{ "#endif
" if language == "sketch" }}