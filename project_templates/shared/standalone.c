{# A program in C, or in C++, with one inference of each model. `once`: instead of main, only run_once(), which may be called again.
   `report`: the template defines report(output, largest, count), which prints. `prints`: a macro that writes the C with
   which an output is printed, of its name, its values and their count. #}
{% set models = cookiecutter.models %}
{% set several = models | length > 1 %}
{% set once, report, prints = once | default(false), report | default(false), prints | default("") %}
{% if not once %}
/* Standalone firmware: one inference{{ " of each model" if several }}, no runtime beside it. {{ "Reports the result" if report else "Its exit status is the model's" }}. */
{% endif %}
#include "{{ cookiecutter.model }}.h"
{% for described in models %}
{% import "shared/names.c" as at with context %}
{% set name, own, inputs, outputs = at.name, at.own, at.inputs, at.outputs %}
{% if at.context and described.pools %}

/* The memories of the model's arena, for one instance of it. */
{% for pool in described.pools if pool.bytes %}
{% set place = "MT_PLACED(\"" ~ pool.section ~ "\", " ~ pool.alignment ~ ")" if pool.section else "MT_ARENA_ALIGNED(" ~ pool.alignment ~ ") MT_ARENA" if pool.is_arena else "MT_IN_MEMORY(" ~ pool.name ~ ", " ~ pool.alignment ~ ")" %}
{{ place }} static uint8_t {{ pool.symbol }}[{{ (name ~ "_pool_" ~ pool.name ~ "_bytes") | upper }}];
{% endfor %}
static struct {{ name }}_pools {{ name }}_context = { {%- for pool in described.pools %}{{ pool.symbol if pool.bytes else "0" }}{{ ", " if not loop.last }}{% endfor -%} };
{% elif at.context and described.arena_bytes %}

/* The model's arena, for one instance of it. */
MT_ARENA static uint8_t {{ name }}_arena[{{ name | upper }}_ARENA_BYTES];
{% endif %}
{% if at.external %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in described[role] %}
{% set word = 8 if tensor.dtype.endswith("64") else 4 %}
static uint{{ word * 8 }}_t {{ own }}{{ role[:-1] }}_{{ tensor.c_name }}[{{ [1, (tensor.bytes + word - 1) // word] | max }}];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}

static const struct {{ name }}_{{ role }} {{ at[role] }} = {
{% for tensor in described[role] %}
    ({{ at.c_types.get(tensor.dtype, tensor.dtype ~ "_t") }} *)(void *){{ own }}{{ role[:-1] }}_{{ tensor.c_name }},
{% endfor %}
};
{% endfor %}
{% elif at.has_structures %}

static struct {{ name }}_inputs {{ inputs }};
static struct {{ name }}_outputs {{ outputs }};
{% endif %}
{% if report %}
{% for tensor in described.outputs %}
{% set count = name | upper ~ "_" ~ tensor.c_name | upper ~ "_COUNT" %}

static void {{ own }}report_{{ tensor.c_name }}(void)
{
    const {{ at.c_types.get(tensor.dtype, tensor.dtype ~ "_t") }} *values = {{ outputs }}.{{ tensor.c_name }};
    int32_t largest = 0;
    for (int32_t i = 1; i < {{ count }}; ++i) {
        largest = values[i] > values[largest] ? i : largest;
    }
    report("{{ tensor.c_name }}", largest, {{ count }});
}
{% endfor %}
{% endif %}

{% if described.interface_api != "c" %}
{% include "shared/infer.c" %}

{% endif %}
{% if several or once %}
static int32_t {{ own }}run_once(void)
{% else %}
int main(void)
{% endif %}
{
{% if at.context and not at.external %}
    {{ inputs }} = {{ name }}_arena_inputs({{ at.context }});
    {{ outputs }} = {{ name }}_arena_outputs({{ at.context }});
{% endif %}
{% if at.context and described.states and once %}
    static uint8_t is_ready;
    if (!is_ready) {
        is_ready = 1;
        {{ name }}_reset({{ at.context }});
    }
{% elif at.context and described.states %}
    {{ name }}_reset({{ at.context }});
{% endif %}
{% set whole = described.inputs | selectattr("stream", "none") | list %}
{% if whole or not described.inputs %}
    /* Put the sensor's data into the inputs here:
{% for tensor in whole %}
     *   {{ inputs }}.{{ tensor.c_name }}   {{ tensor.dtype }}[{{ tensor.shape | join(",") }}]{% if tensor.scale and tensor.scale | length == 1 %}, value = (q - {{ tensor.zero_point[0] }}) * {{ tensor.scale[0] }}{% endif %}

{% endfor %}
     */
{% endif %}
{% if described.states %}
    /* {{ "Each call is" if once else "This is the first" }} step of a sequence. {{ "What" if once else "Call " ~ name ~ "_run again for each that follows, with its own inputs: what" }}
     * the model keeps ({{ described.states | map(attribute="c_name") | join(", ") }}) goes on from step to step. {{ name }}_reset begins another sequence. */
{% endif %}
{% if report or prints %}
    const int32_t status = {{ at.inference }};
    if (status != 0) {
{% if report %}
        report("failed with status", status, 0);
{% endif %}
        return {{ "status" if once else "0" }};
    }
{% for tensor in described.outputs %}
{% if report %}
    {{ own }}report_{{ tensor.c_name }}();
{% else %}
{{ prints(own ~ tensor.c_name, outputs ~ "." ~ tensor.c_name, (name ~ "_" ~ tensor.c_name ~ "_COUNT") | upper) }}{#- #}
{% endif %}
{% endfor %}
    return 0;
{% else %}
    return {{ "" if several or once else "(int)" }}{{ at.inference }};
{% endif %}
}
{% endfor %}
{% if several %}

{{ "static int32_t run_once(void)" if once else "int main(void)" }}
{
    int32_t status = 0;
{% for described in models %}
    if (status == 0) {
        status = {{ described.model }}_run_once();
    }
{% endfor %}
    return {{ "(int)" if not once }}status;
}
{% endif %}
