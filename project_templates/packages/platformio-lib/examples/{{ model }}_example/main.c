/* Any framework: one inference. */
#include <{{ model }}.h>

{% if manifest.io == "external" %}
{% for role in ["inputs", "outputs"] %}
{% for tensor in manifest[role] %}
static {{ c_type(tensor.dtype) }} {{ role[:-1] }}_{{ tensor.c_name }}[{{ model | upper }}_{{ tensor.c_name | upper }}_COUNT];
{% endfor %}
{% endfor %}
static const struct {{ model }}_inputs inputs = {
{%- for tensor in manifest.inputs %}{{ ", " if not loop.first }}input_{{ tensor.c_name }}{% endfor %}};
static const struct {{ model }}_outputs outputs = {
{%- for tensor in manifest.outputs %}{{ ", " if not loop.first }}output_{{ tensor.c_name }}{% endfor %}};
{% endif %}

{% set name, described, external = model, manifest, manifest.io == "external" %}
{% set inputs = "inputs" if external else model ~ "_arena_inputs" %}
{% set outputs = "outputs" if external else model ~ "_arena_outputs" %}
{% set inference = model ~ "_run(&" ~ inputs ~ ", &" ~ outputs ~ ")" if manifest.interface_api == "c" else "infer()" %}
{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
int main(void)
{
    return (int){{ inference }};
}
