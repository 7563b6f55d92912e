/* Pins of SAM3 as those of peripheral A: the PIO gives them up. SAM3X datasheet (Atmel-11057), 31.5.3 and 31.7. */
#include "mt_board.h"
#include "mt_ports.h"

#define PORT_BYTES 0x200u
#define PDR 0x04u
#define PUER 0x64u
#define ABSR 0x70u

static void connect(uint32_t pin)
{
    const uint32_t port = MT_PINS_BASE + pin / 32u * PORT_BYTES, bit = 1u << pin % 32u;
    MT_REGISTER(port + PUER) = bit;
    MT_REGISTER(port + ABSR) &= ~bit;
    MT_REGISTER(port + PDR) = bit;
}

void mt_pins_init(void)
{
    connect(MT_UART_TX);
    connect(MT_UART_RX);
}
