/* One inference: replace the zeros with a sensor's data. */
{% set name, described = model, manifest %}
{% set external = manifest.io == "external" %}
{% set inputs = "inputs" if external else model ~ "_arena_inputs" %}
{% set outputs = "outputs" if external else model ~ "_arena_outputs" %}
{% set inference = model ~ "_run(&" ~ inputs ~ ", &" ~ outputs ~ ")" if manifest.interface_api == "c" else "infer()" %}
#include <{{ model }}.h>
#include <stdint.h>
#include <zephyr/sys/printk.h>

{% if external %}
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
{% if inference == "infer()" %}
{% include "shared/infer.c" %}

{% endif %}
int main(void)
{
    const int32_t status = {{ inference }};
    if (status != 0) {
        printk("{{ model }}: status %d\n", (int)status);
        return 0;
    }
{% for tensor in manifest.outputs %}
    {
        const {{ c_type(tensor.dtype) }} *values = {{ outputs }}.{{ tensor.c_name }};
        int largest = 0;
        for (int i = 1; i < {{ model | upper }}_{{ tensor.c_name | upper }}_COUNT; ++i) {
            largest = values[i] > values[largest] ? i : largest;
        }
        printk("{{ tensor.c_name }}: element %d of %d is the largest\n", largest, {{ model | upper }}_{{ tensor.c_name | upper }}_COUNT);
    }
{% endfor %}
    printk("{{ model }}: done\n");
    return 0;
}
