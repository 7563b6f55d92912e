/* Built if the arena has its own memory region, which the kernel does not clear as it does .bss. */
#include <string.h>
#include <zephyr/init.h>

#include "{{ cookiecutter.model }}.h"
{% if cookiecutter.arenas %}

static int clear_arena(void)
{
{% for name, bytes in cookiecutter.arenas.items() %}
    memset({{ name }}, 0, {{ bytes }});
{% endfor %}
    return 0;
}

SYS_INIT(clear_arena, PRE_KERNEL_1, 0);
{% endif %}
