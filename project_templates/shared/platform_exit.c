{% if cookiecutter.options.channel == "rtt" %}
/* Let the debugger read the last bytes; a standalone firmware has none (port.c). */
__attribute__((weak)) void mt_rtt_drain(void);

{% endif %}
void platform_exit(int32_t status)
{
    static volatile int32_t is_ending;
    if (!is_ending) {
        is_ending = 1; /* without a debugger the breakpoint is a fault, which ends here too */
{% if cookiecutter.options.channel == "rtt" %}
        if (mt_rtt_drain) {
            mt_rtt_drain();
        }
{% endif %}
        const uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
        platform_semihosting(0x20, block);                      /* SYS_EXIT_EXTENDED */
    }
{% if cookiecutter.board.port.get("at_end") == "reset" %}
    platform_restart();
{% endif %}
    for (;;) {
        __asm__ volatile("wfi");
    }
}
