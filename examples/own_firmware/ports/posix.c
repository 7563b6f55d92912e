/* A program for Linux or macOS that serves a model at a pseudo-terminal, and prints its name. */
#define _XOPEN_SOURCE 600
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "mt_rpc.h"

static int terminal;

size_t mt_rpc_read(uint8_t *bytes, size_t capacity)
{
    struct pollfd waits = {terminal, POLLIN, 0};
    const ssize_t count = poll(&waits, 1, 0) > 0 ? read(terminal, bytes, capacity) : 0;
    return count > 0 ? (size_t)count : 0;
}

void mt_rpc_write(const uint8_t *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t sent = write(terminal, bytes, count);
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        }
    }
}

uint32_t mt_rpc_time(uint32_t *hz)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *hz = 1000000000;
    return (uint32_t)now.tv_sec * 1000000000u + (uint32_t)now.tv_nsec;
}

void mt_rpc_idle(void)
{
    struct pollfd waits = {terminal, POLLIN, 0};
    poll(&waits, 1, 100);
}

int main(void)
{
    struct termios raw;
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
        return 1;
    }
    const int kept_open = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    tcgetattr(kept_open, &raw);
    raw.c_lflag = 0;
    raw.c_iflag = 0;
    raw.c_oflag = 0;
    tcsetattr(kept_open, TCSANOW, &raw);
    puts(ptsname(terminal));
    fflush(stdout);
    for (;;) {
        mt_poll();
    }
}
