/* Alternate functions of pins on STM32 F2, F4, F7, L4, H7 and later. RM0090 (F4), 8.4; RM0433 (H7), 11.4. */
#include "mt_board.h"
#include "mt_ports.h"

#define PORT_BYTES 0x400u
#define MODER 0x00u
#define PUPDR 0x0Cu
#define AFRL 0x20u

#define ALTERNATE 2u
#define PULL_UP 1u

static void connect(uint32_t pin, uint32_t pull)
{
    const uint32_t port = MT_PINS_BASE + pin / 32u * PORT_BYTES, number = pin % 32u, two = 2u * number;
    const uint32_t function = AFRL + number / 8u * 4u, four = number % 8u * 4u;
    MT_REGISTER(MT_PINS_ENABLE) |= 1u << (MT_PINS_ENABLE_BIT + pin / 32u);
    (void)MT_REGISTER(MT_PINS_ENABLE); /* the clock needs two cycles */
    MT_REGISTER(port + function) = (MT_REGISTER(port + function) & ~(15u << four)) | (uint32_t)MT_PINS_FUNCTION << four;
    MT_REGISTER(port + PUPDR) = (MT_REGISTER(port + PUPDR) & ~(3u << two)) | pull << two;
    MT_REGISTER(port + MODER) = (MT_REGISTER(port + MODER) & ~(3u << two)) | ALTERNATE << two;
}

void mt_pins_init(void)
{
#ifdef MT_PINS_SUPPLY /* of PG2 to PG15 of an L4: RM0432, 5.1.2 */
    MT_REGISTER(MT_PINS_SUPPLY_ENABLE) |= 1u << MT_PINS_SUPPLY_ENABLE_BIT;
    (void)MT_REGISTER(MT_PINS_SUPPLY_ENABLE);
    MT_REGISTER(MT_PINS_SUPPLY) |= 1u << MT_PINS_SUPPLY_BIT;
#endif
    connect(MT_UART_TX, 0);
    connect(MT_UART_RX, PULL_UP);
}
