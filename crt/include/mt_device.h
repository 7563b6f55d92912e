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
 * Regions that name the same function for the same occasion share one call. An activate or open that failed is called
 * again by the next inference. <model>_close lets go of the devices; the next inference activates them again. */
#ifndef MT_DEVICE_H
#define MT_DEVICE_H

#include <stdint.h>

#include "mt_status.h"

/* What failed last. */
struct mt_device_failure {
    const char *region; /* the region whose function, or a hook for which, failed; NULL: none has */
    const char *nodes;  /* the model's nodes that it computes */
    int32_t status;     /* what the function returned */
    uint16_t number;    /* the region's among the model's operators */
};

#endif
