/* Arm's PL011: the UART of RP2040 and of the Stellaris LM3S. Arm DDI 0183, ch. 3; RP2040 datasheet, 4.2.8; LM3S6965
 * datasheet, 12.4 (which names the registers differently). */
#include "mt_board.h"
#include "mt_ports.h"

#define DR MT_REGISTER(MT_UART_BASE + 0x00u)
#define RSR MT_REGISTER(MT_UART_BASE + 0x04u) /* a write clears the errors */
#define FR MT_REGISTER(MT_UART_BASE + 0x18u)
#define IBRD MT_REGISTER(MT_UART_BASE + 0x24u)
#define FBRD MT_REGISTER(MT_UART_BASE + 0x28u)
#define LCRH MT_REGISTER(MT_UART_BASE + 0x2Cu)
#define CR MT_REGISTER(MT_UART_BASE + 0x30u)
#define IFLS MT_REGISTER(MT_UART_BASE + 0x34u)
#define IMSC MT_REGISTER(MT_UART_BASE + 0x38u)
#define ICR MT_REGISTER(MT_UART_BASE + 0x44u)

#define FR_BUSY (1u << 3)
#define FR_RXFE (1u << 4)
#define FR_TXFF (1u << 5)
#define LCRH_FIFO (1u << 4)
#define LCRH_8_BITS (3u << 5)
#define CR_UARTEN 1u
#define CR_TXE (1u << 8)
#define CR_RXE (1u << 9)
#define INT_RX (1u << 4)
#define INT_RT (1u << 6) /* bytes are in the FIFO, and none has come for 32 bit times */

/* The divisor in 64ths: DDI 0183, 3.3.6. */
#define DIVISOR ((uint32_t)((4u * (uint64_t)MT_UART_CLOCK_HZ + MT_UART_BAUD / 2u) / MT_UART_BAUD))

void mt_uart_init(void)
{
#ifdef MT_UART_ENABLE
    MT_REGISTER(MT_UART_ENABLE) |= 1u << MT_UART_ENABLE_BIT;
    (void)MT_REGISTER(MT_UART_ENABLE);
#endif
#ifdef MT_UART_RESET /* a block that a bit holds in reset, with its "done" in another register: RP2040, 2.14 */
    MT_REGISTER(MT_UART_RESET) &= ~(1u << MT_UART_RESET_BIT);
    while ((MT_REGISTER(MT_UART_RESET + 8u) >> MT_UART_RESET_BIT & 1u) == 0) {
    }
#endif
    CR = 0;
    IBRD = DIVISOR >> 6;
    FBRD = DIVISOR & 63u;
    LCRH = LCRH_8_BITS | LCRH_FIFO; /* after the divisor, which it latches: DDI 0183, 3.3.7 */
    IFLS = 0;                       /* interrupt at an eighth of the FIFO */
    ICR = 0x7FFu;
    IMSC = INT_RX | INT_RT;
    CR = CR_UARTEN | CR_TXE | CR_RXE;
    while ((FR & FR_RXFE) == 0) { /* bytes of before a reset: some models interrupt only when the FIFO fills up */
        (void)DR;
    }
}

int32_t mt_uart_receive(uint8_t *byte)
{
    if ((FR & FR_RXFE) != 0) {
        return 0;
    }
    const uint32_t data = DR;
    if ((data & 0xF00u) != 0) {
        RSR = 0;
    }
    *byte = (uint8_t)data;
    return 1;
}

void mt_uart_send(uint8_t byte)
{
    while ((FR & FR_TXFF) != 0) {
    }
    DR = byte;
}

void mt_uart_flush(void)
{
    while ((FR & FR_BUSY) != 0) {
    }
}
