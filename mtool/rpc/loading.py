"""Modules over the RPC: what a device takes and has, and how one gets there. crt/PROTOCOL.md, "Modules"."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from mtool.errors import CommunicationError
from mtool.rpc.client import Client
from mtool.rpc.protocol import Message, Request, unpack

HEAD_BYTES = 272
"""Of a module's file, which a device judges it by before any other byte is sent."""

# Generously: a large sector takes seconds to be erased; a signature some 20 million cycles of a core, twice.
_HEAD_S = 30.0
_DATA_S = 4.0
_COMMIT_S = 60.0

_ROOM_REPLY = struct.Struct("<5I")
_LOAD_REPLY = struct.Struct("<I")
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
        machine: its core and ABI (mtool.modules.machine).
        kinds: of modules that it runs, by their numbers.
        flash_bytes: most bytes of a file in flash; 0: it keeps none there.
        ram_bytes: for the memory of modules, and the file of one that is loaded into RAM.
        counter: the least that a module may have.
    """

    machine: int
    kinds: frozenset[int]
    flash_bytes: int
    ram_bytes: int
    counter: int


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that a device says it has: its number, where it is, its name, the first 16 digits of its hash."""

    index: int
    place: Place
    name: str
    model_hash: str


def load(
    client: Client, module: bytes, place: Place, *, progress: Callable[[int, int], None] = lambda there, whole: None
) -> int:
    """Load a module's file; its model is one of the device's then, beside the firmware's own.

    Args:
        client: the session's own.
        module: the whole file.
        place: FLASH, where it stays, or RAM.
        progress: is told how many of all bytes the device has, or are on their way to it.

    Returns:
        How many bytes the device had already, of a load that broke off; all of them: it has the module.

    Raises:
        DeviceError: the device refuses the module; what it had before stays.
        CommunicationError: the device stopped answering; load it again, and it goes on where it was.
    """
    head = Request(Message.MT_LOAD, bytes([place]) + module[:HEAD_BYTES], reply_bytes=5, work_s=_HEAD_S)
    (there,) = unpack(_LOAD_REPLY, client.ask([head])[0].payload, Message.MT_LOAD)
    if there > len(module):
        raise CommunicationError(
            "the device says that it has more of the module than there is",
            details=[f"expected  at most {len(module):,} B", f"found     {there:,} B"],
        )

    def pieces() -> Iterator[Request]:
        for offset, length in client.pieces(len(module) - there):
            at = there + offset
            progress(at, len(module))
            data = struct.pack("<I", at) + module[at : at + length]
            yield Request(Message.MT_DATA, data, work_s=_DATA_S if place == Place.FLASH else 0.0)

    client.ask(pieces())
    progress(len(module), len(module))
    client.ask([Request(Message.MT_COMMIT, work_s=_COMMIT_S)])
    return int(there)


def room(client: Client) -> Room:
    """Return what the device takes.

    Raises:
        DeviceError: its firmware takes no modules.
    """
    reply = client.ask([Request(Message.MT_ROOM, reply_bytes=1 + _ROOM_REPLY.size)])[0]
    machine, kinds, flash_bytes, ram_bytes, counter = unpack(_ROOM_REPLY, reply.payload, Message.MT_ROOM)
    there = frozenset(number for number in range(32) if kinds >> number & 1)
    return Room(machine, there, flash_bytes, ram_bytes, counter)


def models(client: Client) -> list[Listed]:
    """Return all models of the device, in the order of their numbers.

    Raises:
        DeviceError: its firmware takes no modules.
        CommunicationError: the list is malformed.
    """
    found: list[Listed] = []
    while True:
        payload = client.ask([Request(Message.MT_MODELS, bytes([len(found)]), reply_bytes=255)])[0].payload
        if not payload or len(found) > 0xFF:
            return found
        while payload:
            place, digits, length = unpack(_MODEL, payload, Message.MT_MODELS)
            end = _MODEL.size + length
            if place > Place.RAM or end > len(payload):
                raise CommunicationError("the device lists its models in a way that this mtool does not know")
            name = payload[_MODEL.size : end].decode("ascii", "replace")
            found.append(Listed(len(found), Place(place), name, digits.decode("ascii", "replace")))
            payload = payload[end:]


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
        raise CommunicationError(
            "the device sent another amount of a module than it was asked for",
            details=[f"expected {count:,} B, found {len(data):,} B"],
        )
    return data
