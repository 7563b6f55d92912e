"""`mtool monitor`, with a pseudo-terminal as the board."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtool.cli import app, monitor
from mtool.cli.output import Output
from mtool.device import transport
from mtool.device.rpc.framing import Frame, encode
from mtool.device.rpc.protocol import REPLY, Message
from mtool.device.session.monitoring import DeviceOutput, Listener
from mtool.manifest import link_key
from tests.device.session import projects

Captured = pytest.CaptureFixture[str]
LOG = encode(Frame(Message.MT_LOG, 0, 0, b"arena is full"))
FAULT = encode(Frame(Message.MT_FAULT, 0x1234, 0, bytes([1, 0, 0, 0])))
PONG = encode(Frame(Message.MT_PING | REPLY, 0x1234, 7, b"\0"))


def heard(*pieces: bytes) -> list[tuple[str, str]]:
    listener = Listener()
    found: list[DeviceOutput] = [one for piece in pieces for one in listener.feed(piece)]
    return [(one.kind, one.text) for one in [*found, *listener.flush()]]


def test_text_frames_and_noise_are_distinguished() -> None:
    stream = b"booting\r\n" + LOG + "grüße\n".encode() + PONG + b"\x80\x81\x82" + FAULT + b"> "
    expected = [
        ("text", "booting"),
        ("log", "arena is full"),
        ("text", "grüße"),
        ("rpc", "PING reply  session 1234  #7  MT_OK: success  1 B"),
        ("bytes", "3 B, neither a frame nor text: 80 81 82"),
        ("fault", "MT_FAULT_EXCEPTION in operator 0"),
        ("text", "> "),
    ]
    whole = heard(stream)
    assert whole == expected
    assert heard(*(stream[at : at + 1] for at in range(len(stream)))) == whole
    assert [kind for kind, _ in heard(b"\xff" * 10_000)] == ["bytes"]


def test_the_mac_of_an_authenticated_log_is_left_out() -> None:
    listener = Listener(is_sealed=True)
    log = encode(Frame(Message.MT_LOG, 0, 0, b"arena is full" + bytes(range(200, 208))))
    assert [*listener.feed(log)] == [DeviceOutput("log", "arena is full")]


def test_lines_before_noise_are_text() -> None:
    stream = b"\0booting\r\n\nready\r\n\xff\x80\n\0"
    whole = heard(stream)
    assert whole == [
        ("text", "booting"),
        ("text", ""),
        ("text", "ready"),
        ("bytes", "3 B, neither a frame nor text: ff 80 0a"),
    ]
    assert heard(stream[:-1]) == whole, "nor when nothing more comes"


@pytest.fixture
def line() -> Iterator[tuple[int, str]]:
    device, port = os.openpty()
    yield device, os.ttyname(port)
    os.close(device)
    os.close(port)


@pytest.mark.slow
def test_a_board_is_heard(
    line: tuple[int, str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, port = line
    folder = projects.write(tmp_path / "project")
    opens, shows, ends = transport.open_port, monitor.show_message, monitor.is_over
    shown: list[DeviceOutput] = []
    latest = time.monotonic() + 30

    def opened(*arguments: Any, **options: Any) -> transport.Transport:
        """Write once there is a reader: earlier output is discarded."""
        channel = opens(*arguments, **options)
        os.write(device, b"hello\n" + LOG + FAULT)
        return channel

    def show(out: Output, heard: DeviceOutput, seconds: float) -> None:
        shown.append(heard)
        shows(out, heard, seconds)

    def is_over(until: float | None) -> bool:
        return ends(until) and (len(shown) >= 3 or time.monotonic() > latest)

    monkeypatch.setattr(transport, "open_port", opened)
    monkeypatch.setattr(monitor, "show_message", show)
    monkeypatch.setattr(monitor, "is_over", is_over)
    link_key.make(tmp_path / "a.key")
    assert app.invoke(["monitor", str(folder), "-p", port, "--for", "0.1", "--link-key", str(tmp_path / "a.key")]) == 0
    assert shown[1] == DeviceOutput("log", "arena") and capsys.readouterr()
    for arguments in ([], ["--json"]):
        shown.clear()
        assert app.invoke(["monitor", str(folder), "-p", port, "--for", "0.1", *arguments]) == 0
        reported = capsys.readouterr()
        assert f"listening to the port {port} at 115200 baud" in reported.err
        if arguments:
            rows = [json.loads(row) for row in reported.out.splitlines()]
            assert [row["kind"] for row in rows[:3]] == ["text", "log", "fault"]
        else:
            assert reported.out.splitlines()[:2] == ["hello", "log   arena is full"]
            assert reported.out.splitlines()[2].startswith("fault fault in operator 0")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--port", "/dev/ttyNONE"], 6, "port /dev/ttyNONE not found"),
        (["--board", "mps2_an386"], 2, "mps2_an386 has no port: it runs only while mtool starts it"),
        (["--board", "nucleo_l4r5zi"], 6, "no nucleo_l4r5zi is attached"),
        (["--port", "tcp://127.0.0.1:1"], 8, "can't connect to tcp://127.0.0.1:1"),
        (["--port", "rtt:gdb:127.0.0.1:1"], 2, "the address of RTT's control block is unknown"),
        (["--port", "rtt:gdb:127.0.0.1:1@0x20000000"], 8, "can't connect to the gdb server 127.0.0.1:1"),
        ([], 6, "nothing with a serial port is attached"),
        (["nowhere"], 2, "nowhere"),
    ],
)
def test_nothing_to_hear(
    arguments: list[str], code: int, says: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtool.device.flash.ports.attached", lambda: [])
    assert app.invoke(["monitor", *arguments, "--for", "0.1"]) == code
    assert says in capsys.readouterr().err
