#include <zephyr/kernel.h>

static void report(const char *what, int32_t number)
{
    printk("%s %d\n", what, (int)number);
}
