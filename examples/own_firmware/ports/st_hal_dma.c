/* mtool's RPC at a UART of an STM32, by ST's HAL and a circular DMA: the DMA's counter says how far it has received.
 *
 * In CubeMX: as for st_hal.c, and a DMA request USART1_RX, circular, a byte wide. On a core with a data cache (Cortex-M7)
 * the ring must lie in memory that is not cached. */
#include "main.h"

#include "mt_rpc.h"

extern UART_HandleTypeDef huart1;
extern TIM_HandleTypeDef htim2;

static uint8_t ring[256]; /* it holds MT_RPC_WINDOW_BYTES */
static size_t tail;

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    size_t count = 0;
    if (huart1.RxState == HAL_UART_STATE_READY) { /* at first, and after an error, which ends reception */
        tail = 0;
        HAL_UART_Receive_DMA(&huart1, ring, sizeof ring);
    }
    const size_t head = sizeof ring - __HAL_DMA_GET_COUNTER(huart1.hdmarx);
    while (count < capacity && tail != head % sizeof ring) {
        bytes[count++] = ((volatile uint8_t *)ring)[tail];
        tail = (tail + 1u) % sizeof ring;
    }
    return count;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    HAL_UART_Transmit(&huart1, bytes, (uint16_t)count, HAL_MAX_DELAY);
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    /* The timers of APB1 run at twice its clock unless that is the core's (RM0090, 7.2). */
    *hz = HAL_RCC_GetPCLK1Freq() << ((RCC->CFGR & RCC_CFGR_PPRE1) != 0);
    return __HAL_TIM_GET_COUNTER(&htim2);
}

void mt_rpc_idle(void)
{
}

void mt_rpc_reset(void)
{
    NVIC_SystemReset();
}
