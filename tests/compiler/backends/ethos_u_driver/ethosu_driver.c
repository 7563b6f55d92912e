/*
 * A stand-in for the Ethos-U core driver: it checks all addresses and sizes that the command stream names against the
 * memories that it gets and against expected.h, and then has mtool's C of the same region compute it (standin.h).
 */
#include "ethosu_driver.h"

#include "expected.h"
#include "standin.h"

#define MEMORIES 8

/* Registers: of the commands with 16 bits, and of those with 32 bits more (bit 14). */
enum {
    IFM_REGION = 0x10f, OFM_REGION = 0x11f, WEIGHT_REGION = 0x128, SCALE_REGION = 0x129, SOURCE_REGION = 0x130,
    TARGET_REGION = 0x131, IFM2_REGION = 0x18f,
    IFM_BASE = 0x000, OFM_BASE = 0x010, WEIGHT_BASE = 0x020, WEIGHT_LENGTH = 0x021, SCALE_BASE = 0x022,
    SCALE_LENGTH = 0x023, SOURCE = 0x030, TARGET = 0x031, LENGTH = 0x032, IFM2_BASE = 0x080
};
enum { STOP = 0x000, DMA_START = 0x010, CONV = 0x002, DEPTHWISE = 0x003, POOL = 0x005, ELEMENTWISE = 0x006 };

static struct ethosu_driver driver;
static uint32_t numbers[0x400], places[0x400];
static const size_t *sizes;
static int memories;

struct ethosu_driver *ethosu_reserve_driver(void)
{
    driver.reserved++;
    return driver.reserved == 1 ? &driver : NULL;
}

void ethosu_release_driver(struct ethosu_driver *reserved)
{
    reserved->reserved--;
}

static int is_inside(uint32_t memory, uint32_t first, uint32_t count)
{
    return (int)memory < memories && count <= sizes[memory] && first <= sizes[memory] - count;
}

/* Return 0 if all that an operation reads and writes lies inside of its memories. */
static int check(uint32_t operation)
{
    if (operation == DMA_START) {
        const int target = numbers[TARGET_REGION] & 0x100u /* inside of the NPU */ ||
                           is_inside(numbers[TARGET_REGION], places[TARGET], places[LENGTH]);
        return is_inside(numbers[SOURCE_REGION], places[SOURCE], places[LENGTH]) && target ? 0 : -10;
    }
    if (!is_inside(numbers[IFM_REGION], places[IFM_BASE], 1) || !is_inside(numbers[OFM_REGION], places[OFM_BASE], 1))
        return -11;
    if (operation == ELEMENTWISE && !is_inside(numbers[IFM2_REGION], places[IFM2_BASE], 0))
        return -12;
    if ((operation == CONV || operation == DEPTHWISE) &&
        (!is_inside(numbers[WEIGHT_REGION], places[WEIGHT_BASE], places[WEIGHT_LENGTH]) ||
         !is_inside(numbers[SCALE_REGION], places[SCALE_BASE], places[SCALE_LENGTH])))
        return -13;
    return 0;
}

static uint32_t word(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Return the number of operations of a command stream, or less than 0. */
static int walk(const uint8_t *at, const uint8_t *end)
{
    int operations = 0;
    while (at + 4 <= end) {
        const uint32_t command = word(at), code = command & 0x3ffu;
        at += 4;
        if (command & 0x4000u) {
            if (at + 4 > end)
                return -20;
            places[code] = word(at);
            at += 4;
        } else if (code >= 0x100) {
            numbers[code] = command >> 16;
        } else if (code == STOP) {
            return at == end ? operations : -21;
        } else if (code == DMA_START || code == CONV || code == DEPTHWISE || code == POOL || code == ELEMENTWISE) {
            const int status = check(code);
            if (status != 0)
                return status;
            operations++;
        }
    }
    return -22;
}

int ethosu_invoke_v3(struct ethosu_driver *reserved, const void *custom_data, const int custom_data_size,
                     uint64_t *const base_addr, const size_t *base_addr_size, const int num_base_addr, void *user_arg)
{
    static const size_t expected[] = EXPECTED_SIZES;
    const uint8_t *at = custom_data, *const end = at + custom_data_size;
    (void)user_arg;
    if (reserved != &driver || reserved->reserved != 1)
        return -1;
    if (custom_data_size != EXPECTED_COMMANDS || (uintptr_t)custom_data % 16 != 0)
        return -2;
    if (num_base_addr != (int)(sizeof expected / sizeof *expected) || num_base_addr > MEMORIES)
        return -3;
    for (int i = 0; i < num_base_addr; i++)
        if (base_addr_size[i] != expected[i] || base_addr[i] == 0 || base_addr[i] % 16 != 0)
            return -4;
    if (at[0] != 'C' || at[1] != 'O' || at[2] != 'P' || at[3] != '1')
        return -5;
    sizes = base_addr_size;
    memories = num_base_addr;
    for (at += 4; at + 4 <= end; at += 4) {
        const uint32_t action = word(at), length = (action & 0xff00u) << 8 | action >> 16;
        if ((action & 0xffu) == 1) { /* of which machine it is */
            if (1u << (word(at + 4) & 15u) != EXPECTED_MACS)
                return -7;
            at += 8;
        } else if ((action & 0xffu) == 2) { /* the command stream */
            const int operations = walk(at + 4, at + 4 + 4 * (size_t)length);
            if (operations < EXPECTED_OPERATIONS || at + 4 + 4 * (size_t)length != end)
                return operations < 0 ? operations : -6;
            break;
        }
    }
    uint8_t *const memory = (uint8_t *)(uintptr_t)base_addr[EXPECTED_MEMORY];
    const struct standin_inputs inputs = {(void *)(memory + EXPECTED_INPUT)};
    const struct standin_outputs outputs = {(void *)(memory + EXPECTED_OUTPUT)};
    return (int)standin_run(&inputs, &outputs);
}
