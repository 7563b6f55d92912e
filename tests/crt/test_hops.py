"""A program that processes hops (crt/apps/mt_hops.c), with a sensor that ticks: listening, replay and recording."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mtool.commands.replaying import Clip, Program
from mtool.device.transport.base import Transport

CRT = Path(__file__).parents[2] / "crt"
PROGRAM = r"""
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "mt_hops.h"
#include "mtool.h"
static int16_t buffer[4];
static int16_t next;
int32_t mt_port_init(void) { return MT_OK; }
int32_t mt_port_read(uint8_t *bytes, size_t capacity, size_t *count)
{
    struct pollfd file = {STDIN_FILENO, POLLIN, 0};
    *count = 0;
    if (poll(&file, 1, 0) > 0) {
        const ssize_t got = read(STDIN_FILENO, bytes, capacity);
        *count = got > 0 ? (size_t)got : 0;
        return got > 0 ? MT_OK : MT_IO;
    }
    return MT_OK;
}
int32_t mt_port_write(const uint8_t *bytes, size_t count)
{
    return write(STDOUT_FILENO, bytes, count) == (ssize_t)count ? MT_OK : MT_IO;
}
void mt_port_idle(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }
int32_t mt_port_timer_start(void) { return MT_OK; }
int32_t mt_port_timer_stop(uint64_t *elapsed_ns) { *elapsed_ns = 250000; return MT_OK; }
/* Every eighth hop is lost. */
static int32_t sense(uint8_t *bytes, uint32_t *lost)
{
    nanosleep(&(struct timespec){0, 2000000}, NULL);
    *lost = next % 7 == 6;
    for (int i = 0; i < 4; ++i) {
        ((int16_t *)bytes)[i] = next;
    }
    ++next;
    return MT_SENSOR_HOP;
}
int main(void)
{
    static struct mt_hops hops = {.bytes = sizeof buffer, .hop_us = HOP_US, .report_s = REPORT_S, .sense = sense};
    hops.buffer = (uint8_t *)buffer;
    int32_t status = mt_hops_begin(&hops);
    hops.count = BEFORE;
    hops.busy_us = (uint64_t)BEFORE * 250;
    hops.whole_us = (uint64_t)BEFORE * HOP_US;
    while (status == MT_OK) {
        status = mt_hops_next(&hops);
        if (status == MT_OK) {
            status = mt_hops_done(&hops, buffer[0] == 7 ? 2 : -1, buffer[0] + 100 * hops.is_first);
        }
    }
    return status == MT_IO ? 0 : 1;
}
"""


class Pipe(Transport):
    """The program's pipes."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def write(self, data: bytes, *, timeout_s: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def read(self, *, timeout_s: float) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(64) or b""

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        assert self.process.wait(10) == 0, "it ends when the host closes the channel"


@pytest.fixture
def pipe(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pipe]:
    values = zip(("HOP_US", "REPORT_S", "BEFORE"), getattr(request, "param", (50_000, 1, 0)), strict=True)
    (tmp_path / "hops.c").write_text(PROGRAM)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]
    folders = [f"-I{CRT / 'include'}", f"-I{CRT / 'apps'}"]
    sources = [tmp_path / "hops.c", CRT / "apps" / "mt_hops.c"]
    flags += [f"-D{name}={value}u" for name, value in values]
    subprocess.run(["cc", *flags, *folders, *sources, "-o", tmp_path / "hops"], check=True)
    opened = Pipe(tmp_path / "hops")
    yield opened
    opened.close()


def reported(pipe: Pipe) -> str:
    """Return the first report."""
    deadline, said = time.monotonic() + 20, b""
    while said.count(b"\n") < 2 and time.monotonic() < deadline:
        said += pipe.read(timeout_s=1)
    return said.decode().splitlines()[0]


@pytest.mark.parametrize(
    ("pipe", "counted", "duty"),
    [
        ((400_000_000, 8000, 0), 20, "0.0"),
        ((50_000, 1, 2**32 - 10), 10, "0.4"),
        ((50_000, 1, 2**31), 2**31 + 20, "0.4"),
    ],
    indirect=["pipe"],
)
def test_statistics_of_months(pipe: Pipe, counted: int, duty: str) -> None:
    """More microseconds between reports, and more hops, than 32 bits have."""
    first = reported(pipe)
    assert first.startswith(f"hops {counted}, ") and first.endswith(f" us, duty cycle {duty}%"), first


def test_listening_replay_and_recording(pipe: Pipe) -> None:
    assert reported(pipe) == "hops 20, missed 2, longest 250 us, duty cycle 0.4%"
    program = Program(pipe)
    assert program.begin() == 8
    clip = Clip(Path("a.wav"), np.int16([5] * 4 + [7] * 4 + [9]), None)
    assert program.replay(clip, 8) == [(250000, -1, 105), (250000, 2, 7), (250000, -1, 9)]
    data, lost = program.record(program.begin(), 30 / 16_000, 16_000)
    samples = np.frombuffer(data, "<i2").reshape(-1, 4)
    assert len(samples) == 8 and (samples == samples[:, :1]).all(), "hops of 4 samples, each whole"
    assert (np.diff(samples[:, 0]) == 1).all() and lost == sum(one % 7 == 6 for one in samples[1:, 0])
