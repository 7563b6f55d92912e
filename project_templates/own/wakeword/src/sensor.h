/* The microphone, as main.c uses it. On this computer and in an emulator there is none: `mtool replay` sends recordings. */
#ifndef SENSOR_H
#define SENSOR_H

#include <stdint.h>

#include "mt_app.h"

#ifdef __cplusplus
extern "C" {
#endif

#if MT_APP_SENSOR
/* Start to take samples; 0, or a status of your own. */
int32_t sensor_begin(void);

/* Wait for the next hop, asleep, and copy it; see `sense` in mt_hops.h. */
int32_t sensor_read(uint8_t *buffer, uint32_t *lost);

#define SENSOR sensor_read
#else
static inline int32_t sensor_begin(void)
{
    return 0;
}

#define SENSOR 0
#endif

#ifdef __cplusplus
}
#endif

#endif
