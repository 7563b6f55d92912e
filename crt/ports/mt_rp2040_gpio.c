/* Pins of RP2040 as those of a UART (function 2). RP2040 datasheet, 2.14 (RESETS), 2.19.2 and 2.19.6. */
#include "mt_board.h"
#include "mt_ports.h"

#define RESETS_RESET MT_REGISTER(0x4000C000u)
#define RESETS_DONE MT_REGISTER(0x4000C008u)
#define IO_BANK0 (1u << 5)
#define PADS_BANK0 (1u << 8)
#define CTRL(pin) MT_REGISTER(0x40014000u + 8u * (pin) + 4u)
#define PAD(pin) MT_REGISTER(0x4001C000u + 4u * (pin) + 4u)

#define FUNCTION_UART 2u
#define PAD_OUTPUT 0x52u /* input enabled, 4 mA, Schmitt trigger */
#define PAD_INPUT 0x4Au  /* input enabled, pulled up, Schmitt trigger */

void mt_pins_init(void)
{
    RESETS_RESET &= ~(IO_BANK0 | PADS_BANK0);
    while ((RESETS_DONE & (IO_BANK0 | PADS_BANK0)) != (IO_BANK0 | PADS_BANK0)) {
    }
    PAD(MT_UART_TX) = PAD_OUTPUT;
    PAD(MT_UART_RX) = PAD_INPUT;
    CTRL(MT_UART_TX) = FUNCTION_UART;
    CTRL(MT_UART_RX) = FUNCTION_UART;
}
