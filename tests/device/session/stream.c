/* In place of a project's main.c: HOPS hops of 32 ms, each with a row that follows from its number. For each the outputs and
 * the nanoseconds (4) that it took; halfway and at the end the bytes of stack (4) used so far. */
#include "model.h"
#include "mt_bytes.h"
#include "mt_stack.h"
#include "mtool.h"

#define ROW 40u
#define OUTPUTS 3u
#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

int main(void);

#if defined(__riscv) /* the timer's and the hops' clocks begin a second before their lower 32 bits wrap around */
__asm__(".option arch, +zicsr");
static uint32_t due = UINT32_MAX - 10000000u; /* 10 MHz */
static void start_clock(void)
{
    __asm__ volatile("csrw mcycle, %0" : : "r"(UINT32_MAX - 1000000000u));
    REGISTER(CLINT + 0xBFFCu) = 0;
    REGISTER(CLINT + 0xBFF8u) = due;
    __asm__ volatile("csrw mie, %0" : : "r"(0x80u));
}
static void wait(void)
{
    static uint32_t high;
    high += due > UINT32_MAX - 320000u;
    due += 320000u;
    REGISTER(CLINT + 0x4000u) = UINT32_MAX;
    REGISTER(CLINT + 0x4004u) = high;
    REGISTER(CLINT + 0x4000u) = due;
    __asm__ volatile("wfi");
}
#elif defined(__arm__) /* SysTick, at 25 MHz; the port's timer begins at its start in each measurement */
static void start_clock(void)
{
    __asm__ volatile("cpsid i");
    REGISTER(0xE000E014u) = 800000u - 1u;
    REGISTER(0xE000E018u) = 0;
    REGISTER(0xE000E010u) = 7;
}
static void wait(void)
{
    __asm__ volatile("wfi");
    REGISTER(0xE000ED04u) = 1u << 25;
}
#else
static void start_clock(void)
{
}
static void wait(void)
{
}
#endif

#if defined(__riscv) || defined(__arm__)
extern uint8_t mt_stack_low[];
#else
static uint8_t *const mt_stack_low = 0;
#endif

static void send(uint32_t number)
{
    uint8_t bytes[4];
    mt_put_u32(bytes, number);
    mt_port_write(bytes, sizeof bytes);
}

int main(void)
{
    static int8_t row[ROW], scores[OUTPUTS];
    static const struct model_inputs inputs = {row};
    static const struct model_outputs outputs = {scores};
    volatile uint8_t here = 0;
    mt_port_init();
    mt_stack_paint(mt_stack_low);
    (void)mt_stack_used(mt_stack_low, &here); /* its own stack, too */
    start_clock();
    for (uint32_t hop = 0; hop < HOPS; ++hop) {
        uint64_t elapsed_ns = 0;
        for (uint32_t i = 0; i < ROW; ++i) {
            row[i] = (int8_t)((hop / 8u * ROW + i) * 2654435761u >> 24);
        }
        wait();
        mt_port_timer_start();
        const int32_t status = model_run(&inputs, &outputs);
        if (mt_port_timer_stop(&elapsed_ns) != MT_OK || status != 0) {
            return 1;
        }
        mt_port_write((const uint8_t *)scores, OUTPUTS);
        send((uint32_t)elapsed_ns);
        if (hop == HOPS / 2u - 1u || hop == HOPS - 1u) {
            send(mt_stack_used(mt_stack_low, &here));
        }
    }
    mt_port_abort(0);
    return 0;
}
