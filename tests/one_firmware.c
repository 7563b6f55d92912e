/* The start of a firmware of many models: vectors, the FPU, semihosting. The models' checks are in main. */
#include <stdint.h>

int main(void);
extern uint32_t stack_top[], bss_start[], bss_end[];

static int32_t semihosting(int32_t operation, const void *parameters)
{
    register int32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void say(const char *text);
void say(const char *text) { (void)semihosting(4, text); }

static void leave(void)
{
    (void)semihosting(0x18, (const void *)(uintptr_t)0x20026);
    for (;;)
        ;
}

static void fault(void)
{
    say("fault\n");
    leave();
}

static void reset(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: access to the FPU */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    for (uint32_t *word = bss_start; word < bss_end; ++word)
        *word = 0xA5A5A5A5u; /* arenas are not zero when a model starts */
    (void)main();
    leave();
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
    (const void *)fault, (const void *)fault, (const void *)fault,
};
