#include <stdio.h>

static void report(const char *what, int32_t number)
{
    printf("%s %ld\n", what, (long)number);
    fflush(stdout);
}
