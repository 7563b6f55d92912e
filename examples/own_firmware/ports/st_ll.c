/* mtool's RPC at a UART of an STM32, by ST's LL drivers and the UART's interrupt; the time is the core's cycle counter.
 *
 * In CubeMX: USART1 asynchronous with its global interrupt, by LL. Call rpc_start once before mt_poll, and
 * rpc_received in USART1_IRQHandler. The Cortex-M0 and M0+ have no cycle counter: take a timer, as st_hal.c does. */
#include "main.h"

#include "mt_rpc.h"

void rpc_start(void);
void rpc_received(void);

static volatile uint8_t ring[256]; /* it holds MT_RPC_WINDOW_BYTES; the indices wrap by themselves */
static volatile uint8_t head, tail;

void rpc_start(void)
{
    CoreDebug->DEMCR |= CoreDebug_DEMCR_TRCENA_Msk;
    DWT->CTRL |= DWT_CTRL_CYCCNTENA_Msk;
    LL_USART_EnableIT_RXNE(USART1);
}

void rpc_received(void)
{
    if (LL_USART_IsActiveFlag_RXNE(USART1)) {
        ring[head++] = LL_USART_ReceiveData8(USART1);
    }
    if (LL_USART_IsActiveFlag_ORE(USART1)) {
        LL_USART_ClearFlag_ORE(USART1);
    }
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
    for (size_t i = 0; i < count; ++i) {
        while (!LL_USART_IsActiveFlag_TXE(USART1)) {
        }
        LL_USART_TransmitData8(USART1, bytes[i]);
    }
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = SystemCoreClock;
    return DWT->CYCCNT;
}

void mt_rpc_idle(void)
{
}

void mt_rpc_reset(void)
{
    NVIC_SystemReset();
}
