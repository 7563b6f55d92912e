/* {{ title }}: {{ manifest.model_file }} as MLPerf Tiny's benchmark {{ benchmark }} runs it: what a submitter writes. This file is yours. */
#include "{{ model }}.h"

#include <string.h>

{% if benchmark == "sww01" %}
#include "{{ model }}_operators.h" /* the place of the features */
{% endif %}
#include "runner.h"
{% import "texts/tensors.c" as t %}
{% include "texts/places.c" %}
{% set input = manifest.inputs[0] %}
{% set output = manifest.outputs[0] %}
{% set is_float = benchmark == "ad01" or input.dtype == "float32" %}

const char model_id[] = "{{ benchmark }}";
const char model_vendor[] = "unspecified";

/* The format of the runner's samples: {{ "int16, a hop" if benchmark == "sww01" else "float32" if is_float else "one byte per element" }}. */
static {{ "int16_t" if benchmark == "sww01" else "float" if is_float else "uint8_t" }} sample[{{ t.of(model, input) }}_COUNT];
uint8_t *const model_buffer = (uint8_t *)sample;
const size_t model_buffer_bytes = sizeof sample;
{% if is_float and t.is_on_a_scale(input) %}

{{ t.quantize(model, input) }}
{%- endif %}
{% if inference == "infer()" %}

{% include "shared/infer.c" %}
{% endif %}

void model_load(size_t count)
{
    if (count != sizeof sample) {
        runner_print("Input db has ");
        runner_print_number((int32_t)(count / sizeof sample[0]));
        runner_print(" elemented, expected ");
        runner_print_number({{ t.of(model, input) }}_COUNT);
        runner_print("\n");
        return;
    }
    for (int32_t i = 0; i < {{ t.of(model, input) }}_COUNT; ++i) {
{% if benchmark == "sww01" %}
        {{ input_of }}{{ input.c_name }}[i] = sample[i];
{% elif is_float and t.is_on_a_scale(input) %}
        {{ input_of }}{{ input.c_name }}[i] = quantize_{{ input.c_name }}(sample[i]);
{% elif is_float or input.dtype == "uint8" %}
        {{ input_of }}{{ input.c_name }}[i] = sample[i];
{% elif benchmark in ["ic01", "vww01"] %}
        {{ input_of }}{{ input.c_name }}[i] = (int8_t)(sample[i] - 128); /* a pixel */
{% else %}
        {{ input_of }}{{ input.c_name }}[i] = (int8_t)sample[i];
{% endif %}
    }
}

int32_t model_infer(void)
{
{% if manifest.states %}
    {{ model }}_reset(); /* each inference is the first of its sequence */
{% endif %}
    return {{ inference }};
}

static float value_of(int32_t index)
{
{% if t.is_on_a_scale(output) %}
    return (float)({{ output_of }}{{ output.c_name }}[index] - {{ t.of(model, output) }}_ZERO_POINT) * {{ t.of(model, output) }}_SCALE;
{% else %}
    return (float){{ output_of }}{{ output.c_name }}[index];
{% endif %}
}

void model_results(void)
{
{% if benchmark == "ad01" %}
    float sum = 0.0f; /* of the squared reconstruction errors */
    for (int32_t i = 0; i < {{ t.of(model, output) }}_COUNT; ++i) {
        const float difference = value_of(i) - sample[i];
        sum += difference * difference;
    }
    runner_print("m-results-[");
    runner_print_decimal(sum / (float){{ t.of(model, output) }}_COUNT);
{% else %}
    runner_print("m-results-[");
    for (int32_t i = 0; i < {{ t.of(model, output) }}_COUNT; ++i) {
        if (i > 0) {
            runner_print(",");
        }
        runner_print_decimal(value_of(i));
    }
{% endif %}
    runner_print("]\r\n");
}
{% if benchmark == "sww01" %}
{% set rows = manifest.states | selectattr("c_name", "equalto", "front_rows") | first %}

const int8_t model_threshold = 115; /* DETECT_THRESHOLD of the reference */

void model_begin(void)
{
    {{ model }}_reset();
}

int32_t model_hop(int8_t *activation)
{
    for (int32_t i = 0; i < {{ t.of(model, input) }}_COUNT; ++i) {
        {{ input_of }}{{ input.c_name }}[i] = sample[i];
    }
    const int32_t status = {{ inference }};
    *activation = {{ output_of }}{{ output.c_name }}[0];
    return status;
}

static void print_vector(const char *name, const int8_t *values, int32_t count)
{
    runner_print(name);
    for (int32_t i = 0; i < count; ++i) {
        runner_print(i > 0 ? ", " : "");
        runner_print_number(values[i]);
    }
    runner_print("]\r\n");
}

void model_print_hop(void)
{
{% if rows %}
    const int8_t *features = (const int8_t *){{ model }}_arena + {{ model | upper }}_STATE_FRONT_ROWS_OFFSET;
    print_vector("m-features-[", features + {{ rows.bytes - rows.shape[-1] }}, {{ rows.shape[-1] }}); /* the last row */
{% endif %}
    print_vector("m-activations-[", {{ output_of }}{{ output.c_name }}, {{ t.of(model, output) }}_COUNT);
}

void submitter_processing(int is_on)
{
    (void)is_on; /* your pin */
}

void submitter_detected(void)
{
    /* your pin */
}
{% endif %}
