/* mtool's RPC at USART1 by libopencm3; the time is the core's cycle counter.
 *
 * The application sets up clocks, pins and USART1. Call rpc_start once, then mt_poll in the main loop. */
#include <libopencm3/cm3/dwt.h>
#include <libopencm3/cm3/nvic.h>
#include <libopencm3/cm3/scb.h>
#include <libopencm3/stm32/rcc.h>
#include <libopencm3/stm32/usart.h>

#include "mt_rpc.h"

void rpc_start(void);

static volatile uint8_t ring[256]; /* it holds MT_RPC_WINDOW_BYTES; the indices wrap by themselves */
static volatile uint8_t head, tail;

void rpc_start(void)
{
    dwt_enable_cycle_counter();
    nvic_enable_irq(NVIC_USART1_IRQ);
    usart_enable_rx_interrupt(USART1);
}

void usart1_isr(void)
{
    ring[head++] = (uint8_t)usart_recv(USART1);
}

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    size_t count = 0;
    while (count < capacity && tail != head) {
        bytes[count++] = ring[tail++];
    }
    return count;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        usart_send_blocking(USART1, bytes[i]);
    }
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = rcc_ahb_frequency;
    return dwt_read_cycle_counter();
}

void mt_rpc_idle(void)
{
}

void mt_rpc_reset(void)
{
    scb_reset_system();
}
