/* SysTick as the timer, where a chip has no better one. It has 24 bits, so its interrupt counts periods of 20 ms while a
 * measurement runs: about 40 instructions each. The guard's watchdog shares it. Armv7-M ARM, B3.3; Armv6-M ARM, B3.3. */
#include "mt_board.h"
#include "mt_ports.h"

#define CSR MT_REGISTER(0xE000E010u)
#define RVR MT_REGISTER(0xE000E014u)
#define CVR MT_REGISTER(0xE000E018u)
#define ICSR MT_REGISTER(0xE000ED04u)

#define CSR_RUN 7u /* the processor's clock; with its interrupt */
#define ICSR_PENDSTCLR (1u << 25)
#define ICSR_PENDSTSET (1u << 26)

static volatile uint32_t periods;
static volatile uint8_t is_timing;
static volatile uint8_t is_watched;

void mt_systick_interrupt(void)
{
    ++periods;
}

static void run(void)
{
    if (is_timing || is_watched) {
        if ((CSR & CSR_RUN) != CSR_RUN) {
            RVR = MT_SYSTICK_PERIOD - 1u;
            CVR = 0;
        }
        CSR = CSR_RUN;
    } else {
        CSR = 0;
        ICSR = ICSR_PENDSTCLR;
    }
}

void mt_systick_watch(int32_t is_watching)
{
    is_watched = is_watching != 0;
    run();
}

int32_t mt_timer_start(void)
{
    CSR = 0; /* a measurement begins with a period, so that equal ones are equal; a watchdog waits up to 20 ms longer */
    ICSR = ICSR_PENDSTCLR;
    periods = 0;
    is_timing = 1;
    run();
    return 1;
}

int32_t mt_timer_stop(uint64_t *ticks)
{
    uint32_t mask;
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(mask) : : "memory");
    uint32_t left = CVR, count = periods;
    if ((ICSR & ICSR_PENDSTSET) != 0) { /* it has just wrapped */
        left = CVR;
        ++count;
    }
    const int32_t is_counting = (CSR & CSR_RUN) == CSR_RUN;
    is_timing = 0;
    run();
    __asm__ volatile("msr primask, %0" : : "r"(mask) : "memory");
    *ticks = (uint64_t)count * MT_SYSTICK_PERIOD + (left == 0 ? 0 : MT_SYSTICK_PERIOD - left);
    return is_counting;
}
