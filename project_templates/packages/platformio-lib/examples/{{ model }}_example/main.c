/* Any framework: one inference. */
#include <{{ model }}.h>

{% if manifest.io == "external" %}
{% for tensor in manifest.inputs + manifest.outputs %}
static {{ c_type(tensor.dtype) }} {{ tensor.c_name }}[{{ model | upper }}_{{ tensor.c_name | upper }}_COUNT];
{% endfor %}
static const struct {{ model }}_inputs inputs = {
{%- for tensor in manifest.inputs %}{{ ", " if not loop.first }}{{ tensor.c_name }}{% endfor %}};
static const struct {{ model }}_outputs outputs = {
{%- for tensor in manifest.outputs %}{{ ", " if not loop.first }}{{ tensor.c_name }}{% endfor %}};
{% endif %}

int main(void)
{
{% if manifest.io == "external" %}
    return (int){{ model }}_run(&inputs, &outputs);
{% else %}
    return (int){{ model }}_run(&{{ model }}_arena_inputs, &{{ model }}_arena_outputs);
{% endif %}
}
