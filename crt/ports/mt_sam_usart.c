/* The USART and the UART of Microchip's SAM3 and SAM4, whose registers agree as far as used here. SAM3X datasheet
 * (Atmel-11057), 34.6 (UART) and 35.8 (USART); its PMC, 28.15; its PIO, 31.7. */
#include "mt_board.h"
#include "mt_ports.h"

#define CR MT_REGISTER(MT_UART_BASE + 0x00u)
#define MR MT_REGISTER(MT_UART_BASE + 0x04u)
#define IER MT_REGISTER(MT_UART_BASE + 0x08u)
#define SR MT_REGISTER(MT_UART_BASE + 0x14u)
#define RHR MT_REGISTER(MT_UART_BASE + 0x18u)
#define THR MT_REGISTER(MT_UART_BASE + 0x1Cu)
#define BRGR MT_REGISTER(MT_UART_BASE + 0x20u)

#define CR_RESET 0x1ACu /* RSTRX, RSTTX, RXDIS, TXDIS, RSTSTA */
#define CR_RSTSTA (1u << 8)
#define CR_ENABLE 0x50u /* RXEN, TXEN */
#define MR_8N1 0x8C0u   /* normal mode, 8 bits, no parity, 1 stop bit; the UART has no CHRL */
#define SR_RXRDY 1u
#define SR_TXRDY 2u
#define SR_ERRORS 0xE0u /* overrun, framing, parity */
#define SR_TXEMPTY (1u << 9)

void mt_uart_init(void)
{
    MT_REGISTER(MT_UART_ENABLE) = 1u << MT_UART_ENABLE_BIT; /* PMC_PCER, in which zeros change nothing */
    CR = CR_RESET;
    MR = MR_8N1;
    BRGR = (MT_UART_CLOCK_HZ + 8u * MT_UART_BAUD) / (16u * MT_UART_BAUD);
    IER = SR_RXRDY;
    CR = CR_ENABLE;
}

int32_t mt_uart_receive(uint8_t *byte)
{
    const uint32_t status = SR;
    if ((status & SR_ERRORS) != 0) {
        CR = CR_RSTSTA;
    }
    if ((status & SR_RXRDY) == 0) {
        return 0;
    }
    *byte = (uint8_t)RHR;
    return 1;
}

void mt_uart_send(uint8_t byte)
{
    while ((SR & SR_TXRDY) == 0) {
    }
    THR = byte;
}

void mt_uart_flush(void)
{
    while ((SR & SR_TXEMPTY) == 0) {
    }
}
