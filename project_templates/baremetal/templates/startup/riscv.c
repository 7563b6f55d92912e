/* Reset, traps and the semihosting instruction of a RISC-V core in machine mode. The linker script has the symbols. */
#include <stdint.h>

#include "platform.h"

/* GCC's -march=rv32imc finds its libraries, with _zicsr it does not; so it is enabled in the assembler here. */
__asm__(".option arch, +zicsr");

extern uint32_t mt_data_load[], mt_data_start[], mt_data_end[], mt_bss_start[], mt_bss_end[];
{% if cookiecutter.regions.arena != cookiecutter.regions.data %}
extern uint32_t mt_arena_start[], mt_arena_end[]; /* in another memory than .bss */
{% endif %}
{% if cookiecutter.sources.hot %}
extern uint32_t mt_hot_code_load[], mt_hot_code_start[], mt_hot_code_end[];
{% endif %}

int main(void);
void mt_reset(void);
void __assert_func(const char *file, int line, const char *function, const char *expression);
void mt_start(void);
void mt_trap(void);

/* The three instructions that mark a semihosting call; they must be uncompressed and in one page
 * (RISC-V Semihosting 0.3, section 2). */
__attribute__((noinline, aligned(16))) int32_t platform_semihosting(int32_t operation, const void *parameters)
{
    register int32_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = parameters;
    __asm__ volatile(".option push\n\t"
                     ".option norvc\n\t"
                     "slli x0, x0, 0x1f\n\t"
                     "ebreak\n\t"
                     "srai x0, x0, 7\n\t"
                     ".option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}

{% if cookiecutter.board.port.get("at_end") == "reset" %}
/* Run from the first instruction again, with the traps off; peripherals stay as they are. */
static void platform_restart(void)
{
    __asm__ volatile("csrci mstatus, 8\n\t" /* MIE */
                     "j mt_reset");
}

{% endif %}
{% include "shared/platform_exit.c" %}

/* Every trap ends the firmware; its status says which one (mcause: 2 is an illegal instruction). guard.c has another. */
__attribute__((aligned(4))) void mt_trap(void)
{
    uint32_t cause;
    __asm__ volatile("csrr %0, mcause" : "=r"(cause));
    platform_exit(PLATFORM_FAULT + (int32_t)(cause & 31u));
}

{% set libc = "picolibc" %}
{% include "shared/startup_assert.c" %}

__attribute__((section(".vectors"), naked, used)) void mt_reset(void)
{
    __asm__ volatile("la sp, mt_stack_top\n\t"
                     "la t0, mt_trap\n\t"
                     "csrw mtvec, t0\n\t"
{% if "rvv" in cookiecutter.board.features %}
                     "li t0, 0x200\n\t" /* mstatus.VS = 1: the vector unit, which is off after a reset */
                     "csrs mstatus, t0\n\t"
{% endif %}
                     "la t0, mt_start\n\t"
                     "jr t0");
}

void mt_start(void)
{
{% include "shared/startup_load.c" %}

{% if cookiecutter.sources.hot %}
    __asm__ volatile(".word 0x0000100F" ::: "memory"); /* fence.i: what was written is executed */
{% endif %}
    for (volatile uint32_t *word = mt_bss_start; word < mt_bss_end; ++word) {
        *word = 0;
    }
{% if cookiecutter.regions.arena != cookiecutter.regions.data %}
    for (volatile uint32_t *word = mt_arena_start; word < mt_arena_end; ++word) {
        *word = 0;
    }
{% endif %}
    platform_exit(main());
}
