{# With a console: `report` is set, and the template defines report(output, largest, count), which prints. #}
/* Standalone firmware: one inference, no runtime beside it. {{ "Reports the result" if report is defined and report else "Its exit status is the model's" }}. */
#include "{{ cookiecutter.model }}.h"
{% if cookiecutter.manifest.io == "external" %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in cookiecutter.manifest[role] %}
static uint32_t {{ role[:-1] }}_{{ tensor.c_name }}[{{ (tensor.bytes + 3) // 4 }}];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}

static const struct {{ cookiecutter.model }}_{{ role }} {{ role }} = {
{% for tensor in cookiecutter.manifest[role] %}
    .{{ tensor.c_name }} = (void *){{ role[:-1] }}_{{ tensor.c_name }},
{% endfor %}
};
{% endfor %}
{% endif %}
{% set name = cookiecutter.model %}
{% set external = cookiecutter.manifest.io == "external" %}
{% set inputs = "inputs" if external else name ~ "_arena_inputs" %}
{% set outputs = "outputs" if external else name ~ "_arena_outputs" %}
{% set described = cookiecutter.manifest %}
{% set inference = name ~ "_run(&" ~ inputs ~ ", &" ~ outputs ~ ")" if described.interface_api == "c" else "infer()" %}
{% if report is defined and report %}
{% for tensor in cookiecutter.manifest.outputs %}
{% set type = {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(tensor.dtype, tensor.dtype ~ "_t") %}
{% set count = name | upper ~ "_" ~ tensor.c_name | upper ~ "_COUNT" %}

static void report_{{ tensor.c_name }}(void)
{
    const {{ type }} *values = {{ outputs }}.{{ tensor.c_name }};
    int32_t largest = 0;
    for (int32_t i = 1; i < {{ count }}; ++i) {
        largest = values[i] > values[largest] ? i : largest;
    }
    report("{{ tensor.c_name }}", largest, {{ count }});
}
{% endfor %}
{% endif %}

{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
int main(void)
{
{% set whole = cookiecutter.manifest.inputs | selectattr("stream", "none") | list %}
{% if whole or not cookiecutter.manifest.inputs %}
    /* Put the sensor's data into the inputs here:
{% for tensor in whole %}
     *   {{ inputs }}.{{ tensor.c_name }}   {{ tensor.dtype }}[{{ tensor.shape | join(",") }}]{% if tensor.scale and tensor.scale | length == 1 %}, value = (q - {{ tensor.zero_point[0] }}) * {{ tensor.scale[0] }}{% endif %}

{% endfor %}
     */
{% endif %}
{% if cookiecutter.manifest.states %}
    /* This is the first step of a sequence. Call {{ name }}_run again for each that follows, with its own inputs: what
     * the model keeps ({{ cookiecutter.manifest.states | map(attribute="c_name") | join(", ") }}) goes on from step to step. {{ name }}_reset begins another sequence. */
{% endif %}
{% if report is defined and report %}
    const int32_t status = {{ inference }};
    if (status != 0) {
        report("failed with status", status, 0);
        return 0;
    }
{% for tensor in cookiecutter.manifest.outputs %}
    report_{{ tensor.c_name }}();
{% endfor %}
    return 0;
{% else %}
    return (int){{ inference }};
{% endif %}
}
