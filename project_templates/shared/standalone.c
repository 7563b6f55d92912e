/* Standalone firmware: one inference, no runtime beside it. Its exit status is the model's. */
#include "{{ cookiecutter.model }}.h"
{% if cookiecutter.manifest.io == "external" %}

{% for tensor in cookiecutter.manifest.inputs + cookiecutter.manifest.outputs %}
static uint32_t {{ tensor.c_name }}[{{ (tensor.bytes + 3) // 4 }}];
{% endfor %}
{% for role in ["inputs", "outputs"] %}

static const struct {{ cookiecutter.model }}_{{ role }} {{ role }} = {
{% for tensor in cookiecutter.manifest[role] %}
    .{{ tensor.c_name }} = (void *){{ tensor.c_name }},
{% endfor %}
};
{% endfor %}
{% endif %}

int main(void)
{
    /* Put the sensor's data into the inputs here. */
{% if cookiecutter.manifest.io == "external" %}
    return (int){{ cookiecutter.model }}_run(&inputs, &outputs);
{% else %}
    return (int){{ cookiecutter.model }}_run(&{{ cookiecutter.model }}_arena_inputs, &{{ cookiecutter.model }}_arena_outputs);
{% endif %}
}
