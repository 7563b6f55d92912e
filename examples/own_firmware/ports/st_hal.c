/* mtool's RPC at a UART of an STM32, by ST's HAL and the UART's interrupt.
 *
 * In CubeMX: USART1 asynchronous with its global interrupt, 115200 baud; TIM2 with the internal clock, prescaler 0,
 * period 0xFFFFFFFF. In main: HAL_TIM_Base_Start(&htim2), then mt_poll() in the loop. */
#include "main.h"

#include "mt_rpc.h"

extern UART_HandleTypeDef huart1;
extern TIM_HandleTypeDef htim2;

static volatile uint8_t ring[256]; /* it holds MT_RPC_WINDOW_BYTES; the indices wrap by themselves */
static volatile uint8_t head, tail;
static uint8_t received;

void HAL_UART_RxCpltCallback(UART_HandleTypeDef *uart)
{
    ring[head++] = received;
    HAL_UART_Receive_IT(uart, &received, 1);
}

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    size_t count = 0;
    if (huart1.RxState == HAL_UART_STATE_READY) { /* at first, and after an overrun, which ends reception */
        HAL_UART_Receive_IT(&huart1, &received, 1);
    }
    while (count < capacity && tail != head) {
        bytes[count++] = ring[tail++];
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
