{% set name = cookiecutter.model %}
{% set external = cookiecutter.manifest.io == "external" %}
{% set inputs = "inputs" if external else name ~ "_arena_inputs" %}
{% set outputs = "outputs" if external else name ~ "_arena_outputs" %}
{% set described = cookiecutter.manifest %}
{% set inference = name ~ "_run(&" ~ inputs ~ ", &" ~ outputs ~ ")" if described.interface_api == "c" else "infer()" %}
/* Standalone sketch: runs the model again and again, and prints its outputs. */
#include <Arduino.h>

#include <{{ name }}.h>

#define BAUD {{ cookiecutter.board.usb.uart }}
#define SHOWN 16 /* elements of an output that are printed */
{% if external %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in cookiecutter.manifest[role] %}
static uint32_t {{ role[:-1] }}_{{ tensor.c_name }}[{{ (tensor.bytes + 3) // 4 }}];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}
static const struct {{ name }}_{{ role }} {{ role }} = {
{%- for tensor in cookiecutter.manifest[role] %}{{ ", " if not loop.first }}({{ {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(tensor.dtype, tensor.dtype ~ "_t") }} *){{ role[:-1] }}_{{ tensor.c_name }}{% endfor %}};
{% endfor %}
{% endif %}

/* Print the first values of an output, and where the largest is. */
template <typename T> static void print(const __FlashStringHelper *name, const T *values, int32_t count)
{
    int32_t largest = 0;
    Serial.print(name);
    for (int32_t i = 0; i < count; ++i) {
        largest = values[i] > values[largest] ? i : largest;
        if (i < SHOWN) {
            Serial.print(' ');
            Serial.print(values[i] + 0); /* + 0: an 8-bit integer is a number, not a character */
        }
    }
    Serial.print(F(" argmax "));
    Serial.println((long)largest);
}

{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
void setup()
{
    Serial.begin(BAUD);
}

void loop()
{
    /* Put the sensor's data into the inputs here:
{% for tensor in cookiecutter.manifest.inputs %}
     *   {{ inputs }}.{{ tensor.c_name }}   {{ tensor.dtype }}[{{ tensor.shape | join(",") }}]{% if tensor.scale and tensor.scale | length == 1 %}, value = (q - {{ tensor.zero_point[0] }}) * {{ tensor.scale[0] }}{% endif %}

{% endfor %}
     */
    const int32_t status = {{ inference }};
    if (status != 0) {
        Serial.print(F("failed with status "));
        Serial.println((long)status);
    } else {
{% for tensor in cookiecutter.manifest.outputs %}
        print(F("{{ tensor.c_name }}"), {{ outputs }}.{{ tensor.c_name }}, {{ name | upper }}_{{ tensor.c_name | upper }}_COUNT);
{% endfor %}
    }
    delay(1000);
}
