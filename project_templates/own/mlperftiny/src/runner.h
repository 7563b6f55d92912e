/* The commands of EEMBC's runner for MLPerf Tiny, as a device under test answers them, using submitter.c. */
#ifndef RUNNER_H
#define RUNNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In runner.c. */
int32_t runner_begin(void);         /* initialize the port and send the greeting; a status of mtool.h */
int32_t runner_poll(void);          /* handle received bytes; MT_IO: the host closed the channel */
void runner_print(const char *text);
void runner_print_number(int32_t number);
void runner_print_decimal(float number); /* with three decimal places */

{% if benchmark == "sww01" %}
void runner_timestamp(void);

/* In streaming.c. */
int streaming_command(const char *word); /* 1: it was one of the benchmark's commands, which is carried out */
int streaming_is_on(void);               /* between `start` and `stop` */
int32_t streaming_hop(void);             /* process the hop in model_buffer; your main loop calls it while streaming_is_on */

{% endif %}
/* In submitter.c. */
extern const char model_id[];       /* the benchmark: kws01, ic01, vww01, ad01 */
extern const char model_vendor[];   /* part of the answer to `name` */
extern uint8_t *const model_buffer; /* filled by `db load` */
extern const size_t model_buffer_bytes;
void model_load(size_t count);      /* the buffer's first `count` bytes become the model's input */
int32_t model_infer(void);          /* one inference; 0, or its status */
void model_results(void);           /* print m-results-[..] */
{% if benchmark == "sww01" %}
extern const int8_t model_threshold;        /* a detection's activation is above it */
void model_begin(void);                     /* the next hop is the first of a recording */
int32_t model_hop(int8_t *activation);      /* process the hop in model_buffer; the wake word's activation */
void model_print_hop(void);                 /* print its features and activations */
void submitter_processing(int is_on);       /* the pin that the interface board times */
void submitter_detected(void);              /* pulse the pin that it records detections of */
{% endif %}

#ifdef __cplusplus
}
#endif

#endif
