/* A superloop that recognizes a digit, without delaying its other work by a whole inference. */
#include <stdio.h>
#include <string.h>

#include "digits_int8.h"

/* An 8 x 8 image of a 7, 0 to 16. */
static const int8_t seven[DIGITS_INT8_IMAGE_COUNT] = {
    0, 0, 7,  16, 16, 16, 10, 0, //
    0, 0, 12, 13, 8,  14, 14, 0, //
    0, 0, 1,  0,  1,  14, 8,  0, //
    0, 0, 4,  8,  11, 16, 6,  0, //
    0, 0, 12, 16, 16, 14, 8,  0, //
    0, 0, 2,  14, 11, 0,  0,  0, //
    0, 0, 5,  16, 4,  0,  0,  0, //
    0, 0, 9,  15, 1,  0,  0,  0, //
};

static int32_t ticks;

/* What can't wait: a watchdog, a sensor's queue, a button. Here it counts its calls. */
static void other_work(void)
{
    ++ticks;
}

static int32_t largest(const int8_t *scores)
{
    int32_t best = 0;
    for (int32_t i = 1; i < DIGITS_INT8_SCORES_COUNT; ++i) {
        best = scores[i] > scores[best] ? i : best;
    }
    return best;
}

int main(void)
{
    int32_t inferences = 0;
    memcpy(digits_int8_arena_inputs.image, seven, sizeof seven);
    int32_t status = digits_int8_begin(&digits_int8_arena_inputs, &digits_int8_arena_outputs);
    while (status == 0 && inferences < 3) { /* on a device: forever */
        other_work();
        status = digits_int8_step();
        if (status == 0 && digits_int8_done()) {
            ++inferences;
            printf("a %d, after %d turns of the other work\n", (int)largest(digits_int8_arena_outputs.scores), (int)ticks);
            memcpy(digits_int8_arena_inputs.image, seven, sizeof seven); /* the inference may have overwritten it */
            status = digits_int8_begin(&digits_int8_arena_inputs, &digits_int8_arena_outputs);
        }
    }
    return (int)status;
}
