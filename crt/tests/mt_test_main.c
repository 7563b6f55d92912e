/* The server as a process: the port over standard input and output, with a timer that a test can make overflow. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mtool.h"

#ifndef TEST_BUFFER_BYTES
#define TEST_BUFFER_BYTES 4096
#endif
#ifndef TEST_WINDOW_BYTES
#define TEST_WINDOW_BYTES 0
#endif
#ifndef TEST_BUILD_HASH
#define TEST_BUILD_HASH "feedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeedfeed"
#endif

#ifdef TEST_MODULES
struct mt_extension *mt_test_modules(void); /* mt_test_modules.c */
#endif

static uint8_t buffer[TEST_BUFFER_BYTES];
static uint32_t starts;
static int32_t is_running;

int32_t mt_port_init(void)
{
    return MT_OK;
}

int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    const ssize_t got = read(STDIN_FILENO, bytes, capacity);
    *count = got > 0 ? (size_t)got : 0;
    return got > 0 ? MT_OK : MT_IO;
}

int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t put = write(STDOUT_FILENO, bytes, count);
        if (put < 0) {
            return MT_IO;
        }
        bytes += put;
        count -= (size_t)put;
    }
    return MT_OK;
}

int32_t mt_port_timer_start(void)
{
    if (is_running) {
        return MT_TIMER_RUNNING;
    }
    is_running = 1;
    ++starts;
    return MT_OK;
}

/* The n-th measurement takes n microseconds; it overflows if TEST_OVERFLOW is in the environment. */
int32_t mt_port_timer_stop(uint64_t *elapsed_ns)
{
    *elapsed_ns = 0;
    if (!is_running) {
        return MT_TIMER_NOT_STARTED;
    }
    is_running = 0;
    if (getenv("TEST_OVERFLOW") != NULL) {
        return MT_TIMER_OVERFLOW;
    }
    *elapsed_ns = (uint64_t)starts * 1000u;
    return MT_OK;
}

uint32_t mt_port_timer_granularity_ns(void)
{
    return 7;
}

int32_t mt_port_random(uint8_t *bytes, size_t count)
{
    FILE *const source = getenv("TEST_NO_RANDOM") == NULL ? fopen("/dev/urandom", "rb") : NULL;
    const size_t got = source != NULL ? fread(bytes, 1, count, source) : 0;
    if (source != NULL) {
        fclose(source);
    }
    return got == count ? MT_OK : MT_NOT_SUPPORTED;
}

void mt_port_abort(int32_t status)
{
    exit((int)status);
}

void mt_port_idle(void)
{
    const struct timespec short_while = {0, 1000000};
    nanosleep(&short_while, NULL);
}

int main(void)
{
    const struct mt_server_config config = {
        .model = &mt_model,
        .build_hash = TEST_BUILD_HASH,
        .buffer = buffer,
        .buffer_bytes = sizeof buffer,
        .stack_low = NULL,
        .window_bytes = TEST_WINDOW_BYTES,
#ifdef TEST_MODULES
        .extension = mt_test_modules(),
#endif
    };
    if (getenv("TEST_TEXT") != NULL) { /* behave like a firmware without a server */
        printf("%s\n", getenv("TEST_TEXT"));
        fflush(stdout);
        for (uint8_t byte; read(STDIN_FILENO, &byte, 1) == 1;) {
        }
        return 0;
    }
    const int32_t status = mt_server_run(&config);
    fprintf(stderr, "the server returned %d\n", (int)status);
    return status == MT_IO ? 0 : 70 + (int)status;
}
