/* Serves {{ model }} at the UART of zephyr,console: mtool run, verify and bench --port PORT drive it. */
#include <mt_rpc.h>
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/reboot.h>
#include <zephyr/sys/ring_buffer.h>

static const struct device *const uart = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));
RING_BUF_DECLARE(received, MT_RPC_WINDOW_BYTES);
static K_SEM_DEFINE(arrived, 0, 1);

static void on_interrupt(const struct device *device, void *context)
{
    uint8_t bytes[16];
    ARG_UNUSED(context);
    while (uart_irq_update(device) && uart_irq_rx_ready(device)) {
        const int count = uart_fifo_read(device, bytes, sizeof bytes);
        ring_buf_put(&received, bytes, count > 0 ? (uint32_t)count : 0);
    }
    k_sem_give(&arrived);
}

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    return ring_buf_get(&received, bytes, (uint32_t)capacity);
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        uart_poll_out(uart, bytes[i]);
    }
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    *hz = (uint32_t)sys_clock_hw_cycles_per_sec();
    return k_cycle_get_32();
}

void mt_rpc_idle(void)
{
    k_sem_take(&arrived, K_MSEC(100));
}

void mt_rpc_reset(void)
{
    sys_reboot(SYS_REBOOT_COLD);
}

int main(void)
{
    uart_irq_callback_set(uart, on_interrupt);
    uart_irq_rx_enable(uart);
    for (;;) {
        mt_poll();
    }
}
