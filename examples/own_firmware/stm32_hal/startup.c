/* The vector table of the STM32F405 as far as this example uses it; a project of CubeIDE has ST's own. */
#include <stdint.h>
#include <string.h>

extern uint32_t stack_top[], data_image[], data_start[], data_end[], bss_start[], bss_end[];
int main(void);
void SystemInit(void);

void Reset_Handler(void)
{
    SystemInit();
    memcpy(data_start, data_image, (size_t)((char *)data_end - (char *)data_start));
    memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
    main();
}

static void stop(void)
{
    for (;;) {
    }
}

void SysTick_Handler(void);
void USART1_IRQHandler(void);

__attribute__((section(".vectors"), used)) static void (*const vectors[16 + 82])(void) = {
    [0] = (void (*)(void))stack_top, [1] = Reset_Handler, [2] = stop, [3] = stop, [4] = stop, [5] = stop, [6] = stop,
    [11] = stop, [14] = stop, [15] = SysTick_Handler, [16 + 37] = USART1_IRQHandler, /* RM0090, table 62 */
};
