{% include "shared/bare_main.c" %}
