/* Modules in the slots of a chip's flash, for tests/crt/test_power.py, which runs this on a model of the chip's registers
 * and cuts the power. */
#include <string.h>

#include "mt_slots.h"
#include "mtool.h"

#define DAMAGED 0xFFFFFFFFu

uint32_t boot(void);
uint32_t found(uint32_t name);
uint32_t counter(uint32_t name);
uint32_t load(uint32_t name, uint32_t number, uint32_t bytes);

static struct mt_slots slots;
volatile uint32_t is_committing;

static uint8_t byte_of(uint32_t number, uint32_t at)
{
    return at % 97u < 9u ? 0xFFu : (uint8_t)(number * 31u + at * 7u + (at >> 8));
}

uint32_t boot(void)
{
    is_committing = 0;
    return (uint32_t)mt_slots_open(&slots, mt_port_storage(), 2001);
}

/* The number of a name's module; 0: it has none. */
uint32_t found(uint32_t name)
{
    for (uint8_t slot = 0; slot < slots.count; ++slot) {
        uint32_t bytes = 0, number;
        const uint8_t *const module = mt_slots_active(&slots, slot, &bytes);
        if (module != NULL && slots.records[slot]->name == name) {
            memcpy(&number, slots.records[slot]->identity, sizeof number);
            for (uint32_t i = 0; i < bytes; ++i) {
                if (module[i] != byte_of(number, i)) {
                    return DAMAGED;
                }
            }
            return number;
        }
    }
    return 0;
}

uint32_t counter(uint32_t name)
{
    return mt_slots_counter(&slots, name);
}

uint32_t load(uint32_t name, uint32_t number, uint32_t bytes)
{
    uint8_t identity[MT_SLOTS_IDENTITY_BYTES] = {0}, piece[100];
    uint32_t there = 0;
    memcpy(identity, &number, sizeof number);
    int32_t status = mt_slots_begin(&slots, identity, name, bytes, &there);
    while (status == MT_OK && there < bytes) {
        const uint32_t count = bytes - there < sizeof piece ? bytes - there : (uint32_t)sizeof piece;
        for (uint32_t i = 0; i < count; ++i) {
            piece[i] = byte_of(number, there + i);
        }
        status = mt_slots_write(&slots, there, piece, count);
        there += count;
    }
    is_committing = 1;
    return (uint32_t)(status == MT_OK ? mt_slots_commit(&slots, number, 0) : status);
}
