"""The window's rules, one by one, against a device in Python, with a clock that advances only by waiting."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import protocol, window
from mtool.device.rpc.framing import FRAME_BYTES, Decoder, Frame, encode
from mtool.device.rpc.protocol import REPLY, Hello, Message, Request, Status, device_error
from mtool.device.rpc.window import Window, data_frames
from mtool.device.transport import Transport

SESSION = 0x1234
Answer = Callable[[Frame, int], list[bytes]]


class Line(Transport):
    """A device that is given each frame, and its number among all, and returns what it sends back."""

    name = "the device"

    def __init__(self, answer: Answer, *, lossless: bool = True, bytes_per_second: float = 1e9) -> None:
        self.is_lossless, self.bytes_per_second = lossless, bytes_per_second
        self.clock, self.seen, self.at = 1000.0, list[Frame](), list[float]()
        self.waiting = deque[bytes]()
        self._answer, self._decoder = answer, Decoder()

    def write(self, data: bytes, *, timeout_s: float) -> None:
        for frame in self._decoder.feed(data):
            assert frame is not None
            self.seen.append(frame)
            self.at.append(self.clock)
            self.waiting.extend(self._answer(frame, len(self.seen) - 1))

    def read(self, *, timeout_s: float) -> bytes:
        if self.waiting:
            return self.waiting.popleft()
        self.clock += max(timeout_s, 1e-6)
        return b""

    def close(self) -> None:
        pass

    @property
    def kinds(self) -> list[str]:
        return [Message(frame.type).name for frame in self.seen]

    @property
    def sequences(self) -> list[int]:
        return [frame.sequence for frame in self.seen]


def reply(frame: Frame, payload: bytes = b"\0") -> bytes:
    return encode(Frame(frame.type | REPLY, frame.session, frame.sequence, payload))


def reported(kind: Message, frame: Frame, payload: bytes = b"") -> bytes:
    return encode(Frame(kind, frame.session, frame.sequence, payload))


def at_once(frame: Frame, number: int) -> list[bytes]:
    return [reply(frame)]


def opened(
    line: Line, monkeypatch: pytest.MonkeyPatch, *, packet: int = 1000, bytes_: int = 0, frames: int = 16
) -> Window:
    monkeypatch.setattr(window, "time", SimpleNamespace(monotonic=lambda: line.clock))
    return Window(line, SESSION, Hello(1, packet, bytes_, frames, "", "", ""), on_fault=device_error)


def writes(count: int, size: int = 10) -> list[Request]:
    return [protocol.write(0, 0, n, bytes(size)) for n in range(count)]


def test_sequence_numbers_follow_each_other_and_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(at_once)
    made = opened(line, monkeypatch)
    made.next_sequence = 65534
    assert len(made.exchange(writes(4))) == 4
    assert line.sequences == [65534, 65535, 0, 1]
    assert {frame.session for frame in line.seen} == {SESSION}


def late(count: int) -> Answer:
    """Answer only when `count` frames have come, all of them."""
    held: list[Frame] = []

    def answer(frame: Frame, number: int) -> list[bytes]:
        held.append(frame)
        if len(held) < count:
            return []
        made = [reply(one) for one in held]
        held.clear()
        return made

    return answer


@pytest.mark.parametrize("begin", [0, 65533])
def test_no_more_frames_than_the_device_remembers(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(late(5))
    made = opened(line, monkeypatch, frames=5)
    made.next_sequence = begin
    made.exchange(writes(10))
    assert line.at == [1000.0] * 10  # the sixth would have waited for an answer
    assert made.resent == 0
    line = Line(late(6))
    opened(line, monkeypatch, frames=5).exchange(writes(6))
    assert line.at[4] == 1000.0 < line.at[5]


def test_no_more_bytes_than_the_device_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(Frame(Message.MT_WRITE, SESSION, 0, writes(1)[0].payload)))
    for count, bytes_ in ((3, 3 * size), (2, 3 * size - 1), (1, 1)):
        line = Line(late(count))
        assert len(opened(line, monkeypatch, bytes_=bytes_).exchange(writes(2 * count))) == 2 * count
        assert line.at == [1000.0] * (2 * count)
        line = Line(late(count + 1))
        opened(line, monkeypatch, bytes_=bytes_).exchange(writes(count + 1))
        assert line.at[count - 1] == 1000.0 < line.at[count]


@pytest.mark.parametrize("packet", [64, 100, 1000, 2037, 70_000])
@pytest.mark.parametrize("bytes_", [0, 64, 100, 200, 1000, 5000])
@pytest.mark.parametrize("lossless", [True, False])
def test_pieces_are_as_large_as_fits(lossless: bool, packet: int, bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(Line(at_once, lossless=lossless), monkeypatch, packet=packet, bytes_=bytes_)
    most = made.max_data_bytes

    def on_the_line(data: int) -> int:
        return len(encode(Frame(1, 1, 1, b"\1" * (protocol.WRITE_BYTES + data))))

    holds = bytes_ or 48 << 10
    share = holds if lossless else max(holds // 3, min(holds, 128))
    assert most >= 1
    if most > 1:
        assert FRAME_BYTES + protocol.WRITE_BYTES + most <= packet
        assert on_the_line(most) <= share
        assert on_the_line(most + 8 + share // 100) > share or FRAME_BYTES + protocol.WRITE_BYTES + most == packet
    assert made.data_bytes == (most if lossless else min(most, 512))


def test_a_tensor_is_cut_into_pieces_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(Line(at_once), monkeypatch)
    made.data_bytes = 7
    assert list(data_frames(made, 20)) == [(0, 7), (7, 7), (14, 6)]
    assert list(data_frames(made, 7)) == [(0, 7)]
    assert list(data_frames(made, 0)) == []


def test_pieces_grow_when_all_is_calm_and_shrink_when_not(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(at_once, lossless=False)
    made = opened(line, monkeypatch, packet=1500, bytes_=6000)
    most = made.max_data_bytes
    made.exchange(writes(63))
    assert made.data_bytes == 512
    made.exchange(writes(1))
    assert made.data_bytes == 1024
    made.exchange(writes(64))
    assert made.data_bytes == most == min(2048, most)
    made.shrink_frames()
    assert made.data_bytes == most // 2
    made.exchange(writes(63))
    made.shrink_frames()
    made.exchange(writes(1))
    assert made.data_bytes == most // 4
    for _ in range(10):
        made.shrink_frames()
    assert made.data_bytes == 48
    steady = opened(Line(at_once), monkeypatch)
    before = steady.data_bytes
    steady.shrink_frames()
    assert steady.data_bytes == before


def silent_at(*numbers: int) -> Answer:
    return lambda frame, number: [] if number in numbers else [reply(frame)]


def test_what_stays_without_a_reply_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(silent_at(0, 1, 2))
    made = opened(line, monkeypatch)
    made.exchange(writes(1))
    assert line.sequences == [0, 0, 0, 0] and made.resent == 3
    waits = [later - earlier for earlier, later in itertools.pairwise(line.at)]
    assert waits == pytest.approx([0.5, 0.5, 0.5], abs=0.01)
    line = Line(silent_at(*range(5)), lossless=False)
    made = opened(line, monkeypatch)
    made.round_trip_s = 0.05
    made.exchange(writes(1))
    waits = [later - earlier for earlier, later in itertools.pairwise(line.at)]
    assert waits == pytest.approx([0.15, 0.3, 0.5, 0.5, 0.5], abs=0.01)


def test_a_reply_shows_that_an_earlier_frame_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(silent_at(0, 2))
    made = opened(line, monkeypatch)
    replies = made.exchange(writes(4))
    assert line.sequences == [0, 1, 2, 3, 0, 2] and made.resent == 2
    assert set(line.at) == {1000.0}  # without waiting
    assert [one.request.payload[2] for one in replies] == [0, 1, 2, 3]


def test_a_damaged_frame_lets_the_oldest_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(frame: Frame, number: int) -> list[bytes]:
        return [b"\0damaged\0"] if number == 0 else [reply(frame)]

    line = Line(answer)
    assert len(opened(line, monkeypatch).exchange(writes(1))) == 1
    assert line.sequences == [0, 0] and set(line.at) == {1000.0}


def test_upon_resend_all_are_sent_again_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(frame: Frame, number: int) -> list[bytes]:
        if number < 2:
            return []
        return [reported(Message.MT_RESEND, frame, bytes([Status.MT_BAD_FRAME]))] if number == 2 else [reply(frame)]

    line = Line(answer)
    made = opened(line, monkeypatch)
    made.exchange(writes(3))
    assert line.sequences == [0, 1, 2, 0, 1, 2] and made.resent == 3
    assert set(line.at) == {1000.0}


@pytest.mark.parametrize(
    ("more", "words"), [(b"\1", "another host has opened"), (b"\0", "was reset"), (b"", "was reset")]
)
def test_a_session_that_is_no_more(more: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(frame: Frame, number: int) -> list[bytes]:
        return [reported(Message.MT_RESEND, frame, bytes([Status.MT_NO_SESSION]) + more)]

    with pytest.raises(CommunicationError, match=words):
        opened(Line(answer), monkeypatch).exchange(writes(1))


def test_a_reply_of_another_kind_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(frame: Frame, number: int) -> list[bytes]:
        others = [
            Frame(Message.MT_READ | REPLY, SESSION, frame.sequence, b"\0wrong"),
            Frame(frame.type | REPLY, SESSION, frame.sequence + 1, b"\0wrong"),
            Frame(frame.type | REPLY, SESSION, frame.sequence, b""),
            Frame(frame.type, SESSION, frame.sequence, b"\0wrong"),
        ]
        return [*map(encode, others), reply(frame, b"\5right")]

    (found,) = opened(Line(answer), monkeypatch).exchange(writes(1))
    assert (found.status, found.payload) == (5, b"right")


def running(then: Callable[[Line], bool]) -> tuple[Line, list[int]]:
    """Return a device that says that it runs, and is silent until `then`; and how many frames came meanwhile."""
    came: list[int] = []
    line: Line

    def answer(frame: Frame, number: int) -> list[bytes]:
        if number == 0:
            return [reported(Message.MT_RUNNING, frame)]
        came.append(frame.sequence)
        return [reply(frame)] if then(line) else []

    line = Line(answer)
    return line, came


def test_a_model_that_runs_is_asked_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    line, _ = running(lambda line: line.clock > 1020)
    made = opened(line, monkeypatch)
    made.exchange([protocol.call(30.0)])
    waits = [later - earlier for earlier, later in itertools.pairwise(line.at)]
    assert waits[:6] == pytest.approx([0.25, 0.5, 1.0, 2.0, 4.0, 4.0], abs=0.01)
    assert max(waits) == pytest.approx(4.0, abs=0.01)


def test_while_a_model_runs_its_buffer_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(encode(Frame(Message.MT_CALL, SESSION, 0, protocol.call(30.0).payload)))
    for room in (1, 2, 3):
        line, came = running(lambda line: False)
        made = opened(line, monkeypatch, bytes_=room * size)
        with pytest.raises(CommunicationError, match="started the model, which has not finished"):
            made.exchange([protocol.call(30.0)])
        assert len(came) == room - 1 and line.clock > 1030


def test_patience_has_the_time_of_the_work_and_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for work_s, rate, least, most in ((0.0, 1e9, 5.0, 5.6), (7.0, 1e9, 12.0, 12.6), (0.0, 100.0, 6.0, 8.5)):
        line = Line(lambda frame, number: [], bytes_per_second=rate)
        made = opened(line, monkeypatch)
        with pytest.raises(CommunicationError, match="has stopped answering") as caught:
            made.exchange([protocol.call(work_s)])
        assert least <= line.clock - 1000 <= most
        assert "expected a reply to MT_CALL" in caught.value.details[0]
        assert not made.is_intact
        with pytest.raises(CommunicationError, match="was interrupted"):
            made.exchange(writes(1))


def test_an_emulator_may_be_slow_if_its_watchdog_limits_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_process, limit_s, least in ((True, 2.0, 25.0), (True, 0.0, 7.0), (False, 2.0, 7.0)):
        line = Line(lambda frame, number: [])
        line.is_process = is_process
        with pytest.raises(CommunicationError):
            opened(line, monkeypatch).exchange([protocol.call(2.0, limit_s=limit_s)])
        assert least <= line.clock - 1000 <= least + 0.6


def test_after_a_long_pause_a_ping_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(at_once)
    made = opened(line, monkeypatch)
    made.exchange(writes(1))
    for _ in range(3):
        line.clock += 6.0
        made.exchange(writes(1))
    line.clock += 9.9
    made.exchange(writes(1))
    line.clock += 10.1
    made.exchange(writes(1))
    assert line.kinds == [*["MT_WRITE"] * 5, "MT_PING", "MT_WRITE"]
    made.ask(Message.MT_BYE, 0.5)
    assert line.kinds[-1] == "MT_BYE"


def test_a_ping_waits_no_longer_than_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(lambda frame, number: [reply(frame)] if frame.type == Message.MT_WRITE else [])
    made = opened(line, monkeypatch)
    with pytest.raises(CommunicationError, match="stopped answering"):
        made.ask(Message.MT_PING, 2.0)
    assert 2.0 <= line.clock - 1000 <= 2.6
    later = opened(line, monkeypatch)
    line.clock += 11
    began = line.clock
    with pytest.raises(CommunicationError, match="stopped answering"):
        later.exchange(writes(1))
    assert 3.0 <= line.clock - began <= 3.6 and line.kinds[-1] == "MT_PING"
    fresh = opened(line, monkeypatch)
    assert len(fresh.exchange(writes(1))) == 1
    assert fresh.least_patience_s == 5.0


def test_a_late_frame_of_another_session_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(frame: Frame, number: int) -> list[bytes]:
        other = Frame(Message.MT_FAULT, SESSION + 1, 0, b"\1\0\0\1")
        return [encode(other), reply(frame)]

    assert len(opened(Line(answer), monkeypatch).exchange(writes(1))) == 1

    def fault(frame: Frame, number: int) -> list[bytes]:
        return [reported(Message.MT_FAULT, frame, b"\1\7\0\1"), reply(frame)]

    with pytest.raises(DeviceError, match="operator 7"):
        opened(Line(fault), monkeypatch).exchange(writes(1))


def test_requests_are_taken_one_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made while there is room: the size of a piece is that of its time."""
    taken: list[int] = []

    def requests() -> Iterator[Request]:
        for n, request in enumerate(writes(8)):
            taken.append(n)
            yield request

    seen: list[int] = []

    def answer(frame: Frame, number: int) -> list[bytes]:
        seen.append(len(taken))
        return [reply(frame)]

    replies: Sequence[object] = opened(Line(answer), monkeypatch, frames=2).exchange(requests())
    assert len(replies) == 8
    assert seen[0] == 3


def test_the_round_trip_and_the_speed_are_those_of_what_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(at_once)
    made = opened(line, monkeypatch)
    for _ in range(100):
        made.exchange(writes(1))
    assert made.round_trip_s < 1e-4
    line = Line(silent_at(0))
    made = opened(line, monkeypatch)
    made.exchange(writes(1))
    made.exchange([protocol.call(3.0)])
    assert made.round_trip_s == 0.1  # neither a repetition nor the model's work is one
