/* Run the model, and measure it. */
#ifndef MT_WORK_H
#define MT_WORK_H

#include <stdint.h>

#include "mt_model.h"

/* Run the model once. *result is what it returned; *stack_bytes is how deep its stack went below the
 * caller's, 0 if `stack_low` (the stack's lowest address) is NULL.
 * MT_MODEL: the model failed. */
int32_t mt_work_call(const struct mt_model *model, uint8_t *stack_low, int32_t *result, uint32_t *stack_bytes);

/* Run the model `number` times; *elapsed_ns is the time of all of them, 0 unless MT_OK. *stack_bytes has the
 * timer's functions in it too.
 * MT_MODEL: it failed, with *result. MT_TIMER_OVERFLOW and other statuses of the timer. */
int32_t mt_work_time(const struct mt_model *model, uint32_t number, uint8_t *stack_low, int32_t *result,
                     uint32_t *stack_bytes, uint64_t *elapsed_ns);

#endif
