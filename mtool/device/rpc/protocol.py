"""Messages, as in crt/include/mt_protocol.h and crt/PROTOCOL.md; a test compares the numbers."""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from mtool.base import resources
from mtool.base.errors import CommunicationError, DeviceError

VERSION = 1
REPLY = 0x80
INPUTS = 0
OUTPUTS = 1
ARENA = 2
ROWS = 3
TAKE_OVER = 1
_WRITE = struct.Struct("<BBI")
_READ = struct.Struct("<BBIH")
_HELLO = struct.Struct("<BIBI")
_HELLO_REPLY = struct.Struct("<BBIHIB16s16s")
_INFO_REPLY = struct.Struct("<IBB")
_LEAST_PACKET_BYTES = 64
_MOST_LIMIT_MS = (1 << 32) - 1
_INVOKE = struct.Struct("<HB")
_INVOKE_REPLY = struct.Struct("<iB8s")
_TENSOR = struct.Struct("<BBBIBBB")
# Type codes of arguments and results, as in crt/include/mt_packed.h.
ARG_INT = 0
ARG_FLOAT = 2
ARG_NULL = 4
ARG_TENSOR = 7
# DLPack's code and bits of an element; a 4-bit integer takes a byte.
_ELEMENTS = {
    **{f"{kind}{bits}": (code, bits) for kind, code in (("int", 0), ("uint", 1)) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "int4": (0, 8),
    "uint4": (1, 8),
    "bfloat16": (4, 16),
    "bool": (6, 8),
}
NO_OPERATOR = 0xFFFF
"""Instead of an operator's number: the whole model, or unknown."""
WRITE_BYTES = _WRITE.size
"""The size of a WRITE's payload before the data."""
HELLO_REPLY_BYTES = _HELLO_REPLY.size
"""The size of the reply to HELLO before the model's name."""
VERSION_AT = 1
NONCE_AT = 2
"""The position of the version and the nonce in HELLO's reply, in every version of the protocol."""


class Message(IntEnum):
    """The type of a frame. The host sends those below REPLY; the device sends the replies (plus REPLY) and the rest."""

    MT_HELLO = 0x01
    MT_INFO = 0x02
    MT_WRITE = 0x03
    MT_READ = 0x04
    MT_CALL = 0x05
    MT_TIME = 0x06
    MT_STACK = 0x07
    MT_RESET = 0x08
    MT_PING = 0x09
    MT_BYE = 0x0A
    MT_TIMER = 0x0B
    MT_LOOKUP = 0x0C
    MT_INVOKE = 0x0D
    MT_SELECT = 0x0E
    MT_LOAD = 0x0F
    MT_DATA = 0x10
    MT_COMMIT = 0x11
    MT_ROOM = 0x12
    MT_MODELS = 0x13
    MT_FETCH = 0x14
    MT_RESEND = 0xF0
    MT_RUNNING = 0xF1
    MT_LOG = 0xF2
    MT_FAULT = 0xF3


class Request(NamedTuple):
    """A message to the device.

    Attributes:
        type: the message type.
        payload: its bytes.
        reply_bytes: the approximate size of the reply's payload.
        work_s: seconds that the device may work on it.
        is_limited: whether a device with a watchdog ends this work itself, by its own clock.
    """

    type: Message
    payload: bytes = b""
    reply_bytes: int = 1
    work_s: float = 0.0
    is_limited: bool = False


class Reply(NamedTuple):
    """The device's answer to a request: a status of mtool.device.rpc.protocol, and bytes."""

    request: Request
    status: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """A device's description of itself.

    Attributes:
        version: of the protocol.
        packet_bytes: the largest frame that it accepts or sends, before encoding.
        window_bytes: the encoded bytes that may be sent without a reply; 0: any number.
        window_frames: the frames that may be sent without a reply.
        build_hash: the first 16 hex digits.
        model_hash: the first 16 hex digits.
        model: the model's name, its first 31 bytes.
    """

    version: int
    packet_bytes: int
    window_bytes: int
    window_frames: int
    build_hash: str
    model_hash: str
    model: str


@dataclass(frozen=True, slots=True)
class Info:
    """The timer's smallest step in nanoseconds, and the tensors' sizes in bytes (those that fit into the reply)."""

    granularity_ns: int
    inputs: int
    outputs: int
    tensor_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor on the device: its type (NumPy's name), its shape, and its place.

    The place is `offset` bytes from the start of the `index`-th of INPUTS or OUTPUTS, or of the ARENA (index 0).
    """

    dtype: str
    shape: tuple[int, ...]
    kind: int
    index: int
    offset: int

    @property
    def place(self) -> tuple[int, int, int]:
        """Its place: kind, index, offset."""
        return self.kind, self.index, self.offset


def hello(nonce: int, *, take_over: bool, host: int, challenge: bytes = b"") -> bytes:
    """Return the payload that opens a session.

    Args:
        nonce: 32 random bits that identify the session.
        take_over: open it even if another computer has a session.
        host: 32 bits that identify this computer; 0: unknown.
        challenge: 8 random bytes, of a host with a link key.
    """
    return _HELLO.pack(VERSION, nonce, TAKE_OVER if take_over else 0, host) + challenge


def read_hello(payload: bytes) -> Hello:
    """Parse the reply to HELLO, in this version of the protocol.

    Raises:
        CommunicationError: it is too short, or its limits are too small for any frame.
    """
    _, version, _, packet, window, frames, build, model = unpack(_HELLO_REPLY, payload, Message.MT_HELLO)
    if packet < _LEAST_PACKET_BYTES or frames < 1:
        what = "the device's frame limits are too small"
        details = [f"expected  {_LEAST_PACKET_BYTES} bytes or more", f"found     {packet} bytes, {frames} at a time"]
        raise CommunicationError(what, details=details, hint="make the firmware's RPC buffer larger")
    name = payload[_HELLO_REPLY.size :].decode(errors="replace")
    return Hello(
        version, packet, window, frames, build.decode("ascii", "replace"), model.decode("ascii", "replace"), name
    )


def read_info(payload: bytes) -> Info:
    """Parse the reply to INFO.

    Raises:
        CommunicationError: it is too short.
    """
    granularity, inputs, outputs = unpack(_INFO_REPLY, payload, Message.MT_INFO)
    rest = payload[_INFO_REPLY.size :]
    return Info(granularity, inputs, outputs, struct.unpack(f"<{len(rest) // 4}I", rest[: len(rest) // 4 * 4]))


def write(kind: int, index: int, offset: int, data: bytes, work_s: float = 0.0) -> Request:
    """Return a request to write `data` to the `index`-th tensor of INPUTS or OUTPUTS, from the byte `offset` on.

    With ROWS the device computes as data arrives, for up to `work_s` seconds.
    """
    return Request(Message.MT_WRITE, _WRITE.pack(kind, index, offset) + data, work_s=work_s)


def read(kind: int, index: int, offset: int, length: int) -> Request:
    """Return a request to read `length` bytes (up to 65,535) of a tensor."""
    return Request(Message.MT_READ, _READ.pack(kind, index, offset, length), reply_bytes=1 + length)


def call(work_s: float, *, in_steps: bool = True, limit_s: float = 0.0) -> Request:
    """Return a request to run the model once, by operators or by its entry point, for up to `work_s` seconds.

    After `limit_s` seconds of its own clock (0: never; rounded up to milliseconds) a device with a watchdog
    reports a fault.
    """
    limit_ms = min(math.ceil(limit_s * 1e3), _MOST_LIMIT_MS)
    payload = struct.pack("<BI", 0 if in_steps else 1, limit_ms)
    return Request(Message.MT_CALL, payload, reply_bytes=7, work_s=work_s, is_limited=limit_ms > 0)


def time(number: int, work_s: float, *, operator: int | None = None) -> Request:
    """Return a request to run the model or an operator `number` times under the timer, for up to `work_s` seconds."""
    which = NO_OPERATOR if operator is None else operator
    return Request(Message.MT_TIME, struct.pack("<IH", number, which), reply_bytes=13, work_s=work_s)


def timer(*, begin: bool) -> Request:
    """Return a request to start or stop the timer."""
    return Request(Message.MT_TIMER, bytes([0 if begin else 1]), reply_bytes=9)


def select(index: int) -> Request:
    """Return a request to choose the model for the following messages."""
    return Request(Message.MT_SELECT, bytes([index]))


def lookup(name: str) -> Request:
    """Return a request to find a function by its name."""
    return Request(Message.MT_LOOKUP, name.encode(), reply_bytes=3)


def invoke(index: int, arguments: Sequence[int | float | Placed], work_s: float) -> Request:
    """Return a request to call a function by its number, for up to `work_s` seconds."""
    parts = [_INVOKE.pack(index, len(arguments)), *map(_argument, arguments)]
    return Request(Message.MT_INVOKE, b"".join(parts), reply_bytes=1 + _INVOKE_REPLY.size, work_s=work_s)


def _argument(value: int | float | Placed) -> bytes:
    if isinstance(value, Placed):
        code, bits = _ELEMENTS[value.dtype]
        dims = struct.pack(f"<{len(value.shape)}I", *value.shape)
        return _TENSOR.pack(ARG_TENSOR, value.kind, value.index, value.offset, code, bits, len(value.shape)) + dims
    return struct.pack("<Bd", ARG_FLOAT, value) if isinstance(value, float) else struct.pack("<Bq", ARG_INT, value)


def read_invoke(payload: bytes) -> int | float | None:
    """Parse the reply to INVOKE: the function's result in addition to its status, if there is one.

    Raises:
        CommunicationError: it is too short.
    """
    _, code, value = unpack(_INVOKE_REPLY, payload, Message.MT_INVOKE)
    if code == ARG_FLOAT:
        return float(struct.unpack("<d", value)[0])
    return int(struct.unpack("<q", value)[0]) if code == ARG_INT else None


_NUMBERS = {
    Message.MT_TIME: struct.Struct("<4xQ"),
    Message.MT_TIMER: struct.Struct("<Q"),
    Message.MT_STACK: struct.Struct("<I"),
    Message.MT_LOOKUP: struct.Struct("<H"),
}


def read_number(message: Message, payload: bytes) -> int:
    """Parse a reply that is a number: nanoseconds of TIME and TIMER, bytes of STACK, a function's number of LOOKUP.

    Raises:
        CommunicationError: it is too short.
    """
    return int(unpack(_NUMBERS[message], payload, message)[0])


def unpack(layout: struct.Struct, payload: bytes, message: Message) -> tuple[Any, ...]:
    """Return the fields at the start of a reply's payload.

    Raises:
        CommunicationError: it is too short.
    """
    if len(payload) < layout.size:
        what = f"the device's reply to {message.name.removeprefix('MT_')} is too short"
        details = [f"expected  {layout.size} bytes or more", f"found     {len(payload)}"]
        raise CommunicationError(what, details=details, hint="build the firmware with this mtool and flash it again")
    return layout.unpack_from(payload)


Status = IntEnum(
    "Status",
    "MT_OK MT_BAD_FRAME MT_BAD_MESSAGE MT_UNKNOWN_MESSAGE MT_BAD_INDEX MT_BAD_RANGE MT_NO_SESSION MT_TOO_LARGE "
    "MT_TIMER_NOT_STARTED MT_TIMER_RUNNING MT_TIMER_OVERFLOW MT_NOT_SUPPORTED MT_IO MT_MODEL MT_STACK_OVERFLOW "
    "MT_BUSY MT_UNKNOWN_FUNCTION MT_BAD_COUNT MT_BAD_TYPE MT_BAD_SHAPE MT_BAD_GRAPH MT_BAD_SIZE MT_DEVICE "
    "MT_BAD_ORDER MT_BAD_MODULE MT_BAD_SIGNATURE MT_OLD_MODULE MT_WRONG_MACHINE MT_NO_MEMORY MT_MISSING_IMPORT "
    "MT_BAD_DELTA MT_STOPPED MT_UNAUTHENTICATED MT_BAD_CONSTANT MT_BAD_ARENA MT_BAD_FLOW",
    start=0,
)
"""The status of a function of the runtime, or of a reply, in the order of the list in crt/include/mtool.h."""


def describe(code: int) -> str:
    """Return a code's name and meaning from that list; for a code of newer firmware, its number."""
    header = (resources.path("crt") / "include" / "mtool.h").read_text()
    match = re.search(rf'X\((MT_\w+), +{code}, "(.*?)"\)', header)
    return f"{match[1]}: {match[2]}" if match else f"status {code}, which this mtool does not know"


GUARDED = {
    Status.MT_BAD_CONSTANT: "reset the device; if this persists, flash it again: its flash or RAM is damaged",
    Status.MT_BAD_ARENA: "another part of the firmware writes there, or the stack is too small",
    Status.MT_BAD_FLOW: "reset the device; if this persists, its flash or RAM is damaged",
}
"""What --guard detects, and what to do then."""

_SURVIVED = 0x80  # MT_FAULT_SURVIVED
_HEAD = struct.Struct("<BHB")


class FaultKind(IntEnum):
    """The kind of a fault, as in crt/include/mtool.h."""

    MT_FAULT_EXCEPTION = 1
    MT_FAULT_STACK = 2
    MT_FAULT_ASSERTION = 3
    MT_FAULT_WATCHDOG = 4


class Machine(IntEnum):
    """The machine whose registers are in a message, as in crt/include/mtool.h."""

    MT_MACHINE_NONE = 0
    MT_MACHINE_CORTEX_M = 1
    MT_MACHINE_RISCV = 2
    MT_MACHINE_PROCESS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault as the device reported it.

    Attributes:
        kind: the kind of fault; a number that this mtool does not know stays a number.
        operator: the operator that was running, or None.
        machine: the machine of the registers.
        registers: in the order of the machine's list.
        survived: only the model was stopped, and the firmware continues.
    """

    kind: int
    operator: int | None
    machine: int
    registers: tuple[int, ...]
    survived: bool = False


def read_fault(payload: bytes) -> Fault:
    """Parse a FAULT; missing fields are unknown."""
    kind, operator, machine = _HEAD.unpack_from(payload.ljust(_HEAD.size, b"\xff"))
    rest = payload[_HEAD.size :]
    registers = struct.unpack_from(f"<{len(rest) // 4}I", rest)
    survived = bool(kind & _SURVIVED)
    return Fault(kind & ~_SURVIVED, None if operator == NO_OPERATOR else operator, machine, registers, survived)


def device_error(fault: Fault) -> DeviceError:
    """Return an error that describes a fault by numbers alone."""
    names = [kind.name for kind in FaultKind if kind == fault.kind]
    where = "" if fault.operator is None else f" in operator {fault.operator}"
    registers = " ".join(f"0x{register:08x}" for register in fault.registers)
    return DeviceError(
        f"{names[0] if names else 'a fault'}{where}", details=[registers] if registers else [], operator=fault.operator
    )
