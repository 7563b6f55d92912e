/* Pins of nRF51 and nRF52 for a UART, which drives and reads them once they are set up. nRF51 Series Reference Manual 3.0,
 * 14.2 and 29.6; nRF52840 PS 1.7, 6.9.2 and 6.33.2. */
#include "mt_board.h"
#include "mt_ports.h"

#define PORT_BYTES 0x300u
#define OUTSET 0x508u
#define PIN_CNF 0x700u

#define OUTPUT 0x3u /* its input is not connected */
#define INPUT_PULLED_UP 0xCu

void mt_pins_init(void)
{
    const uint32_t tx = MT_PINS_BASE + MT_UART_TX / 32u * PORT_BYTES, rx = MT_PINS_BASE + MT_UART_RX / 32u * PORT_BYTES;
    MT_REGISTER(tx + OUTSET) = 1u << MT_UART_TX % 32u;
    MT_REGISTER(tx + PIN_CNF + 4u * (MT_UART_TX % 32u)) = OUTPUT;
    MT_REGISTER(rx + PIN_CNF + 4u * (MT_UART_RX % 32u)) = INPUT_PULLED_UP;
}
