/* The Wren, an invented NPU: its registers, its commands, and its interrupt.
 *
 * It has 128 KB of memory of its own, accessible only to its DMA. On silicon the registers lie at an address; here
 * they are a variable, and wren_device.c emulates the silicon: nothing else uses wren_device_clock. */
#ifndef WREN_DEVICE_H
#define WREN_DEVICE_H

#include <stdint.h>

enum { WREN_MEMORY_BYTES = 131072, WREN_COMMAND_WORDS = 32, WREN_COMMAND_ADDRESS = 131072 - 128 };

/* Values for `control`; it becomes 0 when the device has begun. */
enum { WREN_IDLE = 0, WREN_DMA_IN = 1, WREN_DMA_OUT = 2, WREN_RUN = 3 };

/* Values of `cause` when the interrupt is raised; write 0 to acknowledge it. */
enum { WREN_DONE = 1, WREN_BAD_ADDRESS = 2, WREN_BAD_COMMAND = 3 };

struct wren_registers {
    volatile uint32_t control;
    volatile uint32_t cause;
    volatile uintptr_t host;     /* DMA: the address in the host's memory */
    volatile uint32_t address;   /* the address in the device's memory; for WREN_RUN, of the command */
    volatile uint32_t bytes;
};

extern struct wren_registers wren_registers;

/* The interrupt handler, defined by the driver. */
void wren_interrupt(void);

/* Advance the device's time; silicon needs no call. */
void wren_device_clock(void);

/* A command: 32 words, in the device's memory. Images are rows, columns, channels; addresses are the device's. */
enum wren_operation { WREN_LOAD = 1, WREN_CONV, WREN_DEPTHWISE, WREN_AVERAGE, WREN_MAXIMUM, WREN_ADD, WREN_TABLE,
                      WREN_CLIP, WREN_SOFTMAX, WREN_MOVE };
enum wren_type { WREN_INT8 = 0, WREN_FLOAT16 = 1 };

/* Scaling of int8 sums: by float32, ties to even; or by a 31-bit multiplier and a power of two, rounded to 31 bits
 * before the shift, or once; or by float64, ties away from zero. WREN_ADD has three consecutive pairs of multiplier
 * and exponent at `scale`, a convolution one per channel, or a float64. A mean then is the integers' own, ties away
 * from zero. */
enum wren_rounding { WREN_REAL = 0, WREN_TWICE = 1, WREN_ONCE = 2, WREN_AWAY = 3 };

struct wren_command {
    int32_t operation;             /* WREN_LOAD is the driver's: offset in the binary, bytes, address in words 1 to 3 */
    int32_t type;
    int32_t input, output;         /* addresses */
    int32_t weights, bias, scale;  /* addresses; WREN_ADD: `weights` is the second input; pools: `scale` is a float;
                                      WREN_SOFTMAX: exponentials of -255 … 0 steps, 31 bits behind the point */
    int32_t rows, columns, channels;
    int32_t out_rows, out_columns, out_channels;
    int32_t kernel[2], strides[2]; /* WREN_ADD: the scales of both inputs and the output, the second's zero point;
                                      WREN_MOVE: how far elements of the input lie apart, by the output's dimensions */
    int32_t pads[2];               /* above, on the left; WREN_MOVE: the output's first dimensions */
    int32_t dilations[2];          /* WREN_MOVE: its last ones */
    int32_t input_zero, output_zero;
    int32_t low, high;             /* of the result: integers, or float32 as their bits */
    int32_t rounding;
    int32_t unused[6];
};

#endif
