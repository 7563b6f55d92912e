/* The second stage of RP2040's boot, the first 256 bytes of flash, which the ROM copies to RAM and runs: flash is read with
 * command 03h at a quarter of the system clock, which every chip understands; then the firmware starts, 256 bytes into the
 * flash. RP2040 datasheet, 2.8.1.3 (the checksum), 4.10.13 (SSI).
 *
 *     SSIENR = 0; BAUDR = 4;
 *     CTRLR0 = 0x001F0300;      frames of 32 bits, EEPROM read
 *     SPI_CTRLR0 = 0x03000218;  command 03h of 8 bits, 24 address bits
 *     CTRLR1 = 0; SSIENR = 1;
 *     VTOR = 0x10000100; msp = VTOR[0]; pc = VTOR[1]; */
#include <stdint.h>

#include "mt_board.h"

extern const uint32_t mt_boot2[64];
__attribute__((section(".boot2"), used)) const uint32_t mt_boot2[64] = {
    0x20004B0Au, 0x20046098u, 0x48096158u, 0x48096018u, 0x60084909u, 0x60582000u,
    0x60982001u, 0x49084807u, 0xC80C6008u, 0x8808F382u, 0x00004718u, 0x18000000u,
    0x001F0300u, 0x03000218u, 0x180000F4u, 0x10000100u, 0xE000ED08u,
    [63] = 0xA4C46FC5u, /* CRC-32 of the 252 bytes before: polynomial 0x04C11DB7, no reflection, starts from ones */
};
