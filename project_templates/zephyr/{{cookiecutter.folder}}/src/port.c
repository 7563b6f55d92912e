{% if cookiecutter.options.channel == "rtt" %}
/* The port over RTT. timer.c has the timer, guard.c the end. */
{% else %}
/* The port over a UART of Zephyr: the devicetree's chosen mtool,uart, else its console. timer.c has the
 * timer, guard.c the end. */
{% endif %}
#include "mtool.h"

#include <zephyr/device.h>
#include <zephyr/drivers/entropy.h>
{% if cookiecutter.options.channel != "rtt" %}
#include <zephyr/drivers/uart.h>
{% endif %}
#include <zephyr/kernel.h>
{% if cookiecutter.options.channel != "rtt" %}
#include <zephyr/sys/ring_buffer.h>
{% endif %}


{% if cookiecutter.options.channel == "rtt" %}
{% include "shared/rtt.c" %}

void mt_port_idle(void)
{
    k_msleep(1);
}

{% else %}
#if DT_HAS_CHOSEN(mtool_uart)
static const struct device *const uart = DEVICE_DT_GET(DT_CHOSEN(mtool_uart));
#else
static const struct device *const uart = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));
#endif

#ifdef CONFIG_UART_INTERRUPT_DRIVEN
/* The host never sends more bytes ahead than the ring holds: main.c reports the window. If it ignores that, reception
 * stops until there is room: the UART's FIFO fills up, and RTS is released if it is wired. */
RING_BUF_DECLARE(ring, {{ cookiecutter.options.uart_ring_bytes }});
static K_SEM_DEFINE(arrived, 0, 1);
static volatile bool is_stopped;

static void receive(const struct device *device, void *unused)
{
    ARG_UNUSED(unused);
    while (uart_irq_update(device) && uart_irq_rx_ready(device)) {
        uint8_t *room;
        const uint32_t capacity = ring_buf_put_claim(&ring, &room, {{ cookiecutter.options.uart_ring_bytes }});
        if (capacity == 0) {
            is_stopped = true;
            uart_irq_rx_disable(device);
            break;
        }
        const int count = uart_fifo_read(device, room, (int)capacity);
        ring_buf_put_finish(&ring, count > 0 ? (uint32_t)count : 0);
        if (count <= 0) {
            break;
        }
    }
    k_sem_give(&arrived);
}

/* Some UARTs interrupt when a byte arrives, but not for a byte that is already there. */
static void start_to_receive(void)
{
    const unsigned int key = irq_lock();
    is_stopped = false;
    uart_irq_rx_enable(uart);
    receive(uart, NULL);
    irq_unlock(key);
}

int32_t mt_port_init(void)
{
    if (!device_is_ready(uart) || uart_irq_callback_user_data_set(uart, receive, NULL) != 0) {
        return MT_IO;
    }
    start_to_receive();
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    *count = ring_buf_get(&ring, bytes, (uint32_t)capacity);
    if (is_stopped && *count > 0) {
        start_to_receive();
    }
    return MT_OK;
}

void mt_port_idle(void)
{
    k_sem_take(&arrived, K_FOREVER);
}
#else /* a UART without interrupts, such as the simulator's in many releases */
int32_t mt_port_init(void)
{
    return device_is_ready(uart) ? MT_OK : MT_IO;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    for (*count = 0; *count < capacity && uart_poll_in(uart, &bytes[*count]) == 0; ++*count) {
    }
    return MT_OK;
}

void mt_port_idle(void)
{
    k_msleep(1);
}
#endif

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        uart_poll_out(uart, bytes[i]);
    }
    return MT_OK;
}

{% endif %}
int32_t mt_port_random(uint8_t *bytes, size_t count)
{
#if DT_HAS_CHOSEN(zephyr_entropy) && defined(CONFIG_ENTROPY_HAS_DRIVER)
    return entropy_get_entropy(DEVICE_DT_GET(DT_CHOSEN(zephyr_entropy)), bytes, (uint16_t)count) == 0 ? MT_OK : MT_IO;
#else
    return MT_NOT_SUPPORTED;
#endif
}
