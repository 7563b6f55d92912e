"""The bytes of each message, as in crt/PROTOCOL.md; and how replies are parsed."""

import functools
import struct

import pytest

from mtool.base.errors import CommunicationError
from mtool.device.rpc import protocol
from mtool.device.rpc.protocol import NO_OPERATOR, Message, Placed

TENSOR = Placed("int16", (2, 300), protocol.OUTPUTS, 3, 0x01020304)


def test_requests_on_the_tensors() -> None:
    write = protocol.write(protocol.OUTPUTS, 2, 0x01020304, b"data")
    assert (write.type, write.payload) == (Message.MT_WRITE, bytes([1, 2, 4, 3, 2, 1]) + b"data")
    assert write.payload[protocol.WRITE_BYTES :] == b"data"
    read = protocol.read(protocol.ARENA, 0, 0x01020304, 0x0506)
    assert (read.type, read.payload) == (Message.MT_READ, bytes([2, 0, 4, 3, 2, 1, 6, 5]))
    assert read.reply_bytes == 1 + 0x0506


@pytest.mark.parametrize(
    ("limit_s", "milliseconds"), [(0.0, 0), (0.001, 1), (0.0011, 2), (2.5, 2500), (5e6, 2**32 - 1)]
)
def test_a_call_has_its_limit_in_milliseconds(limit_s: float, milliseconds: int) -> None:
    stepwise = protocol.call(7.0, limit_s=limit_s)
    assert (stepwise.type, stepwise.payload) == (Message.MT_CALL, struct.pack("<BI", 0, milliseconds))
    assert stepwise.work_s == 7.0
    assert protocol.call(7.0, in_steps=False).payload == bytes([1, 0, 0, 0, 0])


def test_requests_on_the_timer() -> None:
    whole, one = protocol.time(1000, 7.0), protocol.time(2, 7.0, operator=0)
    assert (whole.type, whole.payload, whole.work_s) == (Message.MT_TIME, struct.pack("<IH", 1000, NO_OPERATOR), 7.0)
    assert one.payload == bytes([2, 0, 0, 0, 0, 0])
    begin, end = protocol.timer(begin=True), protocol.timer(begin=False)
    assert (begin.type, begin.payload, end.payload) == (Message.MT_TIMER, b"\0", b"\1")


def test_hello_has_the_host_and_whether_it_takes_over() -> None:
    assert protocol.hello(0x01020304, take_over=False, host=0x05060708) == bytes([1, 4, 3, 2, 1, 0, 8, 7, 6, 5])
    assert protocol.hello(0x01020304, take_over=True, host=0)[5:] == bytes([1, 0, 0, 0, 0])


def test_arguments_of_a_function() -> None:
    request = protocol.invoke(0x0102, [-2, 0.5, TENSOR], 7.0)
    parts = [
        bytes([2, 1, 3]),  # the function, the number of arguments
        bytes([0]) + struct.pack("<q", -2),
        bytes([2]) + struct.pack("<d", 0.5),
        bytes([7, 1, 3, 4, 3, 2, 1, 0, 16, 2, 2, 0, 0, 0, 44, 1, 0, 0]),
    ]
    assert (request.type, request.payload, request.work_s) == (Message.MT_INVOKE, b"".join(parts), 7.0)
    assert protocol.lookup("net_0").payload == b"net_0"


@pytest.mark.parametrize(
    ("dtype", "element"),
    [
        ("int8", (0, 8)), ("int64", (0, 64)), ("uint8", (1, 8)), ("uint32", (1, 32)), ("float16", (2, 16)),
        ("float32", (2, 32)), ("float64", (2, 64)), ("bfloat16", (4, 16)), ("bool", (6, 8)), ("int4", (0, 8)),
        ("uint4", (1, 8)),
    ],
)  # fmt: skip
def test_elements_have_the_codes_of_dlpack(dtype: str, element: tuple[int, int]) -> None:
    payload = protocol.invoke(0, [Placed(dtype, (), protocol.INPUTS, 0, 0)], 1.0).payload
    assert tuple(payload[-3:-1]) == element


def test_replies() -> None:
    hello = struct.pack("<BBIHIB", 0, 1, 77, 2037, 4096, 16) + b"b" * 16 + b"m" * 16 + b"net"
    read = protocol.read_hello(hello)
    assert (read.version, read.packet_bytes, read.window_bytes, read.window_frames) == (1, 2037, 4096, 16)
    assert (read.build_hash, read.model_hash, read.model) == ("b" * 16, "m" * 16, "net")
    info = protocol.read_info(struct.pack("<IBB3I", 7, 2, 1, 10, 20, 30))
    assert (info.granularity_ns, info.inputs, info.outputs, info.tensor_bytes) == (7, 2, 1, (10, 20, 30))
    assert protocol.read_info(struct.pack("<IBBI", 7, 2, 1, 10) + b"cut").tensor_bytes == (10,)
    assert protocol.read_number(Message.MT_TIME, struct.pack("<iQ", 5, 2**40)) == 2**40
    assert protocol.read_number(Message.MT_TIMER, struct.pack("<Q", 2**40)) == 2**40
    assert protocol.read_number(Message.MT_STACK, struct.pack("<I", 2**31)) == 2**31
    assert protocol.read_number(Message.MT_LOOKUP, struct.pack("<H", 65535)) == 65535
    assert protocol.read_invoke(struct.pack("<iBq", 0, 0, -(2**40))) == -(2**40)
    assert protocol.read_invoke(struct.pack("<iBd", 0, 2, 0.25)) == 0.25
    assert protocol.read_invoke(struct.pack("<iBq", 0, 4, 9)) is None


@pytest.mark.parametrize(
    ("read", "size"),
    [
        (protocol.read_hello, 45),
        (protocol.read_info, 6),
        (protocol.read_invoke, 13),
        (functools.partial(protocol.read_number, Message.MT_TIME), 12),
        (functools.partial(protocol.read_number, Message.MT_TIMER), 8),
        (functools.partial(protocol.read_number, Message.MT_STACK), 4),
        (functools.partial(protocol.read_number, Message.MT_LOOKUP), 2),
    ],
)
def test_a_reply_that_is_cut_is_reported(read: object, size: int) -> None:
    assert callable(read)
    with pytest.raises(CommunicationError, match="is too short") as caught:
        read(bytes(size - 1))
    assert caught.value.details == (f"expected  {size} bytes or more", f"found     {size - 1}")


@pytest.mark.parametrize(("packet", "frames"), [(63, 16), (0, 16), (64, 0)])
def test_a_device_that_takes_no_frames_is_reported(packet: int, frames: int) -> None:
    def hello(packet: int, frames: int) -> bytes:
        return struct.pack("<BBIHIB32s", 0, 1, 0, packet, 0, frames, b"")

    with pytest.raises(CommunicationError, match="frame limits are too small"):
        protocol.read_hello(hello(packet, frames))
    assert protocol.read_hello(hello(64, 1)).packet_bytes == 64
