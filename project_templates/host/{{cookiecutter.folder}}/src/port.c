/* The port over this process's standard input and output (POSIX.1-2008; for Windows see port_windows.c). */
#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L

#include "mtool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>


static int timer_running;
static struct timespec timer_start;

int32_t mt_port_init(void)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a status of mt_port_write, not a signal */
    return MT_OK;
}

static int32_t read_some(int file, uint8_t *bytes, size_t capacity, size_t *count)
{
    ssize_t got;
    do {
        got = read(file, bytes, capacity);
    } while (got < 0 && errno == EINTR);
    *count = got > 0 ? (size_t)got : 0;
    return got > 0 ? MT_OK : MT_IO;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    return read_some(STDIN_FILENO, bytes, capacity, count);
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t put = write(STDOUT_FILENO, bytes, count);
        if (put < 0 && errno != EINTR) {
            return MT_IO;
        }
        if (put > 0) {
            bytes += put;
            count -= (size_t)put;
        }
    }
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    if (timer_running) {
        return MT_TIMER_RUNNING;
    }
    timer_running = 1;
    return clock_gettime(CLOCK_MONOTONIC, &timer_start) == 0 ? MT_OK : MT_NOT_SUPPORTED;
}

int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    struct timespec now;
    const int failed = clock_gettime(CLOCK_MONOTONIC, &now);
    *elapsed_ns = 0;
    if (!timer_running) {
        return MT_TIMER_NOT_STARTED;
    }
    timer_running = 0;
    if (failed) {
        return MT_NOT_SUPPORTED;
    }
    const int64_t seconds = (int64_t)now.tv_sec - (int64_t)timer_start.tv_sec;
    *elapsed_ns = (uint64_t)(seconds * 1000000000 + (int64_t)now.tv_nsec - (int64_t)timer_start.tv_nsec);
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    struct timespec step;
    if (clock_getres(CLOCK_MONOTONIC, &step) != 0 || step.tv_sec > 0 || step.tv_nsec < 1) {
        return 1000000000u;
    }
    return (uint32_t)step.tv_nsec;
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    size_t got = 0;
    const int source = open("/dev/urandom", O_RDONLY);
    if (source < 0) {
        return MT_NOT_SUPPORTED;
    }
    const int32_t status = read_some(source, bytes, count, &got);
    close(source);
    return status == MT_OK && got == count ? MT_OK : MT_IO;
}

void mt_port_idle(void)
{
}
#endif
