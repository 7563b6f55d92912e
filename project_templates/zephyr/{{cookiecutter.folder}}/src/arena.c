/* Built where the arena has a memory region of its own, which the kernel does not clear as it does .bss. */
#include <string.h>
#include <zephyr/init.h>

#include "{{ cookiecutter.model }}.h"
{% if cookiecutter.manifest.arena_bytes %}

static int clear_arena(void)
{
    memset({{ cookiecutter.model }}_arena, 0, {{ cookiecutter.model | upper }}_ARENA_BYTES);
    return 0;
}

SYS_INIT(clear_arena, PRE_KERNEL_1, 0);
{% endif %}
