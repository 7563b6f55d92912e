/* A file of its own, so that no compiler merges these frames with the server's: the stack is measured from here. */
#include "mt_work.h"

#include "mt_port.h"
#include "mt_stack.h"
#include "mt_status.h"

int32_t mt_work_call(const struct mt_model *model, uint8_t *stack_low, int32_t *result, uint32_t *stack_bytes)
{
    const volatile uint8_t top = 0;
    mt_stack_paint(stack_low);
    *result = model->run();
    *stack_bytes = mt_stack_used(stack_low, &top);
    return *result == 0 ? MT_OK : MT_MODEL;
}

static int32_t run_timed(const struct mt_model *model, uint32_t number, int32_t *result, uint64_t *elapsed_ns)
{
    int32_t status = mt_port_timer_start();
    if (status != MT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < number && *result == 0; ++i) {
        *result = model->run();
    }
    status = mt_port_timer_stop(elapsed_ns);
    return *result == 0 ? status : MT_MODEL;
}

int32_t mt_work_time(const struct mt_model *model, uint32_t number, uint8_t *stack_low, int32_t *result,
                     uint32_t *stack_bytes, uint64_t *elapsed_ns)
{
    const volatile uint8_t top = 0;
    *result = 0;
    *elapsed_ns = 0;
    mt_stack_paint(stack_low);
    const int32_t status = run_timed(model, number, result, elapsed_ns);
    *stack_bytes = mt_stack_used(stack_low, &top);
    if (status != MT_OK) {
        *elapsed_ns = 0;
    }
    return status;
}
