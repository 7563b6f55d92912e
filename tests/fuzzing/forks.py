"""Run a function in a separate process, within time and memory limits, and return how it ended.

The parent has everything imported already; a child is a fork of it and takes milliseconds to start.
"""

import faulthandler
import os
import pickle
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Ending = Literal["done", "traceback", "slow", "big", "crash"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child may use: CPU seconds, and bytes beyond what the parent has mapped; None: as many as there are."""

    cpu_s: int = 20
    memory_bytes: int | None = 2 << 30


@dataclass(frozen=True, slots=True)
class Result:
    """How a child ended; `value` is what the function returned, `words` its traceback or that of the moment it died."""

    ending: Ending
    value: Any = None
    words: str = ""
    cpu_s: float = 0.0
    peak_bytes: int = 0


def call(function: Callable[[], Any], limits: Limits) -> Result:
    """Run a function in a fork and return its result, which must pickle."""
    before, resident = _own_bytes()
    read, write = os.pipe()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            os.close(read)
            _work(function, limits, before, write, said.fileno())
        os.close(write)
        data, in_time = _read_all(read, limits.cpu_s * 6 + 30)
        if not in_time:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        said.seek(0)
        words = said.read().decode(errors="replace")
    peak, cpu_s = used.ru_maxrss * 1024, used.ru_utime + used.ru_stime
    if not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
        return Result("slow", None, words, cpu_s, peak)
    if os.WIFSIGNALED(status) or not data:
        return Result("crash", None, f"signal {status & 127}, status {status >> 8}\n{words}", cpu_s, peak)
    ending, value = pickle.loads(data)
    if ending != "done":
        return Result(ending, None, value, cpu_s, peak)
    big = limits.memory_bytes is not None and peak > resident + limits.memory_bytes  # beside what was there at the fork
    return Result("big" if big else "done", value, words, cpu_s, peak)


def _work(function: Callable[[], Any], limits: Limits, before: int, write: int, said: int) -> None:
    """Be the child."""
    os.dup2(said, 1)
    os.dup2(said, 2)
    faulthandler.enable(2)
    faulthandler.register(signal.SIGXCPU, 2, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (before + limits.memory_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    try:
        answer: tuple[str, Any] = ("done", function())
    except MemoryError:
        answer = ("big", traceback.format_exc())
    except BaseException:
        answer = ("traceback", traceback.format_exc())
    try:
        data = pickle.dumps(answer)
    except Exception:
        data = pickle.dumps(("traceback", traceback.format_exc()))
    while data:
        data = data[os.write(write, data) :]
    sys.stderr.flush()
    os._exit(0)


def _read_all(pipe: int, seconds: float) -> tuple[bytes, bool]:
    """Read to the end of a pipe; whether that came in time."""
    parts, end = [], time.monotonic() + seconds
    while True:
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            os.close(pipe)
            return b"", False
        part = os.read(pipe, 1 << 20)
        if not part:
            os.close(pipe)
            return b"".join(parts), True
        parts.append(part)


def _own_bytes() -> tuple[int, int]:
    """Return how many bytes this process has mapped, and how many of them are in memory."""
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(mapped) * os.sysconf("SC_PAGE_SIZE"), int(resident) * os.sysconf("SC_PAGE_SIZE")


def cause(words: str) -> str:
    """Return what a traceback has in common with others of the same cause: its innermost frame in mtool, its class."""
    frames = re.findall(r'File "[^"]*?/mtool/([^"]+)", line (\d+),? in (\S+)', words)
    if "most recent call first" in words:
        frames.reverse()
    lines = [line for line in words.strip().splitlines() if line and not line.startswith((" ", "Traceback", "During"))]
    kind = lines[-1].split(":")[0][:60] if lines and "most recent call last" in words else ""
    if not frames:
        return kind or "outside of mtool"
    file, _, function = frames[-1]
    return f"{file}:{function} {kind}".strip() if kind else f"{file}:{function}"
