/* One inference: replace the zeros with a sensor's data. */
{% set report = true %}
#include <stdint.h>
#include <zephyr/sys/printk.h>

static void report(const char *what, int32_t number, int32_t count)
{
    if (count > 0) {
        printk("%s: element %d of %d is the largest\n", what, (int)number, (int)count);
    } else {
        printk("%s %d\n", what, (int)number);
    }
}

{% set once = true %}
{% include "shared/standalone.c" %}

int main(void)
{
    if (run_once() == 0) {
        printk("{{ model }}: done\n");
    }
    return 0;
}
