/* The platform of mtool.h in an application of your own, by the functions of mt_rpc.h. */
#include "mt_rpc.h"

#include "mt_build.h"
#include "mt_key.h"
#include "mtool.h"

#if MT_RPC_BUFFER_BYTES < 256
#error "MT_RPC_BUFFER_BYTES: expected at least 256"
#endif

static uint32_t buffer[MT_RPC_BUFFER_BYTES / 4];
static uint32_t started_at;
static uint8_t is_timing;
static uint8_t is_serving;

static const struct mt_server_config config = {
    .model = &mt_model,
    .build_hash = MT_BUILD_HASH,
    .buffer = (uint8_t *)buffer,
    .buffer_bytes = sizeof buffer,
    .window_bytes = MT_RPC_WINDOW_BYTES,
};

#if defined(__GNUC__) || defined(__ICCARM__)
__attribute__((weak)) void mt_rpc_reset(void)
{
}
#endif

void mt_poll(void)
{
    uint8_t is_over = 0;
    if (!is_serving) {
        (void)mt_server_start(&config); /* refuses only a smaller buffer */
        is_serving = 1;
    }
    (void)mt_server_poll(&is_over); /* this port has no status of its own to return */
    if (is_over) {
        is_serving = 0;
        mt_rpc_reset();
    }
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    const size_t read = mt_rpc_read(bytes, capacity);
    *count = read <= capacity ? read : 0; /* a -1 of read(), for instance */
    return MT_OK;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    mt_rpc_write(bytes, count);
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    uint32_t hz;
    if (is_timing) {
        return MT_TIMER_RUNNING;
    }
    is_timing = 1;
    started_at = mt_rpc_time(&hz);
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    uint32_t hz = 1;
    const uint32_t ticks = mt_rpc_time(&hz) - started_at;
    if (!is_timing) {
        return MT_TIMER_NOT_STARTED;
    }
    is_timing = 0;
    *elapsed_ns = hz != 0u ? ticks * UINT64_C(1000000000) / hz : 0u; /* the host reports a timer that stands still */
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    uint32_t hz = 1;
    (void)mt_rpc_time(&hz);
    return hz != 0u && hz < 1000000000u ? (1000000000u + hz / 2u) / hz : 1u;
}

#ifdef MT_LINK_KEY
int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    mt_rpc_random(bytes, count);
    return MT_OK;
}
#endif

void mt_port_idle(void)
{
    mt_rpc_idle();
}
