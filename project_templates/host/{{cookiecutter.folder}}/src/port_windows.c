/* The port and the guard on Windows. A fault is reported with its exception's number and without a place; there is no
 * watchdog: the host ends a process that does not answer. */
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define _CRT_RAND_S

#include <fcntl.h>
#include <io.h>
#include <stddef.h>
#include <stdlib.h>
#include <windows.h>

#include "mtool.h"

enum { FROM_HOST = 0, TO_HOST = 1, MOST = 1 << 20 };

static int timer_running;
static LARGE_INTEGER timer_start;

int32_t mt_port_init(void)
{
    return _setmode(FROM_HOST, _O_BINARY) >= 0 && _setmode(TO_HOST, _O_BINARY) >= 0 ? MT_OK : MT_IO;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    const int got = _read(FROM_HOST, bytes, (unsigned int)(capacity < MOST ? capacity : MOST));
    *count = got > 0 ? (size_t)got : 0;
    return got > 0 ? MT_OK : MT_IO;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const int put = _write(TO_HOST, bytes, (unsigned int)(count < MOST ? count : MOST));
        if (put <= 0) {
            return MT_IO;
        }
        bytes += put;
        count -= (size_t)put;
    }
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = 1;
    return QueryPerformanceCounter(&timer_start) ? MT_OK : MT_NOT_SUPPORTED;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    LARGE_INTEGER now, hz;
    const int works = QueryPerformanceCounter(&now) && QueryPerformanceFrequency(&hz);
    *elapsed_ns = 0;
    if (!timer_running) {
        return MT_TIMER_NOT_STARTED;
    }
    timer_running = 0;
    if (!works) {
        return MT_NOT_SUPPORTED;
    }
    const uint64_t ticks = (uint64_t)(now.QuadPart - timer_start.QuadPart);
    const uint64_t rate = (uint64_t)hz.QuadPart;
    *elapsed_ns = ticks / rate * 1000000000u + ticks % rate * 1000000000u / rate;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    LARGE_INTEGER hz;
    return QueryPerformanceFrequency(&hz) ? (uint32_t)((1000000000 + hz.QuadPart - 1) / hz.QuadPart) : 1000000000u;
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        unsigned int number;
        if (rand_s(&number) != 0) {
            return MT_NOT_SUPPORTED;
        }
        bytes[i] = (uint8_t)number;
    }
    return MT_OK;
}

void mt_port_idle(void)
{
}

static LONG WINAPI tell_fault(EXCEPTION_POINTERS *what)
{
    const DWORD code = what->ExceptionRecord->ExceptionCode;
    const uint8_t kind = code == EXCEPTION_STACK_OVERFLOW ? MT_FAULT_STACK : MT_FAULT_EXCEPTION;
    mt_server_fault(kind, MT_MACHINE_NONE, NULL, 0);
    return EXCEPTION_EXECUTE_HANDLER; /* the process ends with the exception's number */
}

void mt_guard_init(void)
{
    SetUnhandledExceptionFilter(tell_fault);
}

void mt_guard_watch(uint32_t limit_ms)
{
    (void)limit_ms;
}

void mt_port_abort(int32_t status)
{
    if (status != MT_OK) {
        mt_server_fault(MT_FAULT_ASSERTION, MT_MACHINE_NONE, NULL, 0);
    }
    exit((int)status);
}
#endif
