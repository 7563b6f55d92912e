"""Errors if the other end is not the expected firmware."""

import struct
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mtool.base.errors import CommunicationError
from mtool.device.rpc import Client, Expected, handshake
from mtool.device.rpc.framing import Frame, encode
from mtool.device.rpc.protocol import REPLY, Message
from tests.device.rpc.channels import Scripted

HERE = Expected("kws", "8a21" * 16, "3f9c" * 16)


def reply_to(
    frame: Frame, *, version: int = 1, model: str = "kws", of: str = "8a21" * 4, build: str = "3f9c" * 4
) -> bytes:
    head = struct.pack("<BB4sHIB", 0, version, frame.payload[1:5], 1000, 0, 16)
    payload = head + build.encode() + of.encode() + model.encode()
    return encode(Frame(Message.MT_HELLO | REPLY, frame.session, frame.sequence, payload))


def refused(transport: Scripted) -> CommunicationError:
    with pytest.raises(CommunicationError) as caught:
        Client(transport, expected=HERE, timeout_s=0.25)
    return caught.value


def test_the_right_firmware() -> None:
    device = Scripted(reply_to, before=b"*** Booting ***\r\n")
    hello = Client(device, expected=HERE, timeout_s=1).hello
    assert (hello.model, hello.packet_bytes, hello.window_bytes, hello.window_frames) == ("kws", 1000, 0, 16)
    assert len(device.seen) == 1


def test_another_model() -> None:
    error = refused(Scripted(lambda frame: reply_to(frame, model="person", of="11d0" * 4, build="77ab" * 4)))
    assert str(error).splitlines()[:3] == [
        "the scripted device runs another model",
        "  here    kws     model 8a218a21  build 3f9c3f9c",
        "  device  person  model 11d011d0  build 77ab77ab",
    ]
    assert error.exit_code == 8


def test_another_build() -> None:
    error = refused(Scripted(lambda frame: reply_to(frame, build="3f9c3f9c3f9c3f9d")))
    assert error.what == "the scripted device runs another build of this model"
    assert error.hint is not None and "--on PACKAGE" in error.hint


def test_another_protocol() -> None:
    error = refused(Scripted(lambda frame: reply_to(frame, version=2)[:-1] + b"\0"))
    assert error.what == "the scripted device uses another version of the protocol"
    assert error.details == ("here    version 1", "device  version 2")


def test_nothing_answers() -> None:
    device = Scripted(lambda frame: b"")
    assert refused(device).what == "no answer: the scripted device sent nothing within 0.25 s"
    assert len(device.seen) >= 2


def test_nothing_answers_on_a_board_of_the_users_own() -> None:
    with pytest.raises(CommunicationError) as caught:
        Client(Scripted(lambda frame: b""), expected=replace(HERE, entry="my_f407"), timeout_s=0.05)
    assert "in the entry of my_f407: ports.uart (base, irq)" in caught.value.hint


def test_text_and_no_frames() -> None:
    error = refused(Scripted(lambda frame: b"hello world\r\ntemperature: 21.5 \xc2\xb0C\r\n"))
    assert error.what == "the scripted device prints text, but sends no frames"
    assert error.details[-1] == "  temperature: 21.5 \xc2\xb0C"


def test_bytes_that_are_neither() -> None:
    error = refused(Scripted(lambda frame: bytes(range(128, 256))))
    assert error.what == "the scripted device sends bytes, but no valid frames"
    assert "baud" in error.hint


def test_the_answer_to_an_earlier_host_is_not_taken() -> None:
    def late(frame: Frame) -> bytes:
        return reply_to(Frame(frame.type, frame.session, 0, b"\1late"))

    assert refused(Scripted(late)).what.startswith(("the scripted device sends", "no answer"))


def test_a_reply_to_something_else_is_not_taken() -> None:
    def other(frame: Frame) -> bytes:
        right = struct.pack("<BB4sHIB", 0, 1, frame.payload[1:5], 1000, 0, 16) + bytes(36)
        kinds = (Message.MT_HELLO, Message.MT_INFO | REPLY, Message.MT_FAULT, 0)
        return b"".join(encode(Frame(kind, frame.session, frame.sequence, right)) for kind in kinds)

    assert refused(Scripted(other)).what == "no answer: the scripted device sent nothing within 0.25 s"


class Wired(Scripted):
    """A device at the other end of a line with a rate, which understands one rate only."""

    def __init__(self, right: int, answer: Callable[[Frame], bytes] = reply_to) -> None:
        super().__init__(lambda frame: answer(frame) if self.baud == right else b"\xff\xfe")
        self.baud, self.tried = 115200, list[int]()

    def set_baud(self, baud: int) -> None:
        self.tried.append(baud)
        if baud == 9600:
            raise CommunicationError("this port has no such rate")
        self.baud = baud


def test_another_rate_is_found_and_the_line_is_left_as_it_was() -> None:
    line = Wired(230400)
    error = refused(line)
    assert error.what == "the scripted device answers at 230,400 baud, not at 115,200"
    assert "115200" in error.hint and "230400" in error.hint
    assert line.baud == 115200
    assert line.tried == [9600, 57600, 230400, 115200]


@pytest.mark.slow
def test_no_rate_is_the_right_one() -> None:
    line = Wired(300)
    error = refused(line)
    assert "no valid frames" in error.what
    assert "tried 115200 baud, then 9600, 57600" in error.details[-1]
    assert line.baud == 115200 and line.tried.count(115200) == 1


@pytest.mark.parametrize(("status", "words"), [(15, "is in use"), (3, "refused to open a session")])
def test_a_device_that_refuses(status: int, words: str) -> None:
    def answer(frame: Frame) -> bytes:
        payload = struct.pack("<BB4sHIB", status, 1, frame.payload[1:5], 1000, 0, 16) + bytes(36)
        return encode(Frame(Message.MT_HELLO | REPLY, frame.session, frame.sequence, payload))

    assert words in refused(Scripted(answer)).what


def test_hello_is_repeated_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    sent: list[float] = []

    class Silent(Scripted):
        def write(self, data: bytes, *, timeout_s: float) -> None:
            sent.append(clock[0])

        def read(self, *, timeout_s: float) -> bytes:
            clock[0] += timeout_s
            return b""

    monkeypatch.setattr(handshake, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with pytest.raises(CommunicationError, match="no answer"):
        Client(Silent(reply_to), timeout_s=4.0)
    assert sent == pytest.approx([0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5])
    assert clock[0] == pytest.approx(4.0)


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("take_over", [True, False])
def test_a_session_is_taken_over_if_no_other_host_can_have_one(take_over: bool, exclusive: bool) -> None:
    device = Scripted(reply_to)
    device.is_exclusive = exclusive
    Client(device, timeout_s=1, take_over=take_over)
    assert device.seen[0].payload[5] == int(take_over or exclusive)
