/* One inference, and its outputs. */
#include <stdio.h>

{% set once = true %}
{% macro prints(name, values, count) %}
    for (int i = 0; i < {{ count }}; ++i) {
        printf("{{ name }} %d %g\n", i, (double){{ values }}[i]);
    }
{% endmacro %}
{% include "shared/standalone.c" %}

void app_main(void)
{
    if (run_once() != 0) {
        printf("failed\n");
    }
}
