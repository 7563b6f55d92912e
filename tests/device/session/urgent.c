/* An urgent model that a timer's interrupt releases, beside one that runs all the time. */
#include "digits_again.h"

#define SYST ((volatile uint32_t *)0xE000E010u) /* control, reload, current value; Armv7-M ARM, B3.3 */
#define PERIOD 24000u                           /* ticks, of 40 instructions each */
#define RELEASES 12u

static volatile uint32_t periods = 0xFFFFFFFFu / PERIOD - RELEASES / 2u; /* now() wraps halfway */
static uint32_t least_wait = 0xFFFFFFFFu;
static int8_t image[64], scores[10], other_image[64], other_scores[10];
static const struct digits_inputs inputs = {image};
static const struct digits_outputs outputs = {scores};
static const struct again_inputs other_inputs = {other_image};
static const struct again_outputs other_outputs = {other_scores};
static struct mt_task *const urgent = &digits_again_tasks[0];
static struct mt_task *const background = &digits_again_tasks[1];

static uint32_t now(void)
{
    uint32_t before, left;
    do {
        before = periods;
        left = SYST[2];
    } while (before != periods);
    return before * PERIOD + (PERIOD - 1u - left);
}

void platform_fault(void); /* of all exceptions; SysTick is the only one here */
void platform_fault(void)
{
    ++periods;
    mt_schedule_release(urgent, periods * PERIOD, PERIOD);
}

static void again(struct mt_task *task)
{
    mt_schedule_release(task, now(), 0x40000000u);
}

static void finished(struct mt_task *task)
{
    const uint32_t ticks = now() - task->began_for;
    least_wait = ticks < least_wait ? ticks : least_wait;
}

int main(void)
{
    urgent->inputs = &inputs;
    urgent->outputs = &outputs;
    urgent->finished = finished;
    background->inputs = &other_inputs;
    background->outputs = &other_outputs;
    background->finished = again;
    again(background);
    SYST[1] = PERIOD - 1u;
    SYST[2] = 0;
    SYST[0] = 7u; /* the core's clock, an interrupt, on */
    while (urgent->runs < RELEASES) {
        mt_schedule_step(digits_again_tasks, DIGITS_AGAIN_TASKS, now);
    }
    SYST[0] = 0;
    report("worst", (int32_t)urgent->worst_ticks);
    report("least", (int32_t)least_wait);
    report("missed", (int32_t)urgent->missed);
    report("runs", (int32_t)background->runs);
    report("same", (int32_t)(scores[0] == other_scores[0]));
    return 0;
}
