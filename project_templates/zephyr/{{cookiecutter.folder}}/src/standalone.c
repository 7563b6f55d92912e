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

{% set report = true %}
{% include "shared/standalone.c" %}
