"""The server, frame by frame: wrong, repeated, late, truncated or damaged messages."""

import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mtool.base.errors import CommunicationError
from mtool.device.rpc import protocol
from mtool.device.rpc.framing import Decoder, Frame, encode
from mtool.device.rpc.protocol import ARENA, INPUTS, OUTPUTS, REPLY, Message, Status
from mtool.device.transport import ProcessTransport
from tests.crt import firmware

NONCE = 0xABCD1234
SESSION = 0x1234
RUN = protocol.call(1.0, in_steps=False).payload
RESETS_WITH = 70
RUNNING = (Message.MT_CALL, Message.MT_TIME, Message.MT_LOAD, Message.MT_DATA, Message.MT_COMMIT)


class Server:
    """A server and the frames that come from it."""

    def __init__(self, *defines: str, sources: Sequence[str] = ()) -> None:
        self.transport = ProcessTransport([str(firmware.build(*sources, defines=defines))], name="the server")
        self.decoder = Decoder()
        self.frames: list[Frame] = []

    def send(self, data: bytes) -> None:
        self.transport.write(data, timeout_s=5)

    def next(self, *, timeout_s: float = 5) -> Frame | None:
        while not self.frames:
            data = self.transport.read(timeout_s=timeout_s)
            if not data:
                return None
            for frame in self.decoder.feed(data):
                assert frame is not None
                self.frames.append(frame)
        return self.frames.pop(0)

    def ask(self, kind: int, sequence: int, payload: bytes = b"", *, session: int = SESSION) -> Frame:
        self.send(encode(Frame(kind, session, sequence, payload)))
        frame = self.next()
        if frame is not None and frame.type == Message.MT_RUNNING and kind in RUNNING:
            frame = self.next()
        assert frame is not None
        return frame

    def hello(self, nonce: int = NONCE, *, take_over: bool = True, host: int = 0) -> Frame:
        return self.ask(
            Message.MT_HELLO, 0, protocol.hello(nonce, take_over=take_over, host=host), session=nonce & 0xFFFF
        )

    def read(self, sequence: int, kind: int, index: int, offset: int, length: int) -> bytes:
        reply = self.ask(Message.MT_READ, sequence, protocol.read(kind, index, offset, length).payload)
        assert (reply.type, reply.sequence, reply.payload[0]) == (Message.MT_READ | REPLY, sequence, Status.MT_OK)
        return reply.payload[1:]


def write_frame(sequence: int, data: bytes, *, session: int = SESSION, index: int = 0) -> bytes:
    return encode(Frame(Message.MT_WRITE, session, sequence, protocol.write(INPUTS, index, 0, data).payload))


@pytest.fixture
def server() -> Iterator[Server]:
    opened = Server()
    with opened.transport:
        assert opened.hello().type == Message.MT_HELLO | REPLY
        yield opened


def runs_of(server: Server, sequence: int) -> int:
    return int.from_bytes(server.read(sequence, OUTPUTS, 2, 0, 4), "little")


def test_hello_says_what_the_firmware_is() -> None:
    server = Server("TEST_BUFFER_BYTES=256", "TEST_WINDOW_BYTES=100")
    with server.transport:
        reply = server.hello()
    assert (reply.session, reply.payload[0], reply.payload[1]) == (SESSION, Status.MT_OK, protocol.VERSION)
    hello = protocol.read_hello(reply.payload)
    assert (hello.build_hash, hello.model_hash) == (firmware.BUILD_HASH[:16], firmware.MODEL_HASH[:16])
    assert (hello.model, hello.window_bytes, hello.window_frames) == ("test_model", 100, 16)
    assert 120 <= hello.packet_bytes < 128


@pytest.mark.slow
def test_a_small_buffer_is_refused() -> None:
    program = firmware.build(defines=("TEST_BUFFER_BYTES=255",))
    assert (
        subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True).returncode == 70 + Status.MT_TOO_LARGE
    )


def test_a_repeated_hello_changes_nothing_and_a_new_one_restarts(server: Server) -> None:
    server.ask(Message.MT_CALL, 0, RUN)
    assert server.hello().payload[1] == protocol.VERSION
    assert runs_of(server, 1) == 1
    server.hello(0x77778888)
    late = server.ask(Message.MT_CALL, 2, RUN)
    assert (late.type, late.payload) == (Message.MT_RESEND, bytes([Status.MT_NO_SESSION, 1]))
    reply = server.ask(Message.MT_READ, 0, protocol.read(OUTPUTS, 2, 0, 4).payload, session=0x8888)
    assert reply.payload == bytes([Status.MT_OK, 1, 0, 0, 0])


def test_a_second_host_is_refused_and_the_first_goes_on(server: Server) -> None:
    server.ask(Message.MT_CALL, 0, RUN)
    for nonce in (0x77778888, 0x77770000 | SESSION):  # also one whose frames look like the first host's
        busy = server.hello(nonce, take_over=False)
        assert (busy.type, busy.session) == (Message.MT_HELLO | REPLY, nonce & 0xFFFF)
        assert busy.payload == struct.pack("<BBI", Status.MT_BUSY, protocol.VERSION, nonce)
    assert runs_of(server, 1) == 1
    assert server.hello(take_over=False).payload[0] == Status.MT_OK  # a repetition of its own


def test_a_host_may_open_what_it_had_open_itself() -> None:
    server = Server()
    with server.transport:
        server.hello(host=77, take_over=False)
        server.ask(Message.MT_PING, 0)
        for host, status in ((78, Status.MT_BUSY), (0, Status.MT_BUSY), (77, Status.MT_OK)):
            assert server.hello(0x77778888, host=host, take_over=False).payload[0] == status
        server.ask(Message.MT_PING, 0, session=0x8888)
        assert server.hello(host=78, take_over=False).payload[0] == Status.MT_BUSY


def test_a_hello_without_flags_takes_nothing_over(server: Server) -> None:
    server.ask(Message.MT_PING, 0)
    reply = server.ask(Message.MT_HELLO, 0, struct.pack("<BI", protocol.VERSION, 0x77778888), session=0x8888)
    assert reply.payload[0] == Status.MT_BUSY


def test_an_unused_session_does_not_lock_others_out(server: Server) -> None:
    assert server.hello(0x77778888, take_over=False).payload[0] == Status.MT_OK


def test_bye_ends_the_session(server: Server) -> None:
    server.ask(Message.MT_PING, 0)
    assert server.ask(Message.MT_BYE, 1) == Frame(Message.MT_BYE | REPLY, SESSION, 1, b"\0")
    refused = bytes([Status.MT_NO_SESSION, 0])
    assert server.ask(Message.MT_BYE, 1) == Frame(Message.MT_RESEND, SESSION, 1, refused)
    assert server.ask(Message.MT_CALL, 2) == Frame(Message.MT_RESEND, SESSION, 2, refused)
    assert server.hello(0x77778888, take_over=False).payload[0] == Status.MT_OK


def test_a_ping_is_answered_and_does_nothing(server: Server) -> None:
    for _ in range(2):
        assert server.ask(Message.MT_PING, 0) == Frame(Message.MT_PING | REPLY, SESSION, 0, b"\0")
    assert runs_of(server, 1) == 0


def test_a_timer_that_was_left_running_is_stopped_by_the_next_session(server: Server) -> None:
    assert server.ask(Message.MT_TIMER, 0, protocol.timer(begin=True).payload).payload[0] == Status.MT_OK
    server.hello(0x77778888)
    reply = server.ask(Message.MT_TIMER, 0, protocol.timer(begin=True).payload, session=0x8888)
    assert reply.payload[0] == Status.MT_OK


def test_without_a_session_nothing_is_done() -> None:
    server = Server()
    with server.transport:
        reply = server.ask(Message.MT_CALL, 0, RUN)
        assert (reply.type, reply.payload) == (Message.MT_RESEND, bytes([Status.MT_NO_SESSION, 0]))
        server.hello()
        assert runs_of(server, 0) == 0


def test_a_repeated_call_runs_once(server: Server) -> None:
    first = server.ask(Message.MT_CALL, 0, RUN)
    assert [server.ask(Message.MT_CALL, 0, RUN) for _ in range(3)] == [first] * 3
    assert runs_of(server, 1) == 1


def test_a_repeated_time_measures_once(server: Server) -> None:
    number = struct.pack("<IH", 5, 0xFFFF)
    first = server.ask(Message.MT_TIME, 0, number)
    assert struct.unpack("<BiQ", first.payload) == (Status.MT_OK, 0, 1000)
    assert server.ask(Message.MT_TIME, 0, number) == first
    assert runs_of(server, 1) == 5
    assert struct.unpack("<BiQ", server.ask(Message.MT_TIME, 2, number).payload) == (Status.MT_OK, 0, 2000)


def test_the_timer_runs_from_one_message_to_another(server: Server) -> None:
    begin, end = protocol.timer(begin=True).payload, protocol.timer(begin=False).payload
    assert server.ask(Message.MT_TIMER, 0, begin).payload[0] == Status.MT_OK
    assert server.ask(Message.MT_TIMER, 1, begin).payload[0] == Status.MT_TIMER_RUNNING
    first = server.ask(Message.MT_TIMER, 2, end)
    assert struct.unpack("<BQ", first.payload) == (Status.MT_OK, 1000)
    assert server.ask(Message.MT_TIMER, 2, end) == first


def test_one_operator_can_be_timed(server: Server) -> None:
    assert struct.unpack("<BiQ", server.ask(Message.MT_TIME, 0, struct.pack("<IH", 2, 0)).payload)[:2] == (
        Status.MT_OK,
        0,
    )
    assert runs_of(server, 1) == 2


@pytest.mark.parametrize(("how", "operator"), [(0, 0), (1, 0xFFFF)])
def test_a_call_reports_which_operator_failed(server: Server, how: int, operator: int) -> None:
    server.send(write_frame(0, bytes([firmware.FAIL])))
    server.next()
    reply = server.ask(Message.MT_CALL, 1, struct.pack("<BI", how, 0))
    assert struct.unpack("<BiH", reply.payload) == (Status.MT_MODEL, 42, operator)


def test_a_failed_call_fails_again_when_repeated(server: Server) -> None:
    server.send(write_frame(0, bytes([firmware.FAIL])))
    server.next()
    replies = [server.ask(Message.MT_CALL, 1, RUN) for _ in range(2)]
    assert [struct.unpack("<BiH", reply.payload) for reply in replies] == [(Status.MT_MODEL, 42, 0xFFFF)] * 2


def test_a_repeated_write_writes_nothing(server: Server) -> None:
    server.send(write_frame(0, b"first"))
    server.send(write_frame(0, b"again"))
    assert [server.next(), server.next()] == [Frame(Message.MT_WRITE | REPLY, SESSION, 0, b"\0")] * 2
    assert server.read(1, INPUTS, 0, 0, 5) == b"first"


def test_a_repeated_write_reports_its_first_status(server: Server) -> None:
    for _ in range(2):
        assert (
            server.ask(Message.MT_WRITE, 0, protocol.write(INPUTS, 9, 0, b"x").payload).payload[0]
            == Status.MT_BAD_INDEX
        )


def test_a_frame_ahead_of_its_turn_waits_for_the_lost_one(server: Server) -> None:
    for sequence in (1, 2, 3):
        server.send(write_frame(sequence, b"ahead"))
    assert server.next() == Frame(Message.MT_RESEND, SESSION, 0, bytes([Status.MT_BAD_FRAME]))
    assert server.next(timeout_s=0.1) is None  # it is asked for once
    server.send(write_frame(0, b"first"))
    assert server.next() == Frame(Message.MT_WRITE | REPLY, SESSION, 0, b"\0")
    assert server.read(1, INPUTS, 0, 0, 5) == b"first"


def test_only_the_last_frames_are_answered_again(server: Server) -> None:
    for sequence in range(20):
        server.ask(Message.MT_INFO, sequence)
    assert server.ask(Message.MT_INFO, 20 - 16).type == Message.MT_INFO | REPLY
    assert server.ask(Message.MT_INFO, 20 - 17) == Frame(Message.MT_RESEND, SESSION, 20, bytes([Status.MT_BAD_FRAME]))


@pytest.mark.parametrize(
    "harm",
    [
        lambda frame: frame[:4] + bytes([frame[4] ^ 1]) + frame[5:],  # flipped
        lambda frame: frame[:6] + frame[7:],  # dropped
        lambda frame: frame[:6] + frame[5:],  # doubled
        lambda frame: frame[:8],  # cut
        lambda frame: frame[:8] + b"\0" + frame[8:],  # a zero in the middle
    ],
)
def test_a_damaged_frame_changes_nothing_and_the_next_is_understood(server: Server, harm: Any) -> None:
    before = server.read(0, INPUTS, 0, 0, 20)
    server.send(harm(write_frame(1, b"written")))
    server.send(encode(Frame(Message.MT_INFO, SESSION, 7)))
    assert server.next() == Frame(Message.MT_RESEND, SESSION, 1, bytes([Status.MT_BAD_FRAME]))
    assert server.read(1, INPUTS, 0, 0, 20) == before


def test_a_lost_delimiter_costs_nothing_where_another_follows(server: Server) -> None:
    server.send(write_frame(0, b"written")[:-1])
    server.send(encode(Frame(Message.MT_INFO, SESSION, 1))[1:])
    assert server.next() == Frame(Message.MT_RESEND, SESSION, 0, bytes([Status.MT_BAD_FRAME]))
    server.send(write_frame(0, b"written")[:-1])
    server.send(encode(Frame(Message.MT_INFO, SESSION, 1)))
    assert server.next() == Frame(Message.MT_WRITE | REPLY, SESSION, 0, b"\0")
    assert server.next() is not None  # INFO's reply
    assert server.read(2, INPUTS, 0, 0, 7) == b"written"


def test_a_frame_beyond_the_buffer_is_skipped(server: Server) -> None:
    server.send(write_frame(0, bytes(3000), index=2))
    assert server.next() == Frame(Message.MT_RESEND, SESSION, 0, bytes([Status.MT_TOO_LARGE]))
    assert len(server.read(0, INPUTS, 0, 0, 5)) == 5


@pytest.mark.parametrize(
    ("kind", "payload", "status"),
    [
        (Message.MT_WRITE, protocol.write(3, 0, 0, b"x").payload, Status.MT_BAD_INDEX),
        (Message.MT_WRITE, protocol.write(ARENA, 0, 0, b"x").payload, Status.MT_BAD_INDEX),
        (Message.MT_CALL, b"", Status.MT_BAD_MESSAGE),
        (Message.MT_CALL, b"\2\0\0\0\0", Status.MT_BAD_MESSAGE),
        (Message.MT_CALL, b"\0", Status.MT_BAD_MESSAGE),
        (Message.MT_TIME, struct.pack("<IH", 1, 1), Status.MT_BAD_INDEX),
        (Message.MT_TIMER, b"\2", Status.MT_BAD_MESSAGE),
        (Message.MT_TIMER, b"\1", Status.MT_TIMER_NOT_STARTED),
        (Message.MT_WRITE, protocol.write(INPUTS, 3, 0, b"x").payload, Status.MT_BAD_INDEX),
        (Message.MT_READ, protocol.read(OUTPUTS, 4, 0, 1).payload, Status.MT_BAD_INDEX),
        (Message.MT_WRITE, protocol.write(INPUTS, 0, 300, b"x").payload, Status.MT_BAD_RANGE),
        (Message.MT_WRITE, protocol.write(INPUTS, 0, 299, b"xy").payload, Status.MT_BAD_RANGE),
        (Message.MT_WRITE, protocol.write(INPUTS, 0, 0xFFFFFFFF, b"xy").payload, Status.MT_BAD_RANGE),
        (Message.MT_READ, protocol.read(INPUTS, 0, 0xFFFFFFFF, 2).payload, Status.MT_BAD_RANGE),
        (Message.MT_READ, protocol.read(OUTPUTS, 3, 39_999, 2).payload, Status.MT_BAD_RANGE),
        (Message.MT_READ, protocol.read(OUTPUTS, 3, 0, 2040).payload, Status.MT_TOO_LARGE),
        (Message.MT_WRITE, b"\0\0\0\0\0", Status.MT_BAD_MESSAGE),
        (Message.MT_READ, b"\0\0\0\0\0\0\0", Status.MT_BAD_MESSAGE),
        (Message.MT_TIME, b"\0\0\0", Status.MT_BAD_MESSAGE),
        (Message.MT_STACK, b"", Status.MT_NOT_SUPPORTED),
        (0x55, b"", Status.MT_UNKNOWN_MESSAGE),
        (0x00, b"", Status.MT_UNKNOWN_MESSAGE),
        (0xFF, b"", Status.MT_UNKNOWN_MESSAGE),
    ],
)
def test_a_wrong_request_is_reported(server: Server, kind: int, payload: bytes, status: Status) -> None:
    for _ in range(2):  # and reported again
        reply = server.ask(kind, 0, payload)
        assert (reply.type, reply.sequence, reply.payload[0]) == (kind | REPLY, 0, status)
    assert runs_of(server, 1) == 0


def test_the_last_byte_of_a_tensor_can_be_written(server: Server) -> None:
    assert server.ask(Message.MT_WRITE, 0, protocol.write(INPUTS, 0, 299, b"x").payload).payload == b"\0"
    assert server.ask(Message.MT_WRITE, 1, protocol.write(INPUTS, 0, 300, b"").payload).payload == b"\0"
    assert server.read(2, INPUTS, 0, 298, 2) == b"\0x"


def test_sequence_numbers_wrap_around(server: Server) -> None:
    info = [encode(Frame(Message.MT_INFO, SESSION, sequence & 0xFFFF)) for sequence in range(0x10005)]
    for begin in range(0, len(info), 512):
        server.send(b"".join(info[begin : begin + 512]))
        for sequence in range(begin, min(begin + 512, len(info))):
            frame = server.next()
            assert frame is not None
            assert (frame.type, frame.sequence) == (Message.MT_INFO | REPLY, sequence & 0xFFFF)


def test_reset_and_the_end_of_input_leave_the_server(server: Server) -> None:
    assert server.ask(Message.MT_RESET, 0).payload == b"\0"
    with pytest.raises(CommunicationError, match=f"exit code {RESETS_WITH}"):
        server.next()
    ended = subprocess.run([firmware.build()], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, f"the server returned {Status.MT_IO}\n")


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("buffer_bytes", [256, 4096])
def test_garbage_does_no_harm(buffer_bytes: int) -> None:
    """Bytes at random, then well-made frames with random contents; the sanitizers watch."""
    source = random.Random(buffer_bytes)
    server = Server(f"TEST_BUFFER_BYTES={buffer_bytes}")
    with server.transport:
        for zeros in (0.0, 0.01, 0.3):
            server.send(bytes(0 if source.random() < zeros else source.randrange(1, 256) for _ in range(30_000)))
        server.send(b"\0")
        server.hello()
        dear = (Message.MT_HELLO, Message.MT_RESET, Message.MT_BYE, Message.MT_TIME)
        kinds = [kind for kind in range(0x100) if kind not in dear]
        for sequence in range(4000):
            kind = source.choice([*kinds, *[Message.MT_WRITE, Message.MT_READ] * 100])
            payload = bytes(
                source.choice([0, 0, 1, 2, 3, 255, source.randrange(256)]) for _ in range(source.randrange(20))
            )
            reply = server.ask(kind, sequence, payload)
            assert (reply.type, reply.sequence) == (kind | REPLY, sequence)
