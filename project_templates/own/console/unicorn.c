{% include "console/baremetal.c" %}
