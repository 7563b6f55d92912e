{# assert() of the C library `libc`, in a firmware without a guard. #}
/* {{ libc }}'s assert() ends here; its own would print. guard.c has another. */
__attribute__((weak)) void __assert_func(const char *file, int line, const char *function, const char *expression)
{
    (void)file;
    (void)line;
    (void)function;
    (void)expression;
    platform_exit(PLATFORM_FAULT);
}
