/* The flash of an RP2040, by the functions of its ROM; it can't be read meanwhile, so this runs from RAM without interrupts.
 * RP2040 datasheet, 2.8.3.1.3 (flash functions) and 2.8.3 (look-up). */
#include "mt_board.h"
#include "mt_ports.h"
#include "mtool.h"

#define FLASH_AT 0x10000000u
#define PAGE_BYTES 256u
#define BLOCK_BYTES 65536u
#define BLOCK_ERASE 0xD8u
#define IN_RAM __attribute__((noinline, long_call, section(".data.mt_in_ram")))

struct rom {
    void (*connect)(void);
    void (*leave_xip)(void);
    void (*erase)(uint32_t offset, uint32_t count, uint32_t block, uint8_t command);
    void (*program)(uint32_t offset, const uint8_t *bytes, uint32_t count);
    void (*flush_cache)(void);
    void (*enter_xip)(void);
};

static uintptr_t half_at(uintptr_t address)
{
    __asm__("" : "+r"(address)); /* the compiler takes addresses near zero for mistakes */
    return *(const volatile uint16_t *)address;
}

static uintptr_t find(char first, char second)
{
    typedef uintptr_t look_up(const uint16_t *table, uint32_t code);
    look_up *const look = (look_up *)half_at(0x18u);
    return look((const uint16_t *)half_at(0x14u), (uint32_t)second << 8 | (uint32_t)first);
}

static struct rom functions(void)
{
    return (struct rom){
        .connect = (void (*)(void))find('I', 'F'),
        .leave_xip = (void (*)(void))find('E', 'X'),
        .erase = (void (*)(uint32_t, uint32_t, uint32_t, uint8_t))find('R', 'E'),
        .program = (void (*)(uint32_t, const uint8_t *, uint32_t))find('R', 'P'),
        .flush_cache = (void (*)(void))find('F', 'C'),
        .enter_xip = (void (*)(void))find('C', 'X'),
    };
}

/* Erase `count` bytes, or program them if there are `bytes`, which are in RAM. */
IN_RAM static void change(const struct rom *rom, uint32_t offset, const uint8_t *bytes, uint32_t count)
{
    uint32_t mask;
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(mask) : : "memory");
    rom->connect();
    rom->leave_xip();
    if (bytes) {
        rom->program(offset, bytes, count);
    } else {
        rom->erase(offset, count, BLOCK_BYTES, BLOCK_ERASE);
    }
    rom->flush_cache();
    rom->enter_xip();
    __asm__ volatile("msr primask, %0" : : "r"(mask) : "memory");
}

int32_t mt_flash_erase(uint32_t address)
{
    const struct rom rom = functions();
    change(&rom, address - FLASH_AT, 0, MT_FLASH_SECTOR);
    return MT_OK;
}

/* By pages: what is not to be programmed in one is written as ones, which changes nothing. */
int32_t mt_flash_program(uint32_t address, const uint8_t *bytes, uint32_t count)
{
    const struct rom rom = functions();
    for (uint32_t i = 0; i < count;) {
        uint8_t page[PAGE_BYTES];
        const uint32_t first = (address + i) % PAGE_BYTES;
        for (uint32_t at = 0; at < PAGE_BYTES; ++at) {
            page[at] = at >= first && i + at - first < count ? bytes[i + at - first] : 0xFFu;
        }
        change(&rom, address + i - first - FLASH_AT, page, PAGE_BYTES);
        i += PAGE_BYTES - first;
    }
    for (uint32_t i = 0; i < count; ++i) { /* the ROM reports no error */
        if (*(const volatile uint8_t *)(uintptr_t)(address + i) != bytes[i]) {
            return MT_IO;
        }
    }
    return MT_OK;
}
