{% include "shared/standalone.c" %}
