{# The places of inputs and outputs that the caller keeps, with --io external. #}
{% if manifest.io == "external" %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in manifest[role] %}
static {{ t.c_type(tensor) }} {{ role[:-1] }}_{{ tensor.c_name }}[{{ [1, tensor.elements] | max }}] __attribute__((aligned(8)));
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}
static const struct {{ model }}_{{ role }} {{ role }} = {
{%- for tensor in manifest[role] %}{{ ", " if not loop.first }}{{ role[:-1] }}_{{ tensor.c_name }}{% endfor %}};
{% endfor %}
{% endif %}
