{% set name, inputs, outputs, described = model, "inputs", "outputs", manifest %}
{% set inference = model ~ "_run(&inputs, &outputs)" if manifest.interface_api == "c" else "infer()" %}
#include <{{ model }}.h>

{% if manifest.io == "external" %}
{% for role in ["inputs", "outputs"] %}
{% for tensor in manifest[role] %}
static {{ c_type(tensor.dtype) }} {{ role[:-1] }}_{{ tensor.c_name }}[{{ model | upper }}_{{ tensor.c_name | upper }}_COUNT];
{% endfor %}
{% endfor %}
static const {{ model }}_inputs inputs = {
{%- for tensor in manifest.inputs %}{{ ", " if not loop.first }}input_{{ tensor.c_name }}{% endfor %}};
static const {{ model }}_outputs outputs = {
{%- for tensor in manifest.outputs %}{{ ", " if not loop.first }}output_{{ tensor.c_name }}{% endfor %}};
{% else %}
static const {{ model }}_inputs &inputs = {{ model }}_arena_inputs;
static const {{ model }}_outputs &outputs = {{ model }}_arena_outputs;
{% endif %}

{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
void setup()
{
    Serial.begin(115200);
}

void loop()
{
    // Put the sensor's data into the inputs here{{ ", rows in read_row" if manifest.interface_api == "feed" }}:
{% for tensor in manifest.inputs if tensor.stream is none %}
    //   inputs.{{ tensor.c_name }}   {{ tensor.dtype }}[{{ tensor.shape | join(",") }}]
{% endfor %}
    Serial.println({{ inference }} == 0 ? F("ok") : F("failed"));
{% for tensor in manifest.outputs %}
    for (int32_t i = 0; i < {{ model | upper }}_{{ tensor.c_name | upper }}_COUNT; ++i) {
        Serial.println(outputs.{{ tensor.c_name }}[i] + 0);
    }
{% endfor %}
    delay(1000);
}
