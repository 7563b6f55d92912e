{# The C names in an example of a model: import it with context, as `at`; wants `described`, the manifest, and `several`. #}
{% set name = described.model %}
{% set own = name ~ "_" if several else "" %}
{% set external = described.io == "external" %}
{% set context = ("&" ~ name ~ "_context" if described.pools else name ~ "_arena" if described.arena_bytes else "0") if described.caller_has_arena else "" %}
{% set has_structures = external or context != "" %}
{% set inputs = ("own_" ~ own if several else "") ~ "inputs" if has_structures else name ~ "_arena_inputs" %}
{% set outputs = ("own_" ~ own if several else "") ~ "outputs" if has_structures else name ~ "_arena_outputs" %}
{% set inference = name ~ "_run(" ~ (context ~ ", " if context else "") ~ "&" ~ inputs ~ ", &" ~ outputs ~ ")" if described.interface_api == "c" else own ~ "infer()" %}
{% set c_types = {"float32": "float", "float64": "double", "bool": "uint8_t"} %}
