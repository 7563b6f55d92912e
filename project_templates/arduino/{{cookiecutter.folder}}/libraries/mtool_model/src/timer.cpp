/* The timer of the port: on an AVR timer 1 counts the core's cycles, elsewhere micros() has to do. */
#include <Arduino.h>

extern "C" {
#include "mtool.h"
}

static bool timer_running;

#if defined(__AVR__) && defined(TCNT1) && defined(TIMSK1)
static volatile uint32_t wraps; /* of timer 1, each 65,536 cycles */
static uint8_t tccr1a, tccr1b, timsk0, timsk1; /* as the core, or a library, had them */

/* This file is linked where the timer is used alone (dot_a_linkage): elsewhere a sketch may have this interrupt. */
ISR(TIMER1_OVF_vect)
{
    ++wraps;
}

int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = true;
    Serial.flush(); /* what is still to be sent would interrupt */
    tccr1a = TCCR1A;
    tccr1b = TCCR1B;
    timsk0 = TIMSK0;
    timsk1 = TIMSK1;
    TIMSK0 = 0; /* the interrupt of millis() would count, now once more and now once less */
    TCCR1B = 0;
    TCCR1A = 0;
    TIMSK1 = _BV(TOIE1);
    TCNT1 = 0;
    TIFR1 = _BV(TOV1);
    wraps = 0;
    TCCR1B = _BV(CS10); /* each cycle */
    return MT_OK;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    if (!timer_running) {
        *elapsed_ns = 0;
        return MT_TIMER_NOT_STARTED;
    }
    const uint8_t sreg = SREG;
    cli();
    const uint16_t count = TCNT1;
    const uint32_t pending = (TIFR1 & _BV(TOV1)) && count < 0x8000 ? 1 : 0; /* a wrap that was not counted yet */
    const uint64_t cycles = ((uint64_t)(wraps + pending) << 16) + count;
    timer_running = false;
    TIMSK1 = timsk1;
    TCCR1A = tccr1a;
    TCCR1B = tccr1b;
    TIMSK0 = timsk0;
    SREG = sreg;
    *elapsed_ns = cycles * (1000000000uL / 8000) / (F_CPU / 8000);
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    return (uint32_t)((1000000000uLL + F_CPU - 1) / F_CPU);
}
#else
#define LONGEST_MS 4200000uL /* micros() wraps after 4,294 s */

static uint32_t start_us;
static uint32_t start_ms;

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
    return 1000;
}
#endif
