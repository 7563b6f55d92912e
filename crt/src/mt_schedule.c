#include "mt_schedule.h"

#include <stddef.h>

void mt_schedule_release(struct mt_task *task, uint32_t now, uint32_t deadline_ticks)
{
    if (task->is_released) {
        ++task->missed;
        return;
    }
    task->released_at = now;
    task->deadline_ticks = deadline_ticks;
    task->is_released = 1;
}

/* Return whether a running task is at a point where a more urgent one may run. */
static int may_pause(const struct mt_task *task)
{
    const uint8_t bit = (uint8_t)(1u << task->number % 8u);
    return task->pauses == NULL || (task->pauses[task->number / 8u] & bit) != 0;
}

/* The most urgent running task; those below wait for it. NULL: none is running. */
static struct mt_task *running(struct mt_task *tasks, uint8_t count)
{
    struct mt_task *found = NULL;
    for (uint8_t i = 0; i < count; ++i) {
        if (tasks[i].is_running && (found == NULL || tasks[i].priority < found->priority)) {
            found = tasks + i;
        }
    }
    return found;
}

static uint32_t deadline(const struct mt_task *task)
{
    return task->released_at + task->deadline_ticks;
}

/* The next task to start, more urgent than `below`. NULL: none. */
static struct mt_task *released(struct mt_task *tasks, uint8_t count, const struct mt_task *below)
{
    struct mt_task *found = NULL;
    for (uint8_t i = 0; i < count; ++i) {
        struct mt_task *const task = tasks + i;
        if (!task->is_released || task->is_running || (below != NULL && task->priority >= below->priority)) {
            continue;
        }
        if (found == NULL || task->priority < found->priority ||
            (task->priority == found->priority && (int32_t)(deadline(task) - deadline(found)) < 0)) {
            found = task;
        }
    }
    return found;
}

static void finish(struct mt_task *task, uint32_t at)
{
    const uint32_t ticks = at - task->began_for;
    task->is_running = 0;
    ++task->runs;
    task->missed += ticks > task->due_ticks;
    if (ticks > task->worst_ticks) {
        task->worst_ticks = ticks;
    }
    if (task->finished != NULL) {
        task->finished(task);
    }
}

int32_t mt_schedule_step(struct mt_task *tasks, uint8_t count, uint32_t (*now)(void))
{
    struct mt_task *task = running(tasks, count);
    if (task == NULL || may_pause(task)) {
        struct mt_task *const next = released(tasks, count, task);
        if (next != NULL) {
            task = next;
            task->began_for = task->released_at;
            task->due_ticks = task->deadline_ticks;
            task->is_released = 0;
            task->is_running = 1;
            task->number = 0;
            task->status = task->begin(task->inputs, task->outputs);
        }
    }
    if (task == NULL) {
        return 0;
    }
    if (task->status == 0 && !task->done()) {
        task->status = task->step();
        ++task->number;
    }
    if (task->status != 0 || task->done()) {
        finish(task, now());
    }
    return 1;
}
