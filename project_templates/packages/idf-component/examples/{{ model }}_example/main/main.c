{% set name, described, external = model, manifest, manifest.io == "external" %}
{% set inputs = "inputs" if external else model ~ "_arena_inputs" %}
{% set outputs = "outputs" if external else model ~ "_arena_outputs" %}
{% set inference = model ~ "_run(&" ~ inputs ~ ", &" ~ outputs ~ ")" if manifest.interface_api == "c" else "infer()" %}
/* One inference, and its outputs. */
#include <{{ model }}.h>
#include <stdio.h>

{% if external %}
{% for role in ["inputs", "outputs"] %}
{% for tensor in manifest[role] %}
static {{ c_type(tensor.dtype) }} {{ role[:-1] }}_{{ tensor.c_name }}[{{ model | upper }}_{{ tensor.c_name | upper }}_COUNT];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}
static const struct {{ model }}_{{ role }} {{ role }} = {
{%- for tensor in manifest[role] %}{{ ", " if not loop.first }}{{ role[:-1] }}_{{ tensor.c_name }}{% endfor %}};
{% endfor %}
{% endif %}

{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
void app_main(void)
{
{% set whole = manifest.inputs | selectattr("stream", "none") | list %}
{% if whole or not manifest.inputs %}
    /* Put the sensor's data into the inputs here:
{% for tensor in whole %}
     *   {{ inputs }}.{{ tensor.c_name }}   {{ tensor.dtype }}[{{ tensor.shape | join(",") }}]
{% endfor %}
     */
{% endif %}
    if ({{ inference }} != 0) {
        printf("failed\n");
        return;
    }
{% for tensor in manifest.outputs %}
    for (int i = 0; i < {{ model | upper }}_{{ tensor.c_name | upper }}_COUNT; ++i) {
        printf("{{ tensor.c_name }} %d %g\n", i, (double){{ outputs }}.{{ tensor.c_name }}[i]);
    }
{% endfor %}
}
