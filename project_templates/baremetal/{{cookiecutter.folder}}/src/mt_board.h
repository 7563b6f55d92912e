/* The addresses, rates and pins that the drivers in crt/ports need, from the board's entry. */
#ifndef MT_BOARD_H
#define MT_BOARD_H

{% for name, value in cookiecutter.ports.macros.items() %}
#define {{ name }} {{ value }}
{% endfor %}

#endif
