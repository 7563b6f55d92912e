/* The 64 MHz (nRF51: 16 MHz) clock of nRF51 and nRF52 from the crystal: the internal oscillator is too inaccurate for a UART
 * over all temperatures. nRF51 Series Reference Manual 3.0, ch. 13; nRF52840 PS 1.7, 5.4. */
#include "mt_board.h"
#include "mt_ports.h"

#define HFCLKSTART MT_REGISTER(MT_CLOCK_BASE + 0x000u)
#define HFCLKSTARTED MT_REGISTER(MT_CLOCK_BASE + 0x100u)

void mt_clock_init(void)
{
    HFCLKSTARTED = 0;
    HFCLKSTART = 1;
    while (HFCLKSTARTED == 0) {
    }
}
