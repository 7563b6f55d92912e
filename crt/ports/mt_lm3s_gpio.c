/* Pins of TI's Stellaris LM3S in their alternate function. LM3S6965 datasheet, 8.5 (GPIOAFSEL, GPIODEN). */
#include "mt_board.h"
#include "mt_ports.h"

#define PORT_BYTES 0x1000u
#define AFSEL 0x420u
#define DEN 0x51Cu

static void connect(uint32_t pin)
{
    const uint32_t port = MT_PINS_BASE + pin / 32u * PORT_BYTES, bit = 1u << pin % 32u;
    MT_REGISTER(MT_PINS_ENABLE) |= 1u << (MT_PINS_ENABLE_BIT + pin / 32u);
    (void)MT_REGISTER(MT_PINS_ENABLE);
    MT_REGISTER(port + AFSEL) |= bit;
    MT_REGISTER(port + DEN) |= bit;
}

void mt_pins_init(void)
{
    connect(MT_UART_TX);
    connect(MT_UART_RX);
}
