/* The USART of STM32 F0, F3, F7, G0, G4, H7, L0, L4 and later, which has a data register for each direction, and the LPUART,
 * whose divisor counts 256ths of a bit (MT_UART_SCALE). RM0385 (F7), 31.8; RM0432 (L4+), 54.8 and 55.7; RM0433 (H7), 48.7. */
#include "mt_board.h"
#include "mt_ports.h"

#ifndef MT_UART_SCALE
#define MT_UART_SCALE 1u
#endif

#define CR1 MT_REGISTER(MT_UART_BASE + 0x00u)
#define BRR MT_REGISTER(MT_UART_BASE + 0x0Cu)
#define ISR MT_REGISTER(MT_UART_BASE + 0x1Cu)
#define ICR MT_REGISTER(MT_UART_BASE + 0x20u)
#define RDR MT_REGISTER(MT_UART_BASE + 0x24u)
#define TDR MT_REGISTER(MT_UART_BASE + 0x28u)

#define CR1_UE 1u
#define CR1_RE (1u << 2)
#define CR1_TE (1u << 3)
#define CR1_RXNEIE (1u << 5)
#define ISR_ERRORS 0xFu /* parity, framing, noise, overrun; the same bits of ICR clear them */
#define ISR_RXNE (1u << 5)
#define ISR_TC (1u << 6)
#define ISR_TXE (1u << 7)

void mt_uart_init(void)
{
    MT_REGISTER(MT_UART_ENABLE) |= 1u << MT_UART_ENABLE_BIT;
    (void)MT_REGISTER(MT_UART_ENABLE); /* the clock needs two cycles */
    CR1 = 0;
    BRR = (uint32_t)(((uint64_t)MT_UART_CLOCK_HZ * MT_UART_SCALE + MT_UART_BAUD / 2u) / MT_UART_BAUD);
    CR1 = CR1_UE | CR1_TE | CR1_RE | CR1_RXNEIE;
}

int32_t mt_uart_receive(uint8_t *byte)
{
    const uint32_t status = ISR;
    if ((status & ISR_ERRORS) != 0) {
        ICR = ISR_ERRORS; /* an overrun keeps its interrupt pending until then */
    }
    if ((status & ISR_RXNE) == 0) {
        return 0;
    }
    *byte = (uint8_t)RDR;
    return 1;
}

void mt_uart_send(uint8_t byte)
{
    while ((ISR & ISR_TXE) == 0) {
    }
    TDR = byte;
}

void mt_uart_flush(void)
{
    while ((ISR & ISR_TC) == 0) {
    }
}
