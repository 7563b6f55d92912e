{# infer(), one inference by an interface other than "c"; wants `name`, `inputs`, `outputs` and `described`, the manifest, and with several models `own`, with which names begin. #}
{% if described.interface_api == "step" %}
/* Between two operators: what can't wait for a whole inference goes here (a sensor's queue, a button, a watchdog). */
static void {{ own | default("") }}other_work(void)
{
}

static int32_t {{ own | default("") }}infer(void)
{
    int32_t status = {{ name }}_begin(&{{ inputs }}, &{{ outputs }});
    while (status == 0 && !{{ name }}_done()) {
        status = {{ name }}_step();
        {{ own | default("") }}other_work();
    }
    return status;
}
{% else %}
{% set count = described.inputs | length + described.outputs | length %}
static int32_t {{ own | default("") }}infer(void)
{
    DLTensor tensors[] = {
{% for place, members in [[inputs, described.inputs], [outputs, described.outputs]] %}
{% for tensor in members %}
        mt_tensor_of({{ place }}.{{ tensor.c_name }}, &{{ name }}_{{ tensor.dtype }}_{{ tensor.shape | join("x") or "scalar" }}),
{% endfor %}
{% endfor %}
    };
    union mt_value values[{{ count }}];
    int32_t codes[{{ count }}];
    return mt_packed_call({{ name }}_run, tensors, values, codes, {{ count }});
}
{% endif %}
