/* The drivers in this folder: a chip's clock, pins, UART, timer, flash and random numbers, on its registers. A firmware has at most one of
 * each. Each driver is one file and takes its addresses, rates and pins from the macros of mt_board.h, which mtool
 * generates from a board's entry in boards.yaml: `ports: {uart: {base: 0x40011000}}` is MT_UART_BASE. drivers.yaml lists
 * the drivers and their macros. */
#ifndef MT_PORTS_H
#define MT_PORTS_H

#include <stddef.h>
#include <stdint.h>

#define MT_REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

/* The field of a bus's divider by 1, 2, 4, 8 or 16 in the RCC of STM32. */
#define MT_CLOCK_DIVIDER(by) ((by) == 1u ? 0u : (by) == 2u ? 4u : (by) == 4u ? 5u : (by) == 8u ? 6u : 7u)

/* The source of a PLL, MT_CLOCK_SOURCE: the chip's own oscillator, a crystal, or a clock at the crystal's pin. */
#define MT_CLOCK_INTERNAL 0u
#define MT_CLOCK_CRYSTAL 1u
#define MT_CLOCK_EXTERNAL 2u

/* Bring the core and its buses to the board's clock rates. Called once, first; uses no variables. */
void mt_clock_init(void);

/* Empty and enable the core's caches. Called once, after that. */
void mt_cache_init(void);

/* Connect the pins MT_UART_TX and MT_UART_RX to the UART. Called before mt_uart_init. */
void mt_pins_init(void);

/* Start the UART at MT_UART_BAUD, 8 data bits, no parity, and enable its receive interrupt (not the core's interrupt
 * controller). */
void mt_uart_init(void);

/* Take a received byte; 0: there is none. An overrun or a damaged byte is cleared and not reported: frames have a
 * checksum. */
int32_t mt_uart_receive(uint8_t *byte);

/* Send a byte; waits for the one before. */
void mt_uart_send(uint8_t byte);

/* Wait until everything that was sent has left the chip. */
void mt_uart_flush(void);

/* Start the timer from zero; 0: this chip's does not count. Stop it: *ticks have passed at MT_TIMER_HZ; 0: it ran over its
 * range. */
int32_t mt_timer_start(void);
int32_t mt_timer_stop(uint64_t *ticks);

/* SysTick, where it is the timer: its interrupt, which counts periods of MT_SYSTICK_PERIOD ticks, and whether it also
 * has to run for a watchdog. */
#define MT_SYSTICK_PER_SECOND 50u
#define MT_SYSTICK_PERIOD (MT_TIMER_HZ / MT_SYSTICK_PER_SECOND)
void mt_systick_interrupt(void);
void mt_systick_watch(int32_t is_watching);

/* Erase the page or sector of flash that starts at an address, and program `count` bytes, a multiple of 64, at an
 * address that is a multiple of 64. MT_OK, or MT_IO: the controller reported an error. */
static inline uint32_t mt_word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

int32_t mt_flash_erase(uint32_t address);
int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count);

#endif
