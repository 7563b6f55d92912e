/* Runs a device's simulator on this computer, with input and output files. */
#ifndef @NAME@_SIMULATOR_H
#define @NAME@_SIMULATOR_H

#include <stddef.h>
#include <stdint.h>

/* One run of a simulator. Its command ends with NULL; it runs in an empty folder with model.bin, input0.bin, ..., and
 * has to write output0.bin, ... of exactly these bytes within the seconds. */
struct @NAME@_job {
    const char *const *command;
    const uint8_t *binary;
    uint32_t binary_bytes;
    const void *const *inputs;
    const uint32_t *input_bytes;
    int32_t input_count;
    void *const *outputs;
    const uint32_t *output_bytes;
    int32_t output_count;
    uint32_t limit_s;
};

/* Run it. Returns 0; or 1 if a file can't be written, 2 if the simulator failed or took too long, 3 if a result is
 * missing or has another size; standard error has the reason. */
int32_t @NAME@_simulate(const struct @NAME@_job *job);

#endif
