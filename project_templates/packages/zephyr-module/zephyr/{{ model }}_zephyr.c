/* What Zephyr must do for {{ model }} before the first run: clear an arena in a memory region of its own, and let user-mode
 * threads write the model's variables. */
#include <string.h>
#include <zephyr/app_memory/app_memdomain.h>
#include <zephyr/init.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

{% set symbol = "CONFIG_MTOOL_" ~ (model | upper) %}
{% if places_arena %}
#include "{{ model }}.h"

#ifdef {{ symbol }}_ARENA_CHOSEN

static int clear_{{ model }}(void)
{
{% for name, bytes in arenas.items() %}
    memset({{ name }}, 0, {{ bytes }});
{% endfor %}
    return 0;
}

SYS_INIT(clear_{{ model }}, PRE_KERNEL_1, 0);
#endif

{% endif %}
#ifdef {{ symbol }}_USER_MODE
K_APPMEM_PARTITION_DEFINE(mtool_{{ model }}_partition);
#endif

#ifdef {{ symbol }}_DEFAULT_DOMAIN

static int share_{{ model }}(void)
{
    const int status = k_mem_domain_add_partition(&k_mem_domain_default, &mtool_{{ model }}_partition);
    if (status != 0) {
        printk("{{ model }}: its variables ({{ variables | join(", ") }}) can't be added to the default memory domain (%d): "
               "user-mode threads that run it will fault\n", status);
    }
    return status;
}

SYS_INIT(share_{{ model }}, POST_KERNEL, CONFIG_KERNEL_INIT_PRIORITY_DEFAULT);
#endif
