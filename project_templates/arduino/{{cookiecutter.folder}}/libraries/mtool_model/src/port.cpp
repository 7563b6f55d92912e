/* mt_port.h with Arduino's own functions: Serial, micros(). */
#include <Arduino.h>

extern "C" {
#include "mt_port.h"
#include "mt_status.h"
}

#define BAUD {{ cookiecutter.board.usb.uart }}
#define LONGEST_MS 4200000uL /* micros() wraps after 4,294 s */

static bool timer_running;
static uint32_t start_us;
static uint32_t start_ms;

int32_t mt_port_init(void)
{
    Serial.begin(BAUD);
    while (!Serial) {
    }
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    size_t got = 0;
    while (got < capacity && Serial.available() > 0) {
        bytes[got++] = (uint8_t)Serial.read();
    }
    *count = got;
    return MT_OK;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const size_t written = Serial.write(bytes, count);
        bytes += written;
        count -= written;
    }
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = true;
    start_ms = millis();
    start_us = micros();
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    const uint32_t elapsed_us = (uint32_t)micros() - start_us; /* first, so that nothing else is measured */
    *elapsed_ns = 0;
    if (!timer_running) {
        return MT_TIMER_NOT_STARTED;
    }
    timer_running = false;
    if ((uint32_t)millis() - start_ms > LONGEST_MS) {
        return MT_TIMER_OVERFLOW;
    }
    *elapsed_ns = (uint64_t)elapsed_us * 1000u;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
#ifdef __AVR__
    return (uint32_t)(64000000000uLL / F_CPU); /* timer 0 counts every 64th cycle */
#else
    return 1000;
#endif
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    uint32_t state = micros();
    for (size_t i = 0; i < count; ++i) {
#ifdef A0
        state = state << 1 ^ state >> 31 ^ (uint32_t)analogRead(A0); /* the noise of an open input */
#endif
        state = state * 1664525u + 1013904223u + micros();
        bytes[i] = (uint8_t)(state >> 24);
    }
    return MT_OK;
}

void mt_port_abort(int32_t status)
{
    (void)status;
    for (;;) {
    }
}

void mt_port_idle(void)
{
    yield();
}
