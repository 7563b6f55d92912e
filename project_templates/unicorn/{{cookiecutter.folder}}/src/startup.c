/* The first instructions. The emulator has loaded the image and cleared all other memory; the linker script has the
 * symbols. */
#include <stdint.h>

#include "platform.h"

extern uint32_t mt_data_load[], mt_data_start[], mt_data_end[];

int main(void);
void mt_reset(void);
void mt_start(void);
void __assert_fail(const char *expression, const char *file, int line, const char *function);

/* musl's assert() ends here; its own would print. guard.c has another. */
__attribute__((weak)) void __assert_fail(const char *expression, const char *file, int line, const char *function)
{
    (void)expression;
    (void)file;
    (void)line;
    (void)function;
    platform_exit(PLATFORM_FAULT);
}

__attribute__((naked, used)) void mt_reset(void)
{
{% if cookiecutter.board.cpu.startswith("cortex-m") %}
    __asm__ volatile("ldr r0, =mt_stack_top\n\t"
                     "mov sp, r0\n\t"
                     "ldr r0, =mt_start\n\t"
                     "bx r0\n\t"
                     ".ltorg");
{% else %}
    __asm__ volatile("la sp, mt_stack_top\n\t"
                     "la t0, mt_start\n\t"
                     "jr t0");
{% endif %}
}

void mt_start(void)
{
    const volatile uint32_t *load = mt_data_load;
    for (volatile uint32_t *word = mt_data_start; word < mt_data_end; ++word) {
        *word = *load++;
    }
    platform_exit(main());
}
