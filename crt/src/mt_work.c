/* In a file of its own, so that no compiler merges these frames with the server's: stack use is measured from here. */
#include "mt_work.h"

#include <string.h>

#include "mt_bytes.h"
#include "mtool.h"
#include "mt_stack.h"

static volatile uint16_t running = MT_NO_OPERATOR;

#ifdef MT_PROTECT
static int32_t stopped; /* MT_OK, or why the last call of the model did not finish */

/* Call one of the model's functions under memory protection. */
static int32_t protected_call(const struct mt_model *model, mt_protect_function *function, uintptr_t first, uintptr_t second)
{
    int32_t result = 0;
    const int32_t status = mt_protect_call(model->areas, model->area_count, function, first, second, &result);
    stopped = status;
    return status == MT_OK ? result : status;
}

/* The status to return if the model did not return 0. */
#define FAILED (stopped != MT_OK ? stopped : MT_MODEL)
#define CALL(model, function, first, second) protected_call((model), (mt_protect_function *)(function), (first), (second))
#define RUN(model) CALL(model, (model)->run, (uintptr_t)(model), 0)
#define STEP(model, number) CALL(model, (model)->step, (uintptr_t)(model), number)
#define BEGIN(model) CALL(model, (model)->stream->begin, 0, 0)
#define FEED(model) CALL(model, (model)->stream->feed, 0, 0)
#else
#define FAILED MT_MODEL
#define RUN(model) (model)->run(model)
#define STEP(model, number) (model)->step(model, number)
#define BEGIN(model) (model)->stream->begin()
#define FEED(model) (model)->stream->feed()
#endif

/* The status for a result that the model returned. */
static int32_t status_of(const struct mt_work *work)
{
    return work->result == 0 ? MT_OK : FAILED;
}

static void begin(struct mt_work *work, uint8_t *stack_low)
{
    work->elapsed_ns = 0;
    work->stack_bytes = 0;
    work->result = 0;
    work->where = MT_NO_OPERATOR;
    mt_stack_paint(stack_low);
}

/* Record the failed operator, and its own status if it is a device's. */
static void note_device(const struct mt_model *model, struct mt_work *work)
{
    if (work->result == MT_DEVICE && model->failure != NULL) {
        work->result = model->failure->status;
        work->where = model->failure->key;
    }
}

static uint32_t larger(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

int32_t mt_work_run(const struct mt_model *model, uint8_t *stack_low, struct mt_work *work)
{
    const volatile uint8_t top = 0;
    begin(work, stack_low);
    work->result = RUN(model);
    work->stack_bytes = larger(mt_stack_used(stack_low, &top), model->stream != NULL ? work->fed_stack : 0);
    note_device(model, work);
    return status_of(work);
}

int32_t mt_work_steps(const struct mt_model *model, uint8_t *stack_low, struct mt_work *work)
{
    const volatile uint8_t top = 0;
    int32_t status = MT_OK;
    if (model->stream != NULL) { /* its first operators ran as rows arrived */
        return mt_work_run(model, stack_low, work);
    }
    begin(work, stack_low);
    for (uint16_t i = 0; i < model->operator_count && status == MT_OK; ++i) {
        running = i;
        work->result = STEP(model, i);
        if (work->result != 0 || !mt_stack_is_intact(stack_low)) {
            work->where = i;
            note_device(model, work);
            status = work->result != 0 ? status_of(work) : MT_STACK_OVERFLOW;
        }
    }
    running = MT_NO_OPERATOR;
    work->stack_bytes = mt_stack_used(stack_low, &top);
    return status;
}

/* One more inference: the present row takes the place of all rows. */
static int32_t run_again(const struct mt_model *model)
{
    int32_t result = model->stream != NULL ? BEGIN(model) : 0;
    for (uint16_t i = 0; model->stream != NULL && i < model->stream->rows && result == 0; ++i) {
        result = FEED(model);
    }
    return result == 0 ? RUN(model) : result;
}

static int32_t run_timed(const struct mt_model *model, uint16_t number, uint32_t count, struct mt_work *work)
{
    int32_t status = mt_port_timer_start();
    if (status != MT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count && work->result == 0; ++i) {
        work->result = number != MT_NO_OPERATOR ? STEP(model, number) : i == 0 ? RUN(model) : run_again(model);
    }
    status = mt_port_timer_stop(&work->elapsed_ns);
    if (model->stream != NULL && number == MT_NO_OPERATOR && status == MT_OK) {
        work->elapsed_ns += work->fed_ns;
        status = work->fed_status;
    }
    return work->result == 0 ? status : status_of(work);
}

int32_t mt_work_time(const struct mt_model *model, uint16_t number, uint32_t count, uint8_t *stack_low,
                     struct mt_work *work)
{
    const volatile uint8_t top = 0;
    begin(work, stack_low);
    running = number;
    const int32_t status = run_timed(model, number, count, work);
    running = MT_NO_OPERATOR;
    work->stack_bytes = mt_stack_used(stack_low, &top);
    if (model->stream != NULL && number == MT_NO_OPERATOR) {
        work->stack_bytes = larger(work->stack_bytes, work->fed_stack);
    }
    if (status != MT_OK) {
        work->elapsed_ns = 0;
        work->where = number;
        note_device(model, work);
    }
    return status;
}

static int32_t feed_timed(const struct mt_model *model, struct mt_work *work)
{
    uint64_t elapsed_ns = 0;
    int32_t status = mt_port_timer_start();
    const int32_t result = FEED(model);
    if (status == MT_OK) {
        status = mt_port_timer_stop(&elapsed_ns);
    }
    work->fed_ns += elapsed_ns;
    work->fed_status = work->fed_status == MT_OK ? status : work->fed_status;
    return result;
}

int32_t mt_work_feed(const struct mt_model *model, uint32_t offset, const uint8_t *bytes, size_t count,
                     uint8_t *stack_low, struct mt_work *work)
{
    const volatile uint8_t top = 0;
    const struct mt_stream *const stream = model->stream;
    if (offset != 0 && offset != work->fed_bytes) {
        return MT_BAD_ORDER;
    }
    if (count > stream->row_bytes * stream->rows - offset) {
        return MT_BAD_RANGE;
    }
    work->result = 0;
    work->where = MT_NO_OPERATOR;
    if (offset == 0) {
        work->fed_bytes = 0;
        work->fed_ns = 0;
        work->fed_status = MT_OK;
        work->fed_stack = 0;
        mt_stack_paint(stack_low);
        work->result = BEGIN(model);
    }
    while (count > 0 && work->result == 0) {
        const uint32_t at = work->fed_bytes % stream->row_bytes, missing = stream->row_bytes - at;
        const size_t some = count < missing ? count : (size_t)missing;
        memcpy((uint8_t *)stream->row + (size_t)at, bytes, some);
        bytes += some;
        count -= some;
        work->fed_bytes += (uint32_t)some;
        if (some == missing) {
            work->result = feed_timed(model, work);
        }
    }
    work->fed_stack = larger(work->fed_stack, mt_stack_used(stack_low, &top));
    return status_of(work);
}

int32_t mt_work_invoke(const struct mt_model *model, const uint8_t *request, size_t count, uint8_t *stack_low,
                       struct mt_work *work, struct mt_returned *returned)
{
    const volatile uint8_t top = 0;
    begin(work, stack_low);
    const uint16_t number = count < 2 ? MT_NO_OPERATOR : mt_get_u16(request);
    running = number < model->operator_count ? number : MT_NO_OPERATOR; /* the operators are the first functions */
    work->where = running;
    const int32_t status = model->functions->invoke(model, request, count, &work->result, returned);
    if (work->result == MT_DEVICE && model->failure != NULL) {
        returned->type_code = MT_ARG_INT;
        returned->value.v_int64 = (int64_t)model->failure->key << 32 | (uint32_t)model->failure->status;
    }
    running = MT_NO_OPERATOR;
    work->stack_bytes = mt_stack_used(stack_low, &top);
    return status;
}

uint16_t mt_work_operator(void)
{
    return running;
}
