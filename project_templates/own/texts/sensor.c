{% import "texts/tensors.c" as t %}
{% for tensor in manifest.inputs if tensor.range is none and tensor.stream is none and t.is_on_a_scale(tensor) %}

{{ t.quantize(model, tensor) }}
{%- endfor %}

/* 1. Your sensor. Put its next data into the model's inputs, and return whether there were any: {{ "without, nothing is run" if language == "sketch" else "without, the program ends" }}.
 *    Until you do, all are zero.
 *
{% for tensor in manifest.inputs if tensor.stream is none %}
 *    {{ input_of }}{{ tensor.c_name }}   {{ t.described(tensor) }}{% if t.is_on_a_scale(tensor) %}; quantize_{{ tensor.c_name }}() makes it of real values{% endif %}{% if tensor.range %}: a size of this inference, {{ tensor.range.least }} to {{ tensor.range.most }}{% endif %}

{% endfor %}
 */
static int read_sensor(void)
{
{% if language != "sketch" %}
    static int count;
{% endif %}
{% for tensor in manifest.inputs if tensor.stream is none %}
{% if tensor.range %}
    *{{ input_of }}{{ tensor.c_name }} = {{ tensor.range.most }};
{% else %}
    for (int32_t i = 0; i < {{ t.of(model, tensor) }}_COUNT; ++i) {
{% if t.is_on_a_scale(tensor) %}
        const float value = 0.0f; /* element i, as your sensor measures it */
        {{ input_of }}{{ tensor.c_name }}[i] = quantize_{{ tensor.c_name }}(value);
{% else %}
        {{ input_of }}{{ tensor.c_name }}[i] = 0; /* element i, as your sensor measures it */
{% endif %}
    }
{% endif %}
{% endfor %}
{% if language == "sketch" %}
    return 1;
{% else %}
    return count++ == 0; /* once, so that the program ends in a test */
{% endif %}
}

/* 2. What is to happen: the outputs are there. Until you change it, the largest element is printed.
 *
{% for tensor in manifest.outputs %}
 *    {{ output_of }}{{ tensor.c_name }}   {{ t.described(tensor) }}{% if t.is_on_a_scale(tensor) %}; value = (q - {{ t.of(model, tensor) }}_ZERO_POINT) * {{ t.of(model, tensor) }}_SCALE{% endif %}

{% endfor %}
 */
static void act(void)
{
{% for tensor in manifest.outputs %}
    int32_t largest{{ "_" ~ loop.index if manifest.outputs | length > 1 }} = 0;
    for (int32_t i = 1; i < {{ t.of(model, tensor) }}_COUNT; ++i) {
{% set largest = "largest_" ~ loop.index if manifest.outputs | length > 1 else "largest" %}
        {{ largest }} = {{ output_of }}{{ tensor.c_name }}[i] > {{ output_of }}{{ tensor.c_name }}[{{ largest }}] ? i : {{ largest }};
    }
    report("{{ tensor.c_name }}: largest at", {{ largest }});
{% endfor %}
}
