"""Channels over TCP, and `--port` addresses."""

import socket
import threading
from collections.abc import Iterator

import pytest

from mtool.base.errors import CommunicationError, UsageError
from mtool.device.transport import open_port, opening
from mtool.device.transport.opening import Address


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def _port(server: socket.socket) -> str:
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_much_goes_both_ways_at_once(listener: socket.socket) -> None:
    total = 2_000_000

    def echo() -> None:
        end, _ = listener.accept()
        with end:
            left = total
            while left:
                data = end.recv(4096)
                end.sendall(data)
                left -= len(data)

    threading.Thread(target=echo, daemon=True).start()
    data = bytes(i * 7 & 0xFF for i in range(1000)) * (total // 1000)
    received = b""
    with open_port(_port(listener), baud=115200) as transport:
        assert transport.read(timeout_s=0.01) == b""
        transport.write(data, timeout_s=30)
        while len(received) < total and (more := transport.read(timeout_s=5)):
            received += more
        assert received == data
        with pytest.raises(CommunicationError, match="was lost"):
            transport.read(timeout_s=5)
    with pytest.raises(CommunicationError, match="was closed"):
        transport.write(b"x", timeout_s=1)


def test_nothing_listens(listener: socket.socket) -> None:
    port = _port(listener)
    listener.close()
    with pytest.raises(CommunicationError, match=f"can't connect to {port}"):
        open_port(port, baud=115200)
    with pytest.raises(CommunicationError, match="RTT through openocd") as reported:
        open_port(port.replace("tcp://", "rtt:openocd:") + "@0x20000010", baud=115200)
    assert 'rtt setup 0x20000010 64 "SEGGER RTT"' in reported.value.hint


@pytest.mark.parametrize(
    ("port", "meant"),
    [
        ("/dev/ttyACM0", None),
        ("COM3", None),
        ("socket://here:1", None),
        ("tcp://[::1]:4000", Address("tcp", "::1", 4000)),
        ("tcp:board.local:1", Address("tcp", "board.local", 1)),
        ("rtt:jlink", Address("jlink", port=19021)),
        ("rtt:openocd:box:9091@0x20000400", Address("openocd", "box", 9091, block=0x20000400)),
        ("rtt:pyocd:stm32l4r5zitx", Address("pyocd", target="stm32l4r5zitx")),
        ("rtt:gdb:localhost:1234", Address("gdb", "localhost", 1234)),
    ],
)
def test_an_address(port: str, meant: object) -> None:
    assert opening.parse(port) == meant


@pytest.mark.parametrize(
    ("port", "says"),
    [
        ("tcp://localhost", "HOST:PORT is missing"),
        ("tcp://localhost:99999", "99999 is not a TCP port"),
        ("tcp://:4000", "HOST:PORT is missing"),
        ("rtt", "the reader of RTT is missing"),
        ("rtt:jlnk", "'jlnk' is not a reader of RTT"),
        ("rtt:gdb", "HOST:PORT is missing"),
        ("rtt:jlink@20000000", "is not an address of a control block"),
    ],
)
def test_a_malformed_address_lists_the_forms(port: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as reported:
        opening.parse(port)
    assert any("rtt:openocd" in line for line in reported.value.details)
