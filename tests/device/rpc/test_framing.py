import zlib

from cobs import cobs
from hypothesis import given
from hypothesis import strategies as st

from mtool.device.rpc.framing import Decoder, Frame, decode, encode

frames = st.builds(Frame, st.integers(0, 255), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.binary(max_size=600))


def test_a_frame_byte_by_byte() -> None:
    body = bytes([0x03, 0x34, 0x12, 0x02, 0x01]) + b"\0data"
    wire = encode(Frame(0x03, 0x1234, 0x0102, b"\0data"))
    assert wire == b"\0" + cobs.encode(body + zlib.crc32(body).to_bytes(4, "little")) + b"\0"
    assert wire[1:8].hex() == "06033412020109"


@given(st.lists(frames, max_size=4), st.integers(1, 50))
def test_frames_are_found_however_they_arrive(sent: list[Frame], size: int) -> None:
    wire = b"".join(map(encode, sent))
    decoder = Decoder()
    pieces = [wire[begin : begin + size] for begin in range(0, len(wire), size)]
    assert [frame for piece in pieces for frame in decoder.feed(piece)] == sent


@given(frames, st.integers(0), st.integers(1, 255))
def test_a_flipped_byte_is_reported(frame: Frame, at: int, bits: int) -> None:
    inside = bytearray(encode(frame)[1:-1])
    inside[at % len(inside)] ^= bits
    assert decode(bytes(inside)) is None


@given(st.binary(max_size=2000))
def test_garbage_is_not_a_frame_and_does_not_hide_one(garbage: bytes) -> None:
    decoder = Decoder()
    assert all(frame is None for frame in decoder.feed(garbage))
    assert list(decoder.feed(encode(Frame(1, 2, 3))))[-1] == Frame(1, 2, 3)


def test_what_is_not_a_frame_is_kept_up_to_a_limit() -> None:
    decoder = Decoder()
    list(decoder.feed(b"x" * 10_000 + b"booting\r\n"))
    assert decoder.tail.endswith(b"xbooting\r\n")
    assert len(decoder.tail) == 4096
    for _ in range(20):
        list(decoder.feed(b"y" * 10_000))
    assert len(decoder.pending) <= 1 << 17
