/* The UARTE of nRF52, nRF53 and nRF91: the UART with EasyDMA, a byte at a time. nRF52840 PS 1.7, 6.34. */
#include "mt_board.h"
#include "mt_ports.h"

#define STARTRX MT_REGISTER(MT_UART_BASE + 0x000u)
#define STARTTX MT_REGISTER(MT_UART_BASE + 0x008u)
#define ENDRX MT_REGISTER(MT_UART_BASE + 0x110u)
#define ENDTX MT_REGISTER(MT_UART_BASE + 0x120u)
#define ERROR_EVENT MT_REGISTER(MT_UART_BASE + 0x124u)
#define INTENSET MT_REGISTER(MT_UART_BASE + 0x304u)
#define ERRORSRC MT_REGISTER(MT_UART_BASE + 0x480u)
#define ENABLE MT_REGISTER(MT_UART_BASE + 0x500u)
#define PSELTXD MT_REGISTER(MT_UART_BASE + 0x50Cu)
#define PSELRXD MT_REGISTER(MT_UART_BASE + 0x514u)
#define BAUDRATE MT_REGISTER(MT_UART_BASE + 0x524u)
#define RXD_PTR MT_REGISTER(MT_UART_BASE + 0x534u)
#define RXD_MAXCNT MT_REGISTER(MT_UART_BASE + 0x538u)
#define TXD_PTR MT_REGISTER(MT_UART_BASE + 0x544u)
#define TXD_MAXCNT MT_REGISTER(MT_UART_BASE + 0x548u)
#define CONFIG MT_REGISTER(MT_UART_BASE + 0x56Cu)

#define INT_ENDRX (1u << 4)
#define ENABLE_UARTE 8u

static volatile uint8_t received; /* in RAM: DMA reaches nothing else */
static volatile uint8_t to_send;
static uint8_t is_sending;

void mt_uart_init(void)
{
    PSELTXD = MT_UART_TX;
    PSELRXD = MT_UART_RX;
    BAUDRATE = (uint32_t)(((uint64_t)MT_UART_BAUD << 32) / 16000000u + 0x800u) & 0xFFFFF000u;
    CONFIG = 0; /* no parity, no flow control */
    ENABLE = ENABLE_UARTE;
    RXD_PTR = (uint32_t)(uintptr_t)&received;
    RXD_MAXCNT = 1;
    TXD_PTR = (uint32_t)(uintptr_t)&to_send;
    TXD_MAXCNT = 1;
    ENDRX = 0;
    ENDTX = 0;
    INTENSET = INT_ENDRX;
    STARTRX = 1;
}

int32_t mt_uart_receive(uint8_t *byte)
{
    if (ERROR_EVENT != 0) {
        ERROR_EVENT = 0;
        ERRORSRC = ERRORSRC; /* ones are cleared */
    }
    if (ENDRX == 0) {
        return 0;
    }
    ENDRX = 0;
    *byte = received;
    STARTRX = 1; /* the receiver's FIFO of four bytes has kept what came meanwhile */
    return 1;
}

void mt_uart_flush(void)
{
    if (is_sending) {
        while (ENDTX == 0) {
        }
        is_sending = 0;
    }
}

void mt_uart_send(uint8_t byte)
{
    mt_uart_flush();
    ENDTX = 0;
    to_send = byte;
    __asm__ volatile("dsb" ::: "memory");
    STARTTX = 1;
    is_sending = 1;
}
