/* Pins of STM32 F1, in their default functions (no remapping). RM0008, 9.2; RM0041 (F100), 7.2. */
#include "mt_board.h"
#include "mt_ports.h"

#define PORT_BYTES 0x400u
#define CRL 0x00u
#define BSRR 0x10u

#define ALTERNATE_PUSH_PULL 0xBu /* at up to 50 MHz */
#define INPUT_PULLED 0x8u        /* up, if the output's bit is set */

static void connect(uint32_t pin, uint32_t mode)
{
    const uint32_t port = MT_PINS_BASE + pin / 32u * PORT_BYTES, number = pin % 32u;
    const uint32_t half = CRL + number / 8u * 4u, four = number % 8u * 4u;
    MT_REGISTER(MT_PINS_ENABLE) |= 1u << (MT_PINS_ENABLE_BIT + pin / 32u);
    (void)MT_REGISTER(MT_PINS_ENABLE);
    MT_REGISTER(port + BSRR) = 1u << number;
    MT_REGISTER(port + half) = (MT_REGISTER(port + half) & ~(15u << four)) | mode << four;
}

void mt_pins_init(void)
{
    connect(MT_UART_TX, ALTERNATE_PUSH_PULL);
    connect(MT_UART_RX, INPUT_PULLED);
}
