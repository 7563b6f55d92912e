"""Transports for tests: one that damages bytes, one that watches the window, one that acts as a device."""

import random
from collections import deque
from collections.abc import Callable, Sequence

from mtool.device.rpc.framing import Decoder, Frame
from mtool.device.rpc.protocol import REPLY, Message
from mtool.device.transport import Transport

HARMS = ("flip", "drop", "double")


class Lossy(Transport):
    """Harm one byte in `1 / rate`, in both directions, the same ones for the same seed."""

    is_lossless = False
    bytes_per_second = 1e6

    def __init__(self, inner: Transport, *, rate: float, seed: int, harms: Sequence[str] = HARMS) -> None:
        self._inner = inner
        self.rate = rate
        self._random = random.Random(seed)
        self._harms = harms
        self.name = inner.name
        self.harmed = 0

    def write(self, data: bytes, *, timeout_s: float) -> None:
        self._inner.write(self._harm(data), timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        return self._harm(self._inner.read(timeout_s=timeout_s))

    def close(self) -> None:
        self._inner.close()

    def _harm(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if self._random.random() >= self.rate:
                out.append(byte)
                continue
            self.harmed += 1
            harm = self._random.choice(self._harms)
            if harm == "flip":
                out.append(byte ^ 1 << self._random.randrange(8))
            elif harm == "double":
                out += bytes([byte, byte])
        return bytes(out)


class Watched(Transport):
    """Keep the most bytes and frames that were ever on their way to the device without a reply."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.name = inner.name
        self.bytes_per_second = inner.bytes_per_second
        self.is_lossless = inner.is_lossless
        self._decoders = Decoder(), Decoder()
        self._on_the_way: dict[int, int] = {}
        self.most_bytes = 0
        self.most_frames = 0

    def write(self, data: bytes, *, timeout_s: float) -> None:
        for piece in data.split(b"\0")[1::2]:
            (frame,) = self._decoders[0].feed(piece + b"\0")
            assert frame is not None
            if frame.type != Message.MT_HELLO:
                self._on_the_way[frame.sequence] = len(piece) + 2
        self.most_bytes = max(self.most_bytes, sum(self._on_the_way.values()))
        self.most_frames = max(self.most_frames, len(self._on_the_way))
        self._inner.write(data, timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        data = self._inner.read(timeout_s=timeout_s)
        for frame in self._decoders[1].feed(data):
            if frame is not None and frame.type & REPLY and frame.type < Message.MT_RESEND:
                self._on_the_way.pop(frame.sequence, None)
        return data

    def close(self) -> None:
        self._inner.close()


class Scripted(Transport):
    """A device in Python: `answer` is given each frame and returns the bytes to send back."""

    name = "the scripted device"
    bytes_per_second = 1e6
    is_lossless = True

    def __init__(self, answer: Callable[[Frame], bytes], *, before: bytes = b"") -> None:
        self._answer = answer
        self._decoder = Decoder()
        self._waiting = deque([before] if before else [])
        self.seen: list[Frame] = []

    def write(self, data: bytes, *, timeout_s: float) -> None:
        for frame in self._decoder.feed(data):
            assert frame is not None
            self.seen.append(frame)
            if reply := self._answer(frame):
                self._waiting.append(reply)

    def read(self, *, timeout_s: float) -> bytes:
        return self._waiting.popleft() if self._waiting else b""

    def close(self) -> None:
        pass
