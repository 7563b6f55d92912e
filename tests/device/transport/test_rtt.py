"""SEGGER RTT: the host's side against a simulated firmware side, in a few hundred bytes of memory."""

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtool.base.errors import BuildError, CommunicationError
from mtool.device.transport import open_port
from mtool.device.transport.rtt import RttTransport

BASE = 0x20000000
BLOCK, UP, DOWN = 64, 256, 512  # from BASE on
SIZE = 16  # of each ring


class Chip:
    """A memory with a control block in it; the firmware sends back what it gets, whenever the chip is held."""

    name = "a chip"

    def __init__(self, *, ups: int = 1) -> None:
        self.bytes = bytearray(1024)
        rings = [(0, BASE + UP, SIZE, 0, 0, 2)] + [(0, 0, 0, 0, 0, 0)] * (ups - 1) + [(0, BASE + DOWN, SIZE, 0, 0, 2)]
        struct.pack_into("<16sii", self.bytes, BLOCK, b"SEGGER RTT", ups, 1)
        for number, ring in enumerate(rings):
            struct.pack_into("<6I", self.bytes, BLOCK + 24 + 24 * number, *ring)
        self.up, self.down = BLOCK + 24, BLOCK + 24 + 24 * ups
        self.is_closed = False

    def read(self, address: int, count: int) -> bytes:
        return bytes(self.bytes[address - BASE : address - BASE + count])

    def write(self, address: int, data: bytes) -> None:
        self.bytes[address - BASE : address - BASE + len(data)] = data

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        yield
        while (read := self._word(self.down + 16)) != self._word(self.down + 12):
            written = self._word(self.up + 12)
            if (written + 1) % SIZE == self._word(self.up + 16):
                break
            self.bytes[UP + written] = self.bytes[DOWN + read]
            struct.pack_into("<I", self.bytes, self.up + 12, (written + 1) % SIZE)
            struct.pack_into("<I", self.bytes, self.down + 16, (read + 1) % SIZE)

    def close(self) -> None:
        self.is_closed = True

    def _word(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.bytes, at)[0])


@pytest.mark.parametrize("ups", [1, 3])
def test_bytes_go_round_small_rings(ups: int) -> None:
    every = bytes(range(256))
    chip = Chip(ups=ups)
    with RttTransport(chip, BASE + BLOCK) as transport:
        assert transport.read(timeout_s=0.01) == b""
        transport.write(every, timeout_s=10)
        received = b""
        while len(received) < len(every) and (more := transport.read(timeout_s=1)):
            received += more
        assert received == every
    assert chip.is_closed


def test_a_firmware_that_takes_nothing() -> None:
    chip = Chip()
    chip.access = contextlib.nullcontext  # type: ignore[assignment,method-assign]
    with RttTransport(chip, BASE + BLOCK) as transport:
        transport.write(bytes(SIZE - 1), timeout_s=1)
        with pytest.raises(CommunicationError, match=r"RTT through a chip did not accept all bytes within 0\.01 s"):
            transport.write(b"x", timeout_s=0.01)


def test_no_control_block_and_one_that_is_damaged() -> None:
    chip = Chip()
    with pytest.raises(CommunicationError, match="no control block at 0x20000000") as reported:
        RttTransport(chip, BASE, start_s=0.01)
    assert "channel=rtt" in reported.value.hint and chip.is_closed
    struct.pack_into("<I", chip.bytes, chip.up + 12, SIZE)
    transport = RttTransport(chip, BASE + BLOCK)
    with pytest.raises(CommunicationError, match="the ring at 0x20000058 is damaged"):
        transport.read(timeout_s=0.01)


PYOCD = {  # what of pyOCD 0.36 is used, played: its channels, its session, a chip that sends back what it gets
    "__init__.py": "",
    "core/__init__.py": "",
    "debug/__init__.py": "",
    "core/exceptions.py": "class RTTError(Exception): pass",
    "core/helpers.py": """
class Session:
    board = type("Board", (), {"target": type("Target", (), {"resume": lambda self: None})()})()
    def __enter__(self): return self
    def __exit__(self, *_): pass
class ConnectHelper:
    @staticmethod
    def session_with_chosen_probe(*, unique_id, target_override, blocking, return_first, options):
        return Session() if (unique_id, target_override) == ("0670FF", "stm32l4r5zitx") else None
""",
    "debug/rtt.py": """
kept = []
class Up:
    def read(self):
        data = b"".join(kept)
        kept.clear()
        return data
class Down:
    def write(self, data):
        kept.append(data[:7])
        return len(data[:7])
class RTTControlBlock:
    up_channels, down_channels = (), ()
    @classmethod
    def from_target(cls, target, address=None, size=None):
        assert (address, size) == (0x20000400, 0)
        return cls()
    def start(self):
        self.up_channels, self.down_channels = [Up()], [Down()]
""",
}


def test_through_pyocd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = "rtt:pyocd:stm32l4r5zitx@0x20000400"
    with monkeypatch.context() as without, pytest.raises(BuildError, match="pyOCD is not installed beside mtool"):
        without.setattr("importlib.util.find_spec", lambda name: None)
        open_port(port, baud=115200)
    for name, text in PYOCD.items():
        (tmp_path / "pyocd" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pyocd" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sys.modules.pop("pyocd", None)
    every = bytes(range(256))
    with open_port(port, baud=115200, probe="0670FF") as transport:
        transport.write(every, timeout_s=5)
        received = b""
        while len(received) < len(every) and (more := transport.read(timeout_s=5)):
            received += more
        assert received == every
    with open_port(port, baud=115200) as transport, pytest.raises(CommunicationError, match="exit code 1") as reported:
        transport.read(timeout_s=5)
    assert "pyOCD found no debug probe" in reported.value.details
