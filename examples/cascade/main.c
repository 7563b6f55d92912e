/* A cascade: a small model looks at each image, and calls the large one only if it is not sure. */
#include <stdio.h>
#include <string.h>

#include "gate_digits.h"

/* The gate's answer is used if its best score is this far above the second, in int8 steps. */
#define SURE 25

/* The index of the largest score; *margin is its distance to the second. */
static int32_t largest(const int8_t *scores, int32_t *margin)
{
    int32_t best = 0, second = -128;
    for (int32_t i = 1; i < 10; ++i) {
        if (scores[i] > scores[best]) {
            second = scores[best];
            best = i;
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    *margin = scores[best] - second;
    return best;
}

int main(void)
{
    uint8_t read[GATE_IMAGE_COUNT + 1]; /* an image and its label; on a device: from the sensor */
    int32_t images = 0, passed = 0, right = 0;
    int status = 0;
    while (status == 0 && fread(read, sizeof read, 1, stdin) == 1) {
        int32_t margin;
        memcpy(gate_arena_inputs.image, read, GATE_IMAGE_COUNT);
        status = (int)gate_run(&gate_arena_inputs, &gate_arena_outputs);
        int32_t digit = largest(gate_arena_outputs.scores, &margin);
        if (status == 0 && margin < SURE) { /* the gate's tensors are no longer needed: both models share the arena */
            ++passed;
            memcpy(digits_arena_inputs.image, read, GATE_IMAGE_COUNT);
            status = (int)digits_run(&digits_arena_inputs, &digits_arena_outputs);
            digit = largest(digits_arena_outputs.scores, &margin);
        }
        ++images;
        right += digit == read[GATE_IMAGE_COUNT];
    }
    printf("%d images, %d right; the large model ran for %d\n", (int)images, (int)right, (int)passed);
    return status;
}
