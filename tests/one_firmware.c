/* The start of a firmware of many models: the entry, the FPU or vectors, semihosting. The models' checks are in main. */
#include <stdint.h>

int main(void);
extern uint32_t stack_top[], bss_start[], bss_end[];

#ifdef __riscv
static int32_t semihosting(int32_t operation, const void *parameters)
{
    register int32_t a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = parameters;
    __asm__ volatile(".balign 16\n\t" /* the three lie in one page */
                     ".option push\n\t"
                     ".option norvc\n\t"
                     "slli zero, zero, 0x1f\n\t"
                     "ebreak\n\t"
                     "srai zero, zero, 7\n\t"
                     ".option pop"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}
#else
static int32_t semihosting(int32_t operation, const void *parameters)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
#endif

void say(const char *text);
void say(const char *text) { (void)semihosting(4, text); }

static void leave(void)
{
    (void)semihosting(0x18, (const void *)(uintptr_t)0x20026);
    for (;;)
        ;
}

#ifndef __riscv
static void fault(void)
{
    say("fault\n");
    leave();
}
#endif

static void __attribute__((used)) reset(void)
{
#ifndef __riscv
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: access to the FPU */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    for (uint32_t *word = bss_start; word < bss_end; ++word)
        *word = 0xA5A5A5A5u; /* arenas are not zero when a model starts */
    (void)main();
    leave();
}

#ifdef __riscv
__attribute__((section(".vectors"), naked, used)) static void entry(void)
{
    __asm__ volatile("la sp, stack_top\n\t"
#ifdef MT_RVV
                     "li t0, 0x200\n\t" /* mstatus.VS: vectors */
                     ".option arch, +zicsr\n\t"
                     "csrs mstatus, t0\n\t"
#endif
                     "j reset");
}
#else
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault,
};
#endif
