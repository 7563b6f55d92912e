"""The share of a serial line's rate used for data, with a clock that advances by the transferred bytes."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from mtool.device.rpc import Client, handshake, protocol, window
from mtool.device.rpc.framing import Decoder, encode
from mtool.device.rpc.protocol import Message
from mtool.device.transport import ProcessTransport, Transport
from tests.crt import firmware
from tests.device.rpc import trials

DATA_BYTES = 100_000
ADAPTER_S = {"a probe's UART": 0.001, "an adapter that waits for more": 0.016}
"""How long a USB adapter keeps what it received: a USB frame, and the timer of the FTDI chips."""


class Simulated(Transport):
    """A line of 10 bits a byte to a real firmware, which itself takes no time; `clock` is in seconds."""

    is_lossless = False

    def __init__(self, inner: Transport, *, baud: int, adapter_s: float) -> None:
        self._inner = inner
        self._byte_s = 10 / baud
        self._adapter_s = adapter_s
        self._sent, self._received = Decoder(), Decoder()
        self._free_at = [0.0, 0.0]
        self._arriving: deque[tuple[float, bytes]] = deque()
        self.name = inner.name
        self.bytes_per_second = baud / 10
        self.clock = 0.0

    def write(self, data: bytes, *, timeout_s: float) -> None:
        for frame in self._sent.feed(data):
            assert frame is not None
            encoded = encode(frame)
            arrived_at = self._carry(0, len(encoded), self.clock)
            self._inner.write(encoded, timeout_s=5)
            for reply in self._replies():
                at = self._carry(1, len(reply), arrived_at) + self._adapter_s
                self._arriving.append((at, reply))

    def read(self, *, timeout_s: float) -> bytes:
        if not self._arriving or self._arriving[0][0] > self.clock + timeout_s:
            self.clock += timeout_s
            return b""
        at, data = self._arriving.popleft()
        self.clock = max(self.clock, at)
        return data

    def close(self) -> None:
        self._inner.close()

    def _carry(self, way: int, count: int, begin: float) -> float:
        """Return when the last of `count` bytes arrives."""
        self._free_at[way] = max(self._free_at[way], begin) + count * self._byte_s
        return self._free_at[way]

    def _replies(self) -> list[bytes]:
        """Return the frames with which the firmware answers one, the last of them its reply."""
        frames: list[bytes] = []
        while True:
            for frame in self._received.feed(self._inner.read(timeout_s=5)):
                assert frame is not None
                frames.append(encode(frame))
                if frame.type != Message.MT_RUNNING:
                    return frames


@pytest.mark.slow
@pytest.mark.parametrize("adapter_s", ADAPTER_S.values(), ids=ADAPTER_S)
def test_a_large_tensor_takes_little_more_than_its_bytes(adapter_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(0).integers(0, 256, DATA_BYTES).astype(np.uint8).tobytes()
    line_s = DATA_BYTES * 10 / trials.BAUD
    program = firmware.build(defines=trials.ZEPHYR)
    with Simulated(ProcessTransport([str(program)], name="it"), baud=trials.BAUD, adapter_s=adapter_s) as line:
        for module in (handshake, window):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: line.clock))
        client = Client(line)
        begin = line.clock
        client.write([b"", b"", data])
        written = line.clock
        assert client.read(protocol.INPUTS, [0, 0, DATA_BYTES])[2] == data
        read = line.clock
    assert client.resent == 0
    assert line_s / (written - begin) >= 0.95
    assert line_s / (read - written) >= 0.95
    # The deadlines of later transfers follow from the speed that was measured.
    assert client.window.speed.bytes_per_second == pytest.approx(trials.BAUD / 10, rel=0.1)
