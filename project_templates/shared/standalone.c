{# With a console: `report` is set, and the template defines report(output, largest, count), which prints. #}
{% set several = cookiecutter.models | length > 1 %}
/* Standalone firmware: one inference{{ " of each model" if several }}, no runtime beside it. {{ "Reports the result" if report is defined and report else "Its exit status is the model's" }}. */
#include "{{ cookiecutter.model }}.h"
{% if cookiecutter.models | selectattr("caller_has_arena") | list %}
{% if cookiecutter.models | map(attribute="pools") | sum(start=[]) %}
#include "mtool.h"
{% endif %}
#include "mt_math.h"
{% endif %}
{% for described in cookiecutter.models %}
{% set name = described.model %}
{% set own = name ~ "_" if several else "" %}
{% set external = described.io == "external" %}
{% if described.caller_has_arena and described.pools %}

/* The memories of the model's arena, for one instance of it. */
{% for pool in described.pools if pool.bytes %}
{% set place = "MT_PLACED(\"" ~ pool.section ~ "\", " ~ pool.alignment ~ ")" if pool.section else "MT_ARENA_ALIGNED(" ~ pool.alignment ~ ") MT_ARENA" if pool.is_arena else "MT_IN_MEMORY(" ~ pool.name ~ ", " ~ pool.alignment ~ ")" %}
{{ place }} uint8_t {{ pool.symbol }}[{{ (name ~ "_pool_" ~ pool.name ~ "_bytes") | upper }}];
{% endfor %}
static struct {{ name }}_pools {{ name }}_context = { {%- for pool in described.pools %}{{ pool.symbol if pool.bytes else "0" }}{{ ", " if not loop.last }}{% endfor -%} };
{% elif described.caller_has_arena and described.arena_bytes %}

/* The model's arena, for one instance of it. */
MT_ARENA uint8_t {{ name }}_arena[{{ name | upper }}_ARENA_BYTES];
{% endif %}
{% if external %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in described[role] %}
static uint32_t {{ own }}{{ role[:-1] }}_{{ tensor.c_name }}[{{ (tensor.bytes + 3) // 4 }}];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}

static const struct {{ name }}_{{ role }} {{ "own_" ~ own if several }}{{ role }} = {
{% for tensor in described[role] %}
    .{{ tensor.c_name }} = (void *){{ own }}{{ role[:-1] }}_{{ tensor.c_name }},
{% endfor %}
};
{% endfor %}
{% endif %}
{% set inputs = ("own_" ~ own if several else "") ~ "inputs" if external else name ~ "_arena_inputs" %}
{% set outputs = ("own_" ~ own if several else "") ~ "outputs" if external else name ~ "_arena_outputs" %}
{% set context = ("&" ~ name ~ "_context" if described.pools else name ~ "_arena" if described.arena_bytes else "0") if described.caller_has_arena else "" %}
{% if context and not external %}
{% set inputs = own ~ "inputs" %}
{% set outputs = own ~ "outputs" %}

static struct {{ name }}_inputs {{ inputs }};
static struct {{ name }}_outputs {{ outputs }};
{% endif %}
{% if report is defined and report %}
{% for tensor in described.outputs %}
{% set type = {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(tensor.dtype, tensor.dtype ~ "_t") %}
{% set count = name | upper ~ "_" ~ tensor.c_name | upper ~ "_COUNT" %}

static void {{ own }}report_{{ tensor.c_name }}(void)
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

{% if described.interface_api != "c" %}
{% include "shared/infer.c" %}

{% endif %}
{% if several %}
static int32_t {{ name }}_run_once(void)
{% else %}
int main(void)
{% endif %}
{
{% if context and not external %}
    {{ inputs }} = {{ name }}_arena_inputs({{ context }});
    {{ outputs }} = {{ name }}_arena_outputs({{ context }});
{% endif %}
{% if context and described.states %}
    {{ name }}_reset({{ context }});
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
    /* This is the first step of a sequence. Call {{ name }}_run again for each that follows, with its own inputs: what
     * the model keeps ({{ described.states | map(attribute="c_name") | join(", ") }}) goes on from step to step. {{ name }}_reset begins another sequence. */
{% endif %}
{% set inference = name ~ "_run(" ~ (context ~ ", " if context else "") ~ "&" ~ inputs ~ ", &" ~ outputs ~ ")" if described.interface_api == "c" else own ~ "infer()" %}
{% if report is defined and report %}
    const int32_t status = {{ inference }};
    if (status != 0) {
        report("failed with status", status, 0);
        return 0;
    }
{% for tensor in described.outputs %}
    {{ own }}report_{{ tensor.c_name }}();
{% endfor %}
    return 0;
{% else %}
    return {{ "" if several else "(int)" }}{{ inference }};
{% endif %}
}
{% endfor %}
{% if several %}

int main(void)
{
    int32_t status = 0;
{% for described in cookiecutter.models %}
    if (status == 0) {
        status = {{ described.model }}_run_once();
    }
{% endfor %}
    return (int)status;
}
{% endif %}
