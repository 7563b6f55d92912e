/* A program without a board package: runs a model on each sample of samples.h and writes the bytes of its output to a
 * UART. Of a Cortex-M the program is loaded by QEMU, RAM included; so is that of RISC-V. */
#include <digits_int8.h>
#include <stdint.h>
#include <string.h>

#include "samples.h"

#if defined(__AVR__)
#include <avr/io.h>
#include <avr/pgmspace.h>

static void put(uint8_t byte)
{
    while ((UCSR0A & _BV(UDRE0)) == 0) {
    }
    UDR0 = byte;
}

static void begin(void)
{
    UBRR0 = 0;
    UCSR0B = _BV(TXEN0);
}
#define IN_FLASH PROGMEM
#define FROM_FLASH memcpy_P
#else
#define IN_FLASH
#define FROM_FLASH memcpy
static void put(uint8_t byte)
{
    *(volatile uint32_t *)UART = byte;
}
#if defined(__riscv)
#undef UART
#define UART 0x10000000u
static void begin(void)
{
}
__attribute__((naked, section(".vectors"))) void start(void)
{
    __asm__("la sp, stack_top\n\tj main");
}
#else
static void begin(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF00000u; /* CPACR: the FPU is on */
    *(volatile uint32_t *)(UART + 8) = 1;          /* CMSDK UART, CTRL: the transmitter is on */
    *(volatile uint32_t *)(UART + 16) = 16;        /* BAUDDIV */
}
int main(void);
extern uint32_t stack_top[];
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {stack_top, (const void *)main};
#endif
#endif

static const int8_t samples[COUNT][DIGITS_INT8_IMAGE_COUNT] IN_FLASH = SAMPLES;

int main(void)
{
    begin();
    for (int i = 0; i < COUNT; ++i) {
        FROM_FLASH(digits_int8_arena_inputs.image, samples[i], DIGITS_INT8_IMAGE_COUNT);
        if (digits_int8_run(&digits_int8_arena_inputs, &digits_int8_arena_outputs) != 0) {
            break;
        }
        for (int o = 0; o < DIGITS_INT8_SCORES_COUNT; ++o) {
            put((uint8_t)digits_int8_arena_outputs.scores[o]);
        }
    }
    for (;;) {
    }
}
