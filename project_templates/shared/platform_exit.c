{% set drain = {"rtt": "mt_rtt_drain", "uart": "mt_port_drain"}.get(cookiecutter.options.get("channel")) %}
{% if drain %}
/* Let the last bytes out; a standalone firmware has none (port.c). */
__attribute__((weak)) void {{ drain }}(void);

{% endif %}
void platform_exit(int32_t status)
{
    static volatile int32_t is_ending;
    if (!is_ending) {
        is_ending = 1; /* without a debugger the breakpoint is a fault, which ends here too */
{% if drain %}
        if ({{ drain }}) {
            {{ drain }}();
        }
{% endif %}
        const uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
{% if drain == "mt_port_drain" %}
        if (!{{ drain }}) { /* with a UART there is no debugger to answer */
            platform_semihosting(0x20, block); /* SYS_EXIT_EXTENDED */
        }
{% else %}
        platform_semihosting(0x20, block); /* SYS_EXIT_EXTENDED */
{% endif %}
    }
{% if cookiecutter.board.port.get("at_end") == "reset" %}
    platform_restart();
{% endif %}
    for (;;) {
        __asm__ volatile("wfi");
    }
}
