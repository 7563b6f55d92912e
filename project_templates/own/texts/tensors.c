{# What a program has to know of the model's inputs and outputs; `inputs` and `outputs` are where they lie. #}
{% macro c_type(tensor) %}{{ {"float32": "float", "float64": "double", "bool": "uint8_t"}.get(tensor.dtype, tensor.dtype ~ "_t") }}{% endmacro %}
{% macro of(name, tensor) %}{{ name | upper }}_{{ tensor.c_name | upper }}{% endmacro %}
{% macro described(tensor) %}{{ tensor.dtype }}[{{ tensor.shape | join(",") }}]{% endmacro %}
{% macro is_on_a_scale(tensor) %}{{ "yes" if tensor.scale and tensor.scale | length == 1 and tensor.dtype in ["int8", "uint8", "int16", "uint16"] }}{% endmacro %}
{% macro least(tensor) %}{{ {"int8": -128, "uint8": 0, "int16": -32768, "uint16": 0}[tensor.dtype] }}{% endmacro %}
{% macro most(tensor) %}{{ {"int8": 127, "uint8": 255, "int16": 32767, "uint16": 65535}[tensor.dtype] }}{% endmacro %}
{% macro quantize(name, tensor) %}
/* Quantize a value of {{ tensor.c_name }}: value = ({{ "q" }} - zero point) * scale. */
static {{ c_type(tensor) }} quantize_{{ tensor.c_name }}(float value)
{
    const float scaled = value / {{ of(name, tensor) }}_SCALE + (float){{ of(name, tensor) }}_ZERO_POINT;
    if (!(scaled > {{ least(tensor) }}.0f)) {
        return {{ least(tensor) }};
    }
    if (scaled >= {{ most(tensor) }}.0f) {
        return {{ most(tensor) }};
    }
    return ({{ c_type(tensor) }})(int32_t)(scaled + (scaled < 0.0f ? -0.5f : 0.5f));
}
{% endmacro %}
