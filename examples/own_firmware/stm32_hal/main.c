/* An application with ST's HAL that serves a model at USART1, as CubeMX writes it. With QEMU defined it runs on QEMU's
 * netduinoplus2, which has no RCC. */
#include "main.h"

#include "mt_rpc.h"

UART_HandleTypeDef huart1;
TIM_HandleTypeDef htim2;

void SysTick_Handler(void)
{
    HAL_IncTick();
}

void USART1_IRQHandler(void)
{
    HAL_UART_IRQHandler(&huart1);
}

void HAL_UART_MspInit(UART_HandleTypeDef *uart)
{
    GPIO_InitTypeDef pins = {
        .Pin = GPIO_PIN_9 | GPIO_PIN_10, .Mode = GPIO_MODE_AF_PP, .Speed = GPIO_SPEED_FREQ_HIGH, .Alternate = GPIO_AF7_USART1};
    (void)uart;
    __HAL_RCC_USART1_CLK_ENABLE();
    __HAL_RCC_GPIOA_CLK_ENABLE();
    HAL_GPIO_Init(GPIOA, &pins);
    HAL_NVIC_SetPriority(USART1_IRQn, 1, 0);
    HAL_NVIC_EnableIRQ(USART1_IRQn);
}

void HAL_TIM_Base_MspInit(TIM_HandleTypeDef *timer)
{
    (void)timer;
    __HAL_RCC_TIM2_CLK_ENABLE();
}

static void SystemClock_Config(void)
{
#ifdef QEMU
    SystemCoreClock = 1000000000; /* the rate of QEMU's TIM2: with -icount shift=0 a tick is an instruction */
#else
    /* 168 MHz from the 25 MHz crystal of the Netduino Plus 2: replace it with the one that CubeMX writes for your board. */
    RCC_OscInitTypeDef oscillator = {
        .OscillatorType = RCC_OSCILLATORTYPE_HSE, .HSEState = RCC_HSE_ON,
        .PLL = {.PLLState = RCC_PLL_ON, .PLLSource = RCC_PLLSOURCE_HSE,
                .PLLM = 25, .PLLN = 336, .PLLP = RCC_PLLP_DIV2, .PLLQ = 7}};
    RCC_ClkInitTypeDef clocks = {
        .ClockType = RCC_CLOCKTYPE_SYSCLK | RCC_CLOCKTYPE_HCLK | RCC_CLOCKTYPE_PCLK1 | RCC_CLOCKTYPE_PCLK2,
        .SYSCLKSource = RCC_SYSCLKSOURCE_PLLCLK, .AHBCLKDivider = RCC_SYSCLK_DIV1,
        .APB1CLKDivider = RCC_HCLK_DIV4, .APB2CLKDivider = RCC_HCLK_DIV2};
    HAL_RCC_OscConfig(&oscillator);
    HAL_RCC_ClockConfig(&clocks, FLASH_LATENCY_5);
#endif
}

int main(void)
{
    HAL_Init();
    SystemClock_Config();

    huart1.Instance = USART1;
    huart1.Init = (UART_InitTypeDef){.BaudRate = 115200, .WordLength = UART_WORDLENGTH_8B, .Mode = UART_MODE_TX_RX};
    HAL_UART_Init(&huart1);

    htim2.Instance = TIM2;
    htim2.Init.Period = 0xFFFFFFFF;
    HAL_TIM_Base_Init(&htim2);
    HAL_TIM_Base_Start(&htim2);

    for (;;) {
        mt_poll();
    }
}
