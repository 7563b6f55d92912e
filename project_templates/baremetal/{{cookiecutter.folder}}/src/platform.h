/* What port.c and guard.c ask of the processor (startup.c). */
#ifndef PLATFORM_H
#define PLATFORM_H

#include <stdint.h>

#define PLATFORM_FAULT 100 /* exit status of a fault: this plus the number of the exception */

/* A semihosting call ("Semihosting for AArch32 and AArch64", Arm; the same operations on RISC-V). */
int32_t platform_semihosting(int32_t operation, const void *parameters);

{% set end = "restarts" if cookiecutter.board.port.get("at_end") == "reset" else "idles" %}
{% if cookiecutter.options.channel == "uart" %}
/* End: the board {{ end }}. */
{% else %}
/* End the emulator with `status` as its exit code; a board {{ end }}. */
{% endif %}
void platform_exit(int32_t status);

#endif
