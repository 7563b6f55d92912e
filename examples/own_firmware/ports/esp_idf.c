/* mtool's RPC on an ESP32 by ESP-IDF 5 or newer, at UART0, which the console must leave free
 * (CONFIG_ESP_CONSOLE_NONE=y).
 *
 * Call rpc_start once, then mt_poll from a task, for which mt_rpc_idle sleeps a tick. */
#include <driver/uart.h>
#include <esp_system.h>
#include <esp_timer.h>
#include <freertos/FreeRTOS.h>
#include <freertos/task.h>

#include "mt_rpc.h"

void rpc_start(void);

void rpc_start(void)
{
    const uart_config_t config = {
        .baud_rate = 115200,
        .data_bits = UART_DATA_8_BITS,
        .parity = UART_PARITY_DISABLE,
        .stop_bits = UART_STOP_BITS_1,
        .flow_ctrl = UART_HW_FLOWCTRL_DISABLE,
        .source_clk = UART_SCLK_DEFAULT,
    };
    ESP_ERROR_CHECK(uart_driver_install(UART_NUM_0, 1024, 0, 0, NULL, 0));
    ESP_ERROR_CHECK(uart_param_config(UART_NUM_0, &config));
}

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    const int count = uart_read_bytes(UART_NUM_0, bytes, (uint32_t)capacity, 0);
    return count > 0 ? (size_t)count : 0;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    uart_write_bytes(UART_NUM_0, bytes, count);
    uart_wait_tx_done(UART_NUM_0, portMAX_DELAY);
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = 1000000;
    return (uint32_t)esp_timer_get_time();
}

void mt_rpc_idle(void)
{
    vTaskDelay(1);
}

void mt_rpc_reset(void)
{
    esp_restart();
}
