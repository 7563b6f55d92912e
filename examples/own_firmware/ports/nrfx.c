/* mtool's RPC at a UARTE of an nRF52 by nrfx 3 or 4; the time is the core's cycle counter.
 *
 * The application sets up nrfx_uarte with rpc_event as its handler. Call rpc_start once, then mt_poll in the main loop.
 * The UARTE receives by DMA, a byte at a time here, into two buffers in turn. */
#include <nrfx_uarte.h>

#include "mt_rpc.h"

extern nrfx_uarte_t rpc_uarte; /* the application's instance */
void rpc_start(void);
void rpc_event(const nrfx_uarte_event_t *event, void *context);

static volatile uint8_t ring[256]; /* it holds MT_RPC_WINDOW_BYTES; the indices wrap by themselves */
static volatile uint8_t head, tail;
static uint8_t received[2];

void rpc_event(const nrfx_uarte_event_t *event, void *context)
{
    static uint8_t next;
    (void)context;
    switch (event->type) {
    case NRFX_UARTE_EVT_RX_BUF_REQUEST:
        next ^= 1u;
        (void)nrfx_uarte_rx_buffer_set(&rpc_uarte, &received[next], 1);
        break;
    case NRFX_UARTE_EVT_RX_DONE:
        ring[head] = *event->data.rx.p_buffer;
        head = (uint8_t)(head + event->data.rx.length);
        break;
    default:
        break;
    }
}

void rpc_start(void)
{
    CoreDebug->DEMCR |= CoreDebug_DEMCR_TRCENA_Msk;
    DWT->CTRL |= DWT_CTRL_CYCCNTENA_Msk;
    (void)nrfx_uarte_rx_buffer_set(&rpc_uarte, &received[0], 1);
    (void)nrfx_uarte_rx_enable(&rpc_uarte, NRFX_UARTE_RX_ENABLE_CONT);
}

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    size_t count = 0;
    while (count < capacity && tail != head) {
        bytes[count++] = ring[tail++];
    }
    return count;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    (void)nrfx_uarte_tx(&rpc_uarte, bytes, count, NRFX_UARTE_TX_BLOCKING); /* from RAM, as EasyDMA requires */
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = SystemCoreClock;
    return DWT->CYCCNT;
}

void mt_rpc_idle(void)
{
    __WFE();
}

void mt_rpc_reset(void)
{
    NVIC_SystemReset();
}
