/* Internal to mtool: applications include mtool.h. */
/* Run the model, and measure it. */
#ifndef MT_WORK_H
#define MT_WORK_H

#include <stddef.h>
#include <stdint.h>

#include "mt_functions.h"
#include "mtool.h"

/* Instead of an operator's number: the whole model. */
#define MT_NO_OPERATOR 0xFFFFu

struct mt_work {
    uint64_t elapsed_ns;    /* of all runs, if they were timed and succeeded; otherwise 0 */
    uint32_t stack_bytes;   /* used below the caller's frame, the timer included; 0 if `stack_low` is NULL */
    int32_t result;         /* the model's result; for MT_DEVICE, the device's own status */
    uint16_t where;         /* the operator that failed, or MT_NO_OPERATOR */
    uint32_t fed_bytes;     /* of the streamed input, for the current inference */
    uint64_t fed_ns;        /* the time spent on them so far */
    int32_t fed_status;     /* the timer's status for that time */
    uint32_t fed_stack;     /* stack use, as in stack_bytes */
};

/* `stack_low` is the stack's lowest address, or NULL. All return MT_MODEL if the model failed, with its result. */

/* Run the model once, through its entry point. */
int32_t mt_work_run(const struct mt_model *model, uint8_t *stack_low, struct mt_work *work);

/* Run the model once, operator by operator, so that mt_work_operator is the running one.
 * MT_STACK_OVERFLOW: after an operator, the lowest bytes of the stack were overwritten. */
int32_t mt_work_steps(const struct mt_model *model, uint8_t *stack_low, struct mt_work *work);

/* Run the operator `number`, or with MT_NO_OPERATOR the model, `count` times under the timer.
 * MT_TIMER_OVERFLOW and other statuses of the timer. */
int32_t mt_work_time(const struct mt_model *model, uint16_t number, uint32_t count, uint8_t *stack_low,
                     struct mt_work *work);

/* Pass bytes of its stream to a model that has one, from the byte `offset` on: 0 begins an inference, otherwise it is
 * the end of the last bytes. Each row is processed when it is complete. The first mt_work_run or mt_work_time after
 * them ends the inference, and the time and the stack are those of all of it; if mt_work_time runs the model more
 * than once, the later runs receive the last row repeatedly.
 * MT_BAD_ORDER: earlier bytes are missing. MT_BAD_RANGE: there are more bytes than remain. */
int32_t mt_work_feed(const struct mt_model *model, uint32_t offset, const uint8_t *bytes, size_t count,
                     uint8_t *stack_low, struct mt_work *work);

/* Call one of the functions of a model that has some, as mt_functions_invoke does. */
int32_t mt_work_invoke(const struct mt_model *model, const uint8_t *request, size_t count, uint8_t *stack_low,
                       struct mt_work *work, struct mt_returned *returned);

/* Return the operator that is running, or ran when a fault occurred; MT_NO_OPERATOR: unknown. */
uint16_t mt_work_operator(void);

#endif
