"""Serial ports, simulated by pseudo-terminals."""

import contextlib
import io
import os
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtool.base.errors import CommunicationError
from mtool.boards import Emulator
from mtool.device.transport import ProcessTransport, Recorder, SerialTransport, open_emulator
from mtool.device.transport.serial import through_terminal
from mtool.device.transport.through import Through

# A device whose UART is a pseudo-terminal: sends back what it gets, ends at "q".
DEVICE = """
import os, sys, tty
device, port = os.openpty()
tty.setraw(device)
print("starting", flush=True)
print("uart connected to pseudotty: " + os.ttyname(port), flush=True)
while (data := os.read(device, 4096)) != b"q":
    os.write(device, data)
sys.exit("assertion failed")
"""


@pytest.fixture
def line() -> Iterator[tuple[int, str]]:
    """Yield the device's end of a line, and the name of the port at the other end."""
    device, port = os.openpty()
    yield device, os.ttyname(port)
    for end in (device, port):
        with contextlib.suppress(OSError):
            os.close(end)


def test_bytes_go_both_ways_unchanged(line: tuple[int, str]) -> None:
    device, port = line
    every = bytes(range(256))
    with SerialTransport(port, baud=115200) as transport:
        assert (transport.name, transport.is_lossless) == (f"the port {port}", False)
        assert transport.bytes_per_second == 11520
        transport.write(every, timeout_s=5)
        assert os.read(device, 4096) == every
        os.write(device, every)
        received = b""
        while len(received) < len(every):
            received += transport.read(timeout_s=5)
        assert received == every
        started = time.monotonic()
        assert transport.read(timeout_s=0.05) == b""
        assert 0.04 < time.monotonic() - started < 2


def test_writing_much_while_much_arrives(line: tuple[int, str]) -> None:
    device, port = line
    total = 200_000

    def echo() -> None:
        left = total
        while left:
            data = os.read(device, 1024)
            os.write(device, data)
            left -= len(data)

    other_end = threading.Thread(target=echo, daemon=True)
    with SerialTransport(port, baud=115200) as transport:
        other_end.start()
        data = bytes(i * 7 & 0xFF for i in range(total))
        transport.write(data, timeout_s=30)
        received = b""
        while len(received) < total and (more := transport.read(timeout_s=5)):
            received += more
        assert received == data
    other_end.join(5)


def test_a_port_that_takes_nothing_is_reported(line: tuple[int, str]) -> None:
    with (
        SerialTransport(line[1], baud=115200) as transport,
        pytest.raises(CommunicationError, match=r"did not accept all bytes within 0\.2 s"),
    ):
        transport.write(bytes(1_000_000), timeout_s=0.2)


def test_a_port_is_opened_once(line: tuple[int, str]) -> None:
    with (
        SerialTransport(line[1], baud=115200),
        pytest.raises(CommunicationError, match="can't open") as caught,
    ):
        SerialTransport(line[1], baud=115200)
    assert "close the other program" in caught.value.hint


def test_the_rate_can_be_changed(line: tuple[int, str]) -> None:
    device, port = line
    lines = io.StringIO()
    with Recorder(SerialTransport(port, baud=115200), lines) as transport:
        os.write(device, b"at the wrong rate")
        assert (transport.baud, termios.tcgetattr(device)[4]) == (115200, termios.B115200)
        transport.set_baud(9600)
        assert (transport.baud, termios.tcgetattr(device)[4]) == (9600, termios.B9600)
        assert transport.read(timeout_s=0.05) == b""
    assert lines.getvalue() == ""


def test_a_port_of_this_computer_is_its_own(line: tuple[int, str]) -> None:
    with SerialTransport(line[1], baud=115200) as port, SerialTransport("loop://", baud=115200) as url:
        assert (port.is_exclusive, url.is_exclusive) == (True, False)


def test_a_missing_port_is_reported() -> None:
    with pytest.raises(CommunicationError, match="can't open the port /dev/ttyNONE") as caught:
        SerialTransport("/dev/ttyNONE", baud=115200)
    assert "No such file or directory" in caught.value.details[0]
    assert "mtool boards --attached" in caught.value.hint


def test_a_board_that_is_unplugged_is_reported() -> None:
    device, port = os.openpty()
    with SerialTransport(os.ttyname(port), baud=115200) as transport:
        os.close(device)
        os.close(port)
        with pytest.raises(CommunicationError, match="was lost"):
            transport.read(timeout_s=1)
    with pytest.raises(CommunicationError, match="was closed"):
        transport.write(b"x", timeout_s=1)


def test_a_url_of_pyserial_is_a_port() -> None:
    with SerialTransport("loop://", baud=115200) as transport:
        transport.write(b"around", timeout_s=1)
        assert transport.read(timeout_s=1) == b"around"


def test_a_program_that_announces_its_terminal_is_driven_through_it(tmp_path: Path) -> None:
    program = tmp_path / "device.py"
    program.write_text(DEVICE)
    machine = Emulator(program=sys.executable, arguments=("{elf}",), announces="connected to pseudotty: ")
    with open_emulator(machine, program, channel="uart") as transport:
        assert isinstance(transport, Through)
        transport.write(b"hello\r\n\x03\x04", timeout_s=5)
        received = b""
        while len(received) < 9:
            received += transport.read(timeout_s=5)
        assert received == b"hello\r\n\x03\x04"
        transport.write(b"q", timeout_s=5)
        with pytest.raises(CommunicationError, match="exit code 1") as caught:
            for _ in range(50):
                transport.read(timeout_s=0.1)
        assert "assertion failed" in caught.value.details


def test_a_program_that_announces_nothing_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "device.py"
    program.write_text("import time\nprint('booting', flush=True)\ntime.sleep(60)\n")
    with pytest.raises(CommunicationError, match=r"printed no terminal name within 0\.5 s") as caught:
        process = ProcessTransport([sys.executable, str(program)], name="it")
        through_terminal(process, announces="pty: ", baud=115200, timeout_s=0.5)
    assert "booting" in caught.value.details
