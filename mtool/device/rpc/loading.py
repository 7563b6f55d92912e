"""Modules over the RPC: what a device takes and has, and how one gets there. crt/PROTOCOL.md, "Modules"."""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from mtool.base.errors import CommunicationError
from mtool.device.rpc.client import Client
from mtool.device.rpc.protocol import Message, Request, unpack

HEAD_BYTES = 272
"""Of a module's file, which a device judges it by before any other byte is sent."""

# Generously: a large sector takes seconds to be erased; a signature some 20 million cycles of a core, twice.
_HEAD_S = 30.0
_DATA_S = 4.0
_DELTA_S = 120.0  # a few bytes of a delta may stand for all of the file
_COMMIT_S = 60.0

_ROOM_REPLY = struct.Struct("<5I3B")
_NONE = 0xFF  # in place of a model's number
_LOAD_REPLY = struct.Struct("<I")
_DELTA_REPLY = struct.Struct("<2I")
_BY_DELTA = 0x80
_FETCH = struct.Struct("<BIH")
_MODEL = struct.Struct("<B16sB")


class Place(IntEnum):
    """Where a model is, or a module goes."""

    FIRMWARE = 0
    FLASH = 1
    RAM = 2


@dataclass(frozen=True, slots=True)
class Room:
    """What a device takes.

    Attributes:
        machine: its core and ABI (mtool.manifest.modules.format).
        kinds: of modules that it runs, by their numbers.
        flash_bytes: most bytes of a file in flash; 0: it keeps none there.
        ram_bytes: for the memory of a module, and its file if it is loaded into RAM.
        counter: the least that a module of the name may have.
        modules: how many it keeps in flash.
        replaces: the number of the model that one of the name takes the place of in flash; None: of none.
        delta_base: the number of the model whose module a delta may start from; None: it takes none.
    """

    machine: int
    kinds: frozenset[int]
    flash_bytes: int
    ram_bytes: int
    counter: int
    modules: int = 1
    replaces: int | None = None
    delta_base: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that a device says it has: its number, where it is, its name, the first 16 digits of its hash."""

    index: int
    place: Place
    name: str
    model_hash: str


def load(
    client: Client,
    module: bytes,
    place: Place,
    *,
    delta: bytes | None = None,
    progress: Callable[[int, int], None] = lambda there, whole: None,
) -> int:
    """Load a module's file; its model is one of the device's then, beside the firmware's own.

    Args:
        client: the session's own.
        module: the whole file.
        place: FLASH, where it stays, or RAM.
        delta: what is sent in place of the file, of a device that takes deltas (`Room.delta_base`): from what is behind
            the head of the module in flash to what is behind the new one's (mtool.manifest.delta); None: the file is.
        progress: is told how many of all bytes that are sent the device has, or are on their way to it.

    Returns:
        How many bytes of the file the device had already, of a load that broke off; all of them: it has the module.

    Raises:
        DeviceError: the device refuses the module, or the delta is from another module than the one that is there; what
            it had before stays.
        CommunicationError: the device stopped answering; load it again, and it goes on where it was.
    """
    reply, flag, check = _LOAD_REPLY, 0, b""
    if delta is not None:
        reply, flag, check = _DELTA_REPLY, _BY_DELTA, struct.pack("<I", zlib.crc32(delta))
    message = bytes([place | flag]) + module[:HEAD_BYTES] + check
    request = Request(Message.MT_LOAD, message, reply_bytes=1 + reply.size, work_s=_HEAD_S)
    there, *taken = unpack(reply, client.ask([request])[0].payload, Message.MT_LOAD)
    for count, whole, what in ((there, module, "module"), *((one, delta or b"", "delta") for one in taken)):
        if count > len(whole):
            details = [f"expected  at most {len(whole):,} B", f"found     {count:,} B"]
            raise CommunicationError(f"the device says that it has more of the {what} than there is", details=details)
    if delta is None:
        _send(client, module, there, _DATA_S, progress)
    else:
        _send(client, delta, len(delta) if there == len(module) else taken[0], _DELTA_S, progress)
    return int(there)


def _send(client: Client, data: bytes, there: int, work_s: float, progress: Callable[[int, int], None]) -> None:
    """Send what is not there yet, and have all of it become the device's."""

    def pieces() -> Iterator[Request]:
        for offset, length in client.pieces(len(data) - there):
            at = there + offset
            progress(at, len(data))
            yield Request(Message.MT_DATA, struct.pack("<I", at) + data[at : at + length], work_s=work_s)

    client.ask(pieces())
    progress(len(data), len(data))
    client.ask([Request(Message.MT_COMMIT, work_s=_COMMIT_S)])


def room(client: Client, name: str = "") -> Room:
    """Return what the device takes, of modules whose model has a name.

    Raises:
        DeviceError: its firmware takes no modules.
    """
    request = Request(Message.MT_ROOM, name.encode(), reply_bytes=1 + _ROOM_REPLY.size)
    reply = client.ask([request])[0]
    machine, kinds, *sizes, replaces, base = unpack(_ROOM_REPLY, reply.payload, Message.MT_ROOM)
    there = frozenset(number for number in range(32) if kinds >> number & 1)
    numbers = (None if number == _NONE else number for number in (replaces, base))
    return Room(machine, there, *sizes, *numbers)


def models(client: Client) -> list[Listed]:
    """Return all models of the device, in the order of their numbers.

    Raises:
        DeviceError: its firmware takes no modules.
        CommunicationError: the list is malformed, or does not end.
    """
    found: list[Listed] = []
    while len(found) <= _NONE:
        payload = client.ask([Request(Message.MT_MODELS, bytes([len(found)]), reply_bytes=255)])[0].payload
        if not payload:
            return found
        while payload:
            place, digits, length = unpack(_MODEL, payload, Message.MT_MODELS)
            end = _MODEL.size + length
            if place > Place.RAM or end > len(payload):
                raise CommunicationError("the device lists its models in a way that this mtool does not know")
            name = payload[_MODEL.size : end].decode("ascii", "replace")
            found.append(Listed(len(found), Place(place), name, digits.decode("ascii", "replace")))
            payload = payload[end:]
    what = "the device lists more models than it can have"
    raise CommunicationError(what, details=[f"expected  at most {_NONE}", f"found     {len(found)} or more"])


def fetch(client: Client, model: int, offset: int, count: int) -> bytes:
    """Return bytes of the file of the module that the model of a number came with.

    Raises:
        DeviceError: it came with none, or the file has not so many.
    """
    requests = (
        Request(Message.MT_FETCH, _FETCH.pack(model, offset + at, length), reply_bytes=1 + length)
        for at, length in client.pieces(count)
    )
    data = b"".join(reply.payload for reply in client.ask(requests))
    if len(data) != count:
        what = "the device sent another amount of a module than it was asked for"
        raise CommunicationError(what, details=[f"expected {count:,} B, found {len(data):,} B"])
    return data
