/* Internal to mtool: applications include mtool.h. */
/* Several models on one core, without threads: the most urgent one runs, and between two operators of a less urgent one
 * a more urgent one takes its place, from begin to end. Compile the models with --interface-api step; the firmware's
 * header, <firmware>.h, has them as tasks, the most urgent first.
 *
 *     tasks[0].inputs = &sound;  tasks[0].outputs = &word;
 *     ...
 *     in a timer's interrupt:  mt_schedule_release(&tasks[0], now(), period);
 *     in the main loop:        mt_schedule_step(tasks, count, now);
 *
 * Times are ticks of the caller's clock, which may wrap around; none is longer than half of its range. */
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
    uint8_t priority;      /* 0 is the most urgent. Tasks of the same priority run one after another. In an array of
                            * tasks it may not fall: the models' arena is laid out for their order. */

    /* The caller's. What they point to stays as it is from the release until the task has finished. */
    const void *inputs;    /* struct <model>_inputs */
    const void *outputs;   /* struct <model>_outputs */
    void (*finished)(struct mt_task *task); /* called when the outputs are there, or `status` is an error; NULL: none */

    /* The scheduler's, to be read. */
    volatile uint8_t is_released;   /* and has not begun */
    uint8_t is_running;             /* has begun, and not finished */
    uint16_t number;                /* of the next operator */
    int32_t status;                 /* of the last inference: 0, or what the model returned */
    volatile uint32_t released_at;
    volatile uint32_t deadline_ticks;
    uint32_t began_for;             /* the release that runs, and its deadline */
    uint32_t due_ticks;
    uint32_t runs;                  /* inferences that have finished */
    uint32_t missed;                /* of them, those after their deadline; and releases before the one before began */
    uint32_t worst_ticks;           /* from a release until the outputs were there, at most */
};

/* Ask for an inference, which is to be finished `deadline_ticks` after `now`. May be called from an interrupt. A release
 * of a task that runs is for the inference after it. */
void mt_schedule_release(struct mt_task *task, uint32_t now, uint32_t deadline_ticks);

/* Run one operator, of the most urgent task that is there, and of those of one priority the one with the earliest
 * deadline; a task begins with its first operator. Returns 1, or 0 where there is nothing to do. */
int32_t mt_schedule_step(struct mt_task *tasks, uint8_t count, uint32_t (*now)(void));

#ifdef __cplusplus
}
#endif

#endif
