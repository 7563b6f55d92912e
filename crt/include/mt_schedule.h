/* Internal to mtool: applications include mtool.h. */
/* Several models on one core, without threads: the most urgent one runs, and it can preempt a less urgent one
 * between two of its operators, from begin to end. Compile the models with --interface-api step; the firmware's
 * header, <firmware>.h, has them as tasks, the most urgent first.
 *
 *     tasks[0].inputs = &sound;  tasks[0].outputs = &word;
 *     ...
 *     in a timer's interrupt:  mt_schedule_release(&tasks[0], now(), period);
 *     in the main loop:        mt_schedule_step(tasks, count, now);
 *
 * Times are ticks of the caller's clock, which may wrap around; none may be longer than a quarter of its range. */
#ifndef MT_SCHEDULE_H
#define MT_SCHEDULE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mt_task {
    /* The model: <model>_begin, which copies the inputs, <model>_step, <model>_done. */
    int32_t (*begin)(const void *inputs, const void *outputs);
    int32_t (*step)(void);
    int32_t (*done)(void);
    const uint8_t *pauses; /* bit n % 8 of byte n / 8: a more urgent task may run before operator n; NULL: before each */
    uint8_t priority;      /* 0 is the most urgent. Tasks of the same priority run one after another. It must not
                            * decrease in an array of tasks: the models' arena is laid out for their order. */

    /* The caller's. What they point to must not change from the release until the task has finished. */
    const void *inputs;    /* struct <model>_inputs */
    const void *outputs;   /* struct <model>_outputs */
    void (*finished)(struct mt_task *task); /* called when the outputs are ready or `status` is an error; NULL: none */

    /* The scheduler's; read only. */
    volatile uint8_t is_released;   /* and has not started */
    uint8_t is_running;             /* has started, and not finished */
    uint16_t number;                /* of the next operator */
    int32_t status;                 /* of the last inference: 0, or the model's error */
    volatile uint32_t released_at;
    volatile uint32_t deadline_ticks;
    uint32_t began_for;             /* the current release, and its deadline */
    uint32_t due_ticks;
    uint32_t runs;                  /* finished inferences */
    uint32_t missed;                /* missed deadlines, and releases before the previous one started */
    uint32_t worst_ticks;           /* the longest time from a release to its outputs */
};

/* Request an inference, to be finished `deadline_ticks` after `now`. May be called from an interrupt. A release
 * of a running task is for its next inference. */
void mt_schedule_release(struct mt_task *task, uint32_t now, uint32_t deadline_ticks);

/* Run one operator of the most urgent task; among tasks of one priority, of that with the earliest
 * deadline. A task starts with its first operator. Returns 1, or 0 if there is nothing to do. */
int32_t mt_schedule_step(struct mt_task *tasks, uint8_t count, uint32_t (*now)(void));

#ifdef __cplusplus
}
#endif

#endif
