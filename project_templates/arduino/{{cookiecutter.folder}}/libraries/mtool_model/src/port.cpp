/* The port with Arduino's own functions; the timer is in timer.cpp. */
#include <Arduino.h>

extern "C" {
#include "mtool.h"
}

#define BAUD {{ cookiecutter.board.usb.uart }}
#define HOST_MS 3000 /* how long a USB port waits for a host; a program of its own runs without one */

int32_t mt_port_init(void)
{
    Serial.begin(BAUD);
    for (const uint32_t start = millis(); !Serial && millis() - start < HOST_MS;) {
    }
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    size_t got = 0;
#ifdef GPIOR0
    GPIOR0 = 1; /* an emulator sends bytes after this alone, so that none interrupts a measurement */
#endif
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
        if (written == 0 && !Serial) {
            break; /* no host listens */
        }
        bytes += written;
        count -= written;
    }
    return MT_OK;
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
