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
{% elif described.interface_api == "feed" %}
{% set tensor = described.inputs | rejectattr("stream", "none") | first %}
{% set type = {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(tensor.dtype, tensor.dtype ~ "_t") %}
{% set rows = (name ~ "_" ~ tensor.c_name ~ "_ROW") | upper %}
/* Put the next row of {{ tensor.c_name }} into `line`: what a camera's callback has for each line, say. Until you do, it is zeros. */
static void {{ own | default("") }}read_row(int32_t row, {{ type }} *line)
{
    (void)row;
    for (int32_t i = 0; i < {{ rows }}_COUNT; ++i) {
        line[i] = 0;
    }
}

static int32_t {{ own | default("") }}infer(void)
{
    static {{ type }} line[{{ rows }}_COUNT];
    int32_t status = {{ name }}_begin({{ "&" ~ inputs if described.inputs | length > 1 }});
    for (int32_t row = 0; status == 0 && row < {{ rows }}S; ++row) {
        {{ own | default("") }}read_row(row, line);
        status = {{ name }}_feed(line, 1);
    }
    return status == 0 ? {{ name }}_finish(&{{ outputs }}) : status;
}
{% elif described.interface_api == "pointers" %}
static int32_t {{ own | default("") }}infer(void)
{
    void *own_inputs[] = { {%- for tensor in described.inputs %}{{ ", " if not loop.first }}(void *){{ inputs }}.{{ tensor.c_name }}{% else %}0{% endfor -%} };
    void *own_outputs[] = { {%- for tensor in described.outputs %}{{ ", " if not loop.first }}{{ outputs }}.{{ tensor.c_name }}{% else %}0{% endfor -%} };
    return {{ name }}_run(own_inputs, own_outputs, 0); /* 0: what the model's devices are given, if it has any */
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
