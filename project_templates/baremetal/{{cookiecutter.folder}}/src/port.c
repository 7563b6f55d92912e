{% set channel = cookiecutter.options.channel %}
{% if channel == "uart" %}
/* The port over the chip's UART. */
{% elif channel == "rtt" %}
/* The port over RTT: the bytes travel through the debugger. */
{% else %}
/* The port over semihosting: the bytes travel through the emulator's standard input and output. */
{% endif %}
#include "mtool.h"

#include "mt_board.h"
#include "mt_ports.h"
{% if channel == "semihosting" %}
#include "platform.h"
{% endif %}

static int32_t timer_running;

{% if channel == "semihosting" %}
enum { SYS_OPEN = 0x01, SYS_WRITE = 0x05, SYS_READ = 0x06 };
enum { MODE_READ_BINARY = 1, MODE_WRITE_BINARY = 5 };

static int32_t host_input;
static int32_t host_output;

static int32_t open_file(const char *name, uintptr_t length, uintptr_t mode)
{
    const uintptr_t block[3] = {(uintptr_t)name, mode, length};
    return platform_semihosting(SYS_OPEN, block);
}

/* SYS_READ and SYS_WRITE return how many of `count` bytes were not transferred. */
static size_t transfer(int32_t operation, int32_t file, const uint8_t *bytes, size_t count)
{
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)bytes, count};
    const size_t left = (size_t)platform_semihosting(operation, block);
    return left > count ? 0 : count - left;
}

{% endif %}
{% if channel == "uart" %}
{% include "shared/uart.c" %}

{% elif channel == "rtt" %}
{% include "shared/rtt.c" %}

{% else %}
int32_t mt_port_init(void)
{
    host_input = open_file(":tt", 3, MODE_READ_BINARY); /* ":tt" is the host's console */
    host_output = open_file(":tt", 3, MODE_WRITE_BINARY);
    return host_input >= 0 && host_output >= 0 ? MT_OK : MT_IO;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    *count = transfer(SYS_READ, host_input, bytes, capacity); /* blocks until there is a byte, or the end */
    return *count > 0 ? MT_OK : MT_IO;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const size_t written = transfer(SYS_WRITE, host_output, bytes, count);
        if (written == 0) {
            return MT_IO;
        }
        bytes += written;
        count -= written;
    }
    return MT_OK;
}

{% endif %}
int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = mt_timer_start();
    return timer_running ? MT_OK : MT_NOT_SUPPORTED;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    uint64_t ticks = 0;
    const int32_t in_range = mt_timer_stop(&ticks); /* first, so that nothing else is measured */
    *elapsed_ns = 0;
    if (!timer_running) {
        return MT_TIMER_NOT_STARTED;
    }
    timer_running = 0;
    if (!in_range) {
        return MT_TIMER_OVERFLOW;
    }
    *elapsed_ns = ticks / MT_TIMER_HZ * 1000000000u + ticks % MT_TIMER_HZ * 1000000000u / MT_TIMER_HZ;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    return (1000000000u + MT_TIMER_HZ - 1u) / MT_TIMER_HZ;
}

{% if "random" in cookiecutter.board.ports %}
{# its driver is in crt/ports #}
{% elif channel != "semihosting" %}
int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    (void)bytes;
    (void)count;
    return MT_NOT_SUPPORTED;
}
{% else %}
int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    static int32_t source = -1;
    if (source < 0) {
        source = open_file("/dev/urandom", 12, MODE_READ_BINARY); /* the host's */
    }
    return source >= 0 && transfer(SYS_READ, source, bytes, count) == count ? MT_OK : MT_NOT_SUPPORTED;
}
{% endif %}
{% if channel != "uart" %}

void mt_port_idle(void)
{
}
{% endif %}
