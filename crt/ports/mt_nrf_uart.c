/* The UART of nRF51 and nRF52, without DMA. nRF51 Series Reference Manual 3.0, ch. 29; nRF52840 PS 1.7, 6.33. */
#include "mt_board.h"
#include "mt_ports.h"

#define STARTRX MT_REGISTER(MT_UART_BASE + 0x000u)
#define STARTTX MT_REGISTER(MT_UART_BASE + 0x008u)
#define RXDRDY MT_REGISTER(MT_UART_BASE + 0x108u)
#define TXDRDY MT_REGISTER(MT_UART_BASE + 0x11Cu)
#define ERROR_EVENT MT_REGISTER(MT_UART_BASE + 0x124u)
#define INTENSET MT_REGISTER(MT_UART_BASE + 0x304u)
#define ERRORSRC MT_REGISTER(MT_UART_BASE + 0x480u)
#define ENABLE MT_REGISTER(MT_UART_BASE + 0x500u)
#define PSELTXD MT_REGISTER(MT_UART_BASE + 0x50Cu)
#define PSELRXD MT_REGISTER(MT_UART_BASE + 0x514u)
#define RXD MT_REGISTER(MT_UART_BASE + 0x518u)
#define TXD MT_REGISTER(MT_UART_BASE + 0x51Cu)
#define BAUDRATE MT_REGISTER(MT_UART_BASE + 0x524u)
#define CONFIG MT_REGISTER(MT_UART_BASE + 0x56Cu)

#define INT_RXDRDY (1u << 2)
#define ENABLE_UART 4u

static uint8_t is_sending; /* a byte was written, and its TXDRDY has not been seen */

static void wait_until_sent(void)
{
    if (is_sending) {
        while (TXDRDY == 0) {
        }
        TXDRDY = 0;
        is_sending = 0;
    }
}

void mt_uart_init(void)
{
    PSELTXD = MT_UART_TX;
    PSELRXD = MT_UART_RX;
    BAUDRATE = (uint32_t)(((uint64_t)MT_UART_BAUD << 32) / 16000000u + 0x800u) & 0xFFFFF000u;
    CONFIG = 0; /* no parity, no flow control */
    ENABLE = ENABLE_UART;
    RXDRDY = 0;
    TXDRDY = 0;
    INTENSET = INT_RXDRDY;
    STARTRX = 1;
    STARTTX = 1;
}

int32_t mt_uart_receive(uint8_t *byte)
{
    if (ERROR_EVENT != 0) {
        ERROR_EVENT = 0;
        ERRORSRC = ERRORSRC; /* ones are cleared */
    }
    if (RXDRDY == 0) {
        return 0;
    }
    RXDRDY = 0; /* before RXD is read, which may set it again for the next byte in the FIFO */
    *byte = (uint8_t)RXD;
    return 1;
}

void mt_uart_send(uint8_t byte)
{
    wait_until_sent();
    TXD = byte;
    is_sending = 1;
}

void mt_uart_flush(void)
{
    wait_until_sent();
}
