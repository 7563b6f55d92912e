"""Trials of a session over a bad line: a few in the tests, many in scripts/soak.py."""

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtool import manifest
from mtool.base.errors import CommunicationError
from mtool.boards import Board
from mtool.device.rpc import Client, protocol
from mtool.device.session import Device
from mtool.device.transport import SerialTransport, Transport
from mtool.device.transport.emulator import command
from mtool.manifest import Manifest
from tests.crt import firmware
from tests.device.rpc.bridge import HARMS, Bridge, Noise

BAUD = 115200
ZEPHYR = ("TEST_BUFFER_BYTES=4096", "TEST_WINDOW_BYTES=2048", "TEST_LARGE_BYTES=100000")  # its template's defaults
_START_S = 30.0
_SAMPLES = 8


@dataclass(frozen=True)
class Noisy:
    """What came of inferences over a noisy line: `wrong` differ from those over a clean one."""

    inferences: int
    wrong: int
    harmed: int
    resent: int
    seconds: float
    longest_s: float

    def __str__(self) -> str:
        what = (
            f"{self.inferences} inferences, {self.wrong} wrong, {self.harmed} bytes harmed, {self.resent} frames resent"
        )
        return f"{what}, {self.seconds:.1f} s, longest {self.longest_s:.2f} s"


def over_noise(folder: Path, *, count: int, harms: Sequence[str] = HARMS, rate: float = 1e-3, seed: int = 0) -> Noisy:
    """Run inferences of a built project over a pseudo-terminal that harms bytes, and compare each one's outputs."""
    described = manifest.load(folder)
    random = np.random.default_rng(seed)
    samples = [
        {t.name: random.integers(-128, 128, t.shape).astype(t.dtype) for t in described.inputs} for _ in range(_SAMPLES)
    ]
    argv = _argv(described, folder)
    with Bridge(argv) as bridge, _device(described, bridge) as device:
        expected = [device.run(sample) for sample in samples]
    noise = Noise(rate=rate, seed=2 * seed, harms=harms), Noise(rate=rate, seed=2 * seed + 1, harms=harms)
    wrong, longest_s, start = 0, 0.0, time.monotonic()
    with Bridge(argv, noise=noise) as bridge, _device(described, bridge) as device:
        for number in range(count):
            began = time.monotonic()
            found = device.run(samples[number % _SAMPLES])
            longest_s = max(longest_s, time.monotonic() - began)
            wrong += any(not np.array_equal(found[name], of) for name, of in expected[number % _SAMPLES].items())
        return Noisy(count, wrong, bridge.harmed, device.client.resent, time.monotonic() - start, longest_s)


def _argv(described: Manifest, folder: Path) -> list[str]:
    project = described.project
    assert project is not None
    board: Board = project.board
    program = (folder / project.firmware["host_driven"]).absolute()
    return command(board.emulator, program) if board.emulator else [str(program)]


def _device(described: Manifest, bridge: Bridge) -> Device:
    return Device(described, SerialTransport(bridge.port, baud=BAUD), timeout_s=_START_S)


class Crashing(Transport):
    """Close the channel and fail after `count` bytes in both directions, as a host that is killed."""

    def __init__(self, inner: Transport, count: int) -> None:
        self._inner = inner
        self._left = count
        self.name = inner.name
        self.bytes_per_second = inner.bytes_per_second
        self.is_lossless = inner.is_lossless

    def write(self, data: bytes, *, timeout_s: float) -> None:
        self._inner.write(data[: self._left], timeout_s=timeout_s)
        self._count(data)

    def read(self, *, timeout_s: float) -> bytes:
        data = self._inner.read(timeout_s=timeout_s)
        self._count(data)
        return data

    def close(self) -> None:
        self._inner.close()

    def _count(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left <= 0:
            self._inner.close()
            raise CommunicationError("the host has crashed")


@dataclass(frozen=True)
class Unplugged:
    """How often a conversation broke off at some byte, and the next session went right."""

    times: int
    reconnected: int
    longest_s: float

    def __str__(self) -> str:
        return f"reconnected {self.reconnected} times of {self.times}, longest {self.longest_s:.2f} s"


def unplug(*, times: int, seed: int = 0) -> Unplugged:
    """Break off conversations with one firmware at random bytes, by turns by the cable and by the host's end."""
    draw = random.Random(seed)
    values = np.random.default_rng(seed)
    reconnected, longest_s = 0, 0.0
    with Bridge([str(firmware.build())]) as bridge:
        runs = _converse(bridge, values)
        length = sum(line.carried for line in bridge.lines)
        for number in range(times):
            cut_at = draw.randrange(1, length * 9 // 10)
            if number % 2:
                bridge.cut_after = cut_at
            with contextlib.suppress(CommunicationError):
                _converse(bridge, values, crash_after=None if number % 2 else cut_at)
                raise AssertionError(f"the conversation of {length} bytes was not cut at {cut_at}")
            began = time.monotonic()
            found = _converse(bridge, values)
            longest_s = max(longest_s, time.monotonic() - began)
            reconnected += found - runs in (1, 2)  # the inference that was cut off may have been run
            runs = found
    return Unplugged(times, reconnected, longest_s)


def _converse(bridge: Bridge, values: np.random.Generator, *, crash_after: int | None = None) -> int:
    """Open a session, run an inference and check it; return how many the firmware has run since it was started."""
    x0 = values.integers(-128, 100, 300).astype(np.int8)
    x1 = values.standard_normal(5).astype(np.float32)
    x2 = values.integers(0, 256, 3000).astype(np.uint8)
    with SerialTransport(bridge.port, baud=BAUD) as port:
        client = Client(port if crash_after is None else Crashing(port, crash_after), timeout_s=_START_S)
        sizes = [1200, 20, 4, x2.size]
        y0, y1, y2, y3 = client.run([x0.tobytes(), x1.tobytes(), x2.tobytes()], sizes, work_s=5)
        client.close()
    assert np.array_equal(np.frombuffer(y0, np.int32), 3 * x0.astype(int) + np.arange(300))
    assert np.array_equal(np.frombuffer(y1, np.float32), 2 * x1)
    assert np.array_equal(np.frombuffer(y3, np.uint8), x2 ^ 0x5A)
    return int.from_bytes(y2, "little")


@dataclass(frozen=True)
class Rate:
    """How much of a line's rate was data, in each direction."""

    write: float
    read: float

    def __str__(self) -> str:
        return f"{self.write:.1%} of the line to the device, {self.read:.1%} from it"


def transfer(*, data_bytes: int, baud: int = BAUD) -> Rate:
    """Write `data_bytes` to the test firmware and read as many from it, over a line that is paced in real time."""
    values = np.random.default_rng(0)
    shares = []
    program = str(firmware.build(defines=ZEPHYR))
    with Bridge([program], baud=baud) as bridge, SerialTransport(bridge.port, baud=baud) as port:
        client = Client(port, timeout_s=_START_S)
        data = values.integers(0, 256, data_bytes).astype(np.uint8).tobytes()
        for direction in ("write", "read"):
            begin = time.monotonic()
            if direction == "write":
                client.write([b"", b"", data])
            else:
                assert client.read(protocol.INPUTS, [0, 0, data_bytes])[2] == data
            shares.append(data_bytes * 10 / baud / (time.monotonic() - begin))
    return Rate(*shares)
