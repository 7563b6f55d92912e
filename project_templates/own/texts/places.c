{# The places of inputs and outputs that the caller keeps, with --io external. #}
{% if manifest.io == "external" %}

{% for role in ["inputs", "outputs"] %}
{% for tensor in manifest[role] %}
static uint32_t {{ role[:-1] }}_{{ tensor.c_name }}[{{ (tensor.bytes + 3) // 4 }}];
{% endfor %}
{% endfor %}
{% for role in ["inputs", "outputs"] %}

static const struct {{ model }}_{{ role }} {{ role }} = {
{%- for tensor in manifest[role] %}{{ ", " if not loop.first }}({{ t.c_type(tensor) }} *){{ role[:-1] }}_{{ tensor.c_name }}{% endfor %}};
{% endfor %}
{% endif %}
