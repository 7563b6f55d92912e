/* Reset, faults and the semihosting instruction of a Cortex-M. The linker script has the symbols. */
#include <stdint.h>
#include <string.h>

{% set ports = cookiecutter.board.ports %}
{% set uart_irq = ports.uart.irq if cookiecutter.options.channel == "uart" else -1 %}
{% set has_systick = cookiecutter.board.timer.kind == "systick" %}
{% set has_cache = "cache" in ports and not cookiecutter.modules %}{# code of modules is written to RAM #}

{% if has_systick or has_cache or "clock" in ports %}
#include "mt_board.h"
#include "mt_ports.h"
{% endif %}
#include "platform.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88u) /* coprocessor access; Armv7-M ARM, B3.2.20 */

extern uint32_t mt_data_load[], mt_data_start[], mt_data_end[], mt_bss_start[], mt_bss_end[], mt_stack_top[];
{% if cookiecutter.regions.arena != cookiecutter.regions.data %}
extern uint32_t mt_arena_start[], mt_arena_end[]; /* in another memory than .bss */
{% endif %}
{% if cookiecutter.sources.hot %}
extern uint32_t mt_hot_code_load[], mt_hot_code_start[], mt_hot_code_end[];
{% endif %}

int main(void);
int *__errno(void);
void mt_reset(void);
void __assert_func(const char *file, int line, const char *function, const char *expression);
void platform_fault(void);
{% if uart_irq >= 0 %}
void mt_uart_interrupt(void);
{% endif %}
{% if has_systick %}
void platform_systick(void);
{% endif %}

int32_t platform_semihosting(int32_t operation, const void *parameters)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

{% if cookiecutter.board.port.get("at_end") == "reset" %}
static void platform_restart(void)
{
    *(volatile uint32_t *)0xE000ED0Cu = 0x05FA0004u; /* AIRCR.SYSRESETREQ; Armv7-M ARM, B3.2.6 */
    __asm__ volatile("dsb" ::: "memory");
}

{% endif %}
{% include "shared/platform_exit.c" %}

{% if cookiecutter.protect %}
/* newlib's libm reports range errors here, and they are not read: below the stack is what any caller may write. Its own
 * __errno would link 1 KB of per-thread state. */
__attribute__((naked)) int *__errno(void)
{
    __asm__ volatile("sub r0, sp, #64\n\t"
                     "bx lr");
}
{% else %}
/* newlib's libm reports range errors here. Its own __errno would link 1 KB of per-thread state. */
int *__errno(void)
{
    static int number;
    return &number;
}
{% endif %}

/* Every exception ends the firmware; its status says which one (IPSR: 3 is HardFault). guard.c has another one. */
__attribute__((weak)) void platform_fault(void)
{
    int32_t exception;
    __asm__ volatile("mrs %0, ipsr" : "=r"(exception));
    platform_exit(PLATFORM_FAULT + exception);
}

{% if uart_irq >= 0 %}
/* A standalone firmware without port.c has no UART. */
__attribute__((weak)) void mt_uart_interrupt(void)
{
    platform_fault();
}

{% endif %}
{% if has_systick %}
/* The timer's; guard.c, whose watchdog shares it, has another one. */
__attribute__((weak)) void platform_systick(void)
{
    mt_systick_interrupt();
}

{% endif %}
{% set libc = "newlib" %}
{% include "shared/startup_assert.c" %}

{% set code_at = cookiecutter.board.memories[cookiecutter.regions.code].base %}
{% if code_at %}
extern const uint32_t mt_vectors[];

{% endif %}
#ifdef __OPTIMIZE_SIZE__
/* The C library's are for speed and take 720 bytes. Without the attribute, GCC would take these loops for calls of them. */
#define PLATFORM_SMALL __attribute__((used, optimize("no-tree-loop-distribute-patterns")))

PLATFORM_SMALL void *memcpy(void *restrict to, const void *restrict from, size_t count)
{
    size_t i = 0;
#ifdef __ARM_FEATURE_UNALIGNED
    for (uint32_t word; i + 4 <= count; i += 4) {
        __builtin_memcpy(&word, (const uint8_t *)from + i, 4);
        __builtin_memcpy((uint8_t *)to + i, &word, 4);
    }
#endif
    for (; i < count; ++i)
        ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
    return to;
}

PLATFORM_SMALL void *memmove(void *to, const void *from, size_t count)
{
    if ((uintptr_t)to <= (uintptr_t)from)
        return memcpy(to, from, count);
    while (count-- > 0)
        ((uint8_t *)to)[count] = ((const uint8_t *)from)[count];
    return to;
}

PLATFORM_SMALL void *memset(void *to, int value, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        ((uint8_t *)to)[i] = (uint8_t)value;
    return to;
}
#endif

void mt_reset(void)
{
{% if code_at %}
#ifndef __ARM_ARCH_6M__ /* a Cortex-M0 has none */
    *(volatile uint32_t *)0xE000ED08u = (uint32_t)mt_vectors; /* VTOR; Armv7-M ARM, B3.2.5. A boot loader has its own */
#endif
{% endif %}
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    CPACR |= 0xFu << 20; /* full access to CP10 and CP11: the FPU and Helium */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
{% include "shared/startup_load.c" %}

{% if cookiecutter.sources.hot %}
    __asm__ volatile("dsb\n\tisb" ::: "memory"); /* what was written is executed */
{% endif %}
    for (volatile uint32_t *word = mt_bss_start; word < mt_bss_end; ++word) {
        *word = 0;
    }
{% if cookiecutter.regions.arena != cookiecutter.regions.data %}
    for (volatile uint32_t *word = mt_arena_start; word < mt_arena_end; ++word) {
        *word = 0;
    }
{% endif %}
{% if "clock" in ports %}
    mt_clock_init();
{% endif %}
{% if has_cache %}
    mt_cache_init();
{% endif %}
    platform_exit(main());
}

{% if uart_irq >= 0 %}
/* The exceptions 1 to 15, and the interrupts up to the UART's. No other interrupt is ever enabled but SysTick, the 15th. */
{% else %}
/* The exceptions 1 to 15. No interrupt is ever enabled but guard.c's SysTick, the 15th. */
{% endif %}
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[{{ 16 + uart_irq }}])(void);
} vectors = {
    mt_stack_top,
    {
        mt_reset,
{% for number in range(2, 15) %}
        platform_fault,
{% endfor %}
        {{ "platform_systick" if has_systick else "platform_fault" }},
{% for number in range(uart_irq) %}
        platform_fault,
{% endfor %}
{% if uart_irq >= 0 %}
        mt_uart_interrupt,
{% endif %}
    },
};
