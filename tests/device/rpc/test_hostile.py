"""Whatever a device sends, the host ends with its answer or one of two errors, and uses little memory."""

import functools
import struct

import amount
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtool.base.errors import CommunicationError, DeviceError
from mtool.device.rpc import Client, protocol, window
from mtool.device.rpc.framing import Decoder, Frame, encode
from mtool.device.rpc.protocol import REPLY, Message, Status, device_error, read_fault
from tests.device.rpc.channels import Scripted
from tests.device.rpc.test_handshake import reply_to

READERS = {
    "hello": protocol.read_hello,
    "info": protocol.read_info,
    "invoke": protocol.read_invoke,
    "time": functools.partial(protocol.read_number, Message.MT_TIME),
    "timer": functools.partial(protocol.read_number, Message.MT_TIMER),
    "stack": functools.partial(protocol.read_number, Message.MT_STACK),
}
EXPECTED_ERRORS = (CommunicationError, DeviceError)

statuses = st.sampled_from([*Status, 99, 255])
payloads = st.one_of(st.binary(max_size=80), st.builds(lambda code, rest: bytes([code]) + rest, statuses, st.binary()))
kinds = st.one_of(st.sampled_from([*Message, *(kind | REPLY for kind in Message)]), st.integers(0, 255))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "PATIENCE_S", 0.02)
    monkeypatch.setattr(window, "RESEND_LOSSLESS_S", 0.005)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@given(payload=st.binary(max_size=120))
def test_any_payload_is_read_or_refused(read: object, payload: bytes) -> None:
    assert callable(read)
    try:
        read(payload)
    except CommunicationError as error:
        assert error.details


@given(st.binary(max_size=80))
def test_any_fault_is_reported(payload: bytes) -> None:
    assert isinstance(device_error(read_fault(payload)), DeviceError)


@given(st.lists(st.binary(max_size=300), max_size=30))
def test_any_bytes_in_any_pieces_are_taken(pieces: list[bytes]) -> None:
    decoder, whole = Decoder(), Decoder()
    found = [frame for piece in pieces for frame in decoder.feed(piece)]
    assert found == list(whole.feed(b"".join(pieces)))
    assert len(decoder.tail) <= 4096


@settings(deadline=None)
@given(st.integers(1, 20))
def test_a_device_that_never_ends_a_frame_fills_no_memory(megabytes: int) -> None:
    decoder = Decoder()
    for _ in range(megabytes):
        assert not list(decoder.feed(b"x" * (1 << 20)))
        assert len(decoder.pending) <= 1 << 17
    assert list(decoder.feed(b"\0" + encode(Frame(1, 2, 3))))[-1] == Frame(1, 2, 3)


@pytest.mark.slow
@settings(max_examples=amount.of(100, 25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_answers_to_any_request_end_in_a_result_or_an_error(data: st.DataObject) -> None:
    answers = data.draw(st.lists(st.tuples(kinds, st.booleans(), payloads), max_size=12))
    queue = iter(answers)

    def answer(frame: Frame) -> bytes:
        if frame.type == Message.MT_HELLO:
            return reply_to(frame)
        kind, is_reply, payload = next(queue, (0, False, b""))
        kind = frame.type | REPLY if is_reply else kind
        return encode(Frame(kind, frame.session, frame.sequence, payload))

    client = Client(Scripted(answer), timeout_s=1)
    calls = [
        client.info,
        lambda: client.write([bytes(100)]),
        lambda: client.read(protocol.OUTPUTS, [100, 3]),
        lambda: client.run([bytes(10)], [4], work_s=0),
        lambda: client.time(1, work_s=0),
        client.start_timer,
        client.stop_timer,
        client.stack_bytes,
        lambda: client.ping(0.02),
    ]
    for call in data.draw(st.lists(st.sampled_from(calls), min_size=1, max_size=4)):
        try:
            call()
        except EXPECTED_ERRORS as error:
            assert error.what
    client.close()


@settings(max_examples=amount.of(100, 25), deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=30))
def test_any_answer_to_hello_opens_a_session_or_is_reported(payload: bytes, before: bytes) -> None:
    def answer(frame: Frame) -> bytes:
        head = payload[:2].ljust(2, b"\0") + frame.payload[1:5]
        return before + encode(Frame(Message.MT_HELLO | REPLY, frame.session, frame.sequence, head + payload[2:]))

    try:
        hello = Client(Scripted(answer), timeout_s=0.02).hello
    except CommunicationError as error:
        assert error.what
    else:
        assert hello.packet_bytes >= 64
        assert hello.window_frames >= 1


@pytest.mark.parametrize(("packet", "frames"), [(63, 16), (1000, 0), (0, 0)])
def test_a_device_without_room_for_a_frame_is_reported(packet: int, frames: int) -> None:
    def answer(frame: Frame) -> bytes:
        reply = struct.pack("<BB4sHIB", 0, 1, frame.payload[1:5], packet, 0, frames) + b"0" * 32 + b"model"
        return encode(Frame(Message.MT_HELLO | REPLY, frame.session, frame.sequence, reply))

    with pytest.raises(CommunicationError, match="frame limits are too small"):
        Client(Scripted(answer), timeout_s=1)
