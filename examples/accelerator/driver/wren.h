/* The driver of the Wren. */
#ifndef WREN_H
#define WREN_H

#include <stdint.h>

/* Statuses of wren_run. */
enum wren_status {
    WREN_OK = 0,
    WREN_BAD_BINARY = 1, /* not a Wren binary, or another version */
    WREN_FAULT = 2,      /* the device refused an address or a command */
    WREN_SILENT = 3      /* it does not answer */
};

/* Initialize the device before the first inference: it is idle, and its interrupt works. */
int32_t wren_open(void);

/* Compute a region from its model binary. Inputs and outputs are in the order of its nodes file; `scratch` is not
 * used. */
int32_t wren_run(const uint8_t *binary, const void *const *inputs, void *const *outputs, void *scratch);

#endif
