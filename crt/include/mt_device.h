/* Devices that compute regions of a model: how they fail, and what is called around their work.
 *
 * A region's C function may return a status: 0, or a number of the device's own. Then the inference ends, whoever runs
 * it, with MT_DEVICE (mt_status.h), and <model>_failure says what failed.
 *
 * A backend may name functions of type `int32_t f(void)`, which return 0 or a status that ends the inference alike:
 *
 *     activate    once before the first inference: power, clocks
 *     open        once after that: firmware, queues
 *     before      before each inference: not before each region
 *     after       after each inference, also after one that failed
 *     close       at <model>_close
 *     deactivate  after that
 *
 * Functions of a backend that says so are of type `int32_t f(void *resource)`, and its regions know `resource` too: what
 * the model's caller gave (--interface-api pointers, packed functions), NULL where it has none to give. What is opened
 * stays open when another resource is given: <model>_close first, if that is another device.
 *
 * Regions that name the same function for the same occasion share one call. An activate or open that failed is called
 * again by the next inference. <model>_close lets go of the devices; the next inference activates them again. */
#ifndef MT_DEVICE_H
#define MT_DEVICE_H

#include <stdint.h>

#include "mt_status.h"

/* How a piece of one of the board's memories is declared that regions have besides the arena, or that is a pool of an
 * arena in several memories: in a section of its own, ".bss.mt_lent.<memory>", which a linker script has to put there.
 * What it begins with is undefined. */
#ifndef MT_LENT_SECTION
#define MT_LENT_SECTION(memory) ".bss.mt_lent." #memory
#endif
#define MT_LENT(memory, alignment) MT_PLACED(MT_LENT_SECTION(memory), alignment)

/* The same in a section by its name. */
#if defined(__GNUC__) && defined(__ELF__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment), section(name)))
#elif defined(__GNUC__)
#define MT_PLACED(name, alignment) __attribute__((aligned(alignment)))
#else
#define MT_PLACED(name, alignment)
#endif

/* What failed last. */
struct mt_device_failure {
    const char *region; /* the region whose function, or a hook for which, failed; NULL: none has */
    const char *nodes;  /* the model's nodes that it computes */
    int32_t status;     /* what the function returned */
    uint16_t number;    /* of the model's operator that it is, or that it stands in */
    uint16_t key;       /* no other region's: the operator's number, or one behind all operators' */
};

#endif
