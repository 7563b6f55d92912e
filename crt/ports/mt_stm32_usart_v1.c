/* The USART of STM32 F1, F2, F4 and L1, which has one data register for both directions.
 * RM0008 (F1), 27.6; RM0041 (F100), 23.6; RM0033 (F2), 24.6; RM0090 (F4), 30.6. */
#include "mt_board.h"
#include "mt_ports.h"

#define SR MT_REGISTER(MT_UART_BASE + 0x00u)
#define DR MT_REGISTER(MT_UART_BASE + 0x04u)
#define BRR MT_REGISTER(MT_UART_BASE + 0x08u)
#define CR1 MT_REGISTER(MT_UART_BASE + 0x0Cu)

#define SR_ORE (1u << 3)
#define SR_RXNE (1u << 5)
#define SR_TC (1u << 6)
#define SR_TXE (1u << 7)
#define CR1_RE (1u << 2)
#define CR1_TE (1u << 3)
#define CR1_RXNEIE (1u << 5)
#define CR1_UE (1u << 13)

void mt_uart_init(void)
{
    MT_REGISTER(MT_UART_ENABLE) |= 1u << MT_UART_ENABLE_BIT;
    (void)MT_REGISTER(MT_UART_ENABLE); /* the clock needs two cycles: RM0090, 6.3.15 */
    CR1 = 0;
    BRR = (MT_UART_CLOCK_HZ + MT_UART_BAUD / 2u) / MT_UART_BAUD; /* sixteenths, oversampling by 16 */
    CR1 = CR1_UE | CR1_TE | CR1_RE | CR1_RXNEIE;
}

int32_t mt_uart_receive(uint8_t *byte)
{
    const uint32_t status = SR;
    if ((status & (SR_RXNE | SR_ORE)) == 0) {
        return 0;
    }
    *byte = (uint8_t)DR; /* after SR, this also clears an overrun, whose interrupt else stays, a framing error and noise */
    return (status & SR_RXNE) != 0;
}

void mt_uart_send(uint8_t byte)
{
    while ((SR & SR_TXE) == 0) {
    }
    DR = byte;
}

void mt_uart_flush(void)
{
    while ((SR & SR_TC) == 0) {
    }
}
