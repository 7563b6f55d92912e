"""Modules over the RPC: their limits on a device, their list, and how to load one. crt/PROTOCOL.md, "Modules"."""

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from mtool.base.errors import CommunicationError
from mtool.device.rpc.client import Client
from mtool.device.rpc.protocol import Message, Request, unpack

HEAD_BYTES = 272
"""The part of a module's file that a device checks before it accepts any other byte."""

# Generous: erasing a large sector takes seconds; a signature takes about 20 million cycles, twice.
_HEAD_S = 30.0
_DATA_S = 4.0
_DELTA_S = 120.0  # a few bytes of a delta may produce the whole file
_COMMIT_S = 60.0

_ROOM_REPLY = struct.Struct("<5I4B")
_NONE = 0xFF  # instead of a model's number
_LOAD_REPLY = struct.Struct("<I")
_DELTA_REPLY = struct.Struct("<2I")
_BY_DELTA = 0x80
_FETCH = struct.Struct("<BIH")
_MODEL = struct.Struct("<B16sB")


class Place(IntEnum):
    """Where a model is stored, or a module is loaded to."""

    FIRMWARE = 0
    FLASH = 1
    RAM = 2


@dataclass(frozen=True, slots=True)
class ModuleLimits:
    """A device's limits for modules.

    Attributes:
        machine: its core and ABI (mtool.manifest.modules.format).
        kinds: the kinds of modules that it runs, by number.
        flash_bytes: the largest file in flash; 0: it can't store modules in flash.
        ram_bytes: for a module's memory, and its file if it is loaded into RAM.
        counter: the lowest counter that it accepts for a module of that name.
        modules: the number of modules that it keeps in flash.
        replaces: the number of the model in flash that a module of that name would replace; None: none.
        delta_base: the number of the model whose module a delta may start from; None: it accepts no delta.
        trial: the number of the model whose module is on trial; None: none.
    """

    machine: int
    kinds: frozenset[int]
    flash_bytes: int
    ram_bytes: int
    counter: int
    modules: int = 1
    replaces: int | None = None
    delta_base: int | None = None
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A model on a device: its number, its place, its name, the first 16 digits of its hash."""

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
    trial: int = 0,
    progress: Callable[[int, int], None] = lambda sent, total: None,
) -> int:
    """Load a module's file; its model is then available in addition to the firmware's own.

    Args:
        client: the session's own.
        module: the whole file.
        place: FLASH, where it is kept, or RAM.
        delta: sent instead of the file to a device that accepts deltas (`ModuleLimits.delta_base`), without the
            headers: from the module in flash to the new one (mtool.manifest.delta); None: send the file.
        trial: in flash, the number of starts in which the module must be confirmed, by loading the same file with 0.
        progress: called with the bytes that were sent or that the device already has, and the total.

    Returns:
        The bytes of the file that the device already had from an interrupted load; all of them: it has the module.

    Raises:
        DeviceError: the device refuses the module, or the delta starts from another module than the one in flash; the
            previous module is kept.
        CommunicationError: the device stopped answering; load it again to continue.
    """
    reply, flag, check = _LOAD_REPLY, 0, b""
    if delta is not None:
        reply, flag, check = _DELTA_REPLY, _BY_DELTA, struct.pack("<I", zlib.crc32(delta))
    message = bytes([place | flag]) + module[:HEAD_BYTES] + check
    request = Request(Message.MT_LOAD, message, reply_bytes=1 + reply.size, work_s=_HEAD_S)
    sent, *received = unpack(reply, client.ask([request])[0].payload, Message.MT_LOAD)
    for count, total, what in ((sent, module, "module"), *((count, delta or b"", "delta") for count in received)):
        if count > len(total):
            details = [f"expected  at most {len(total):,} B", f"found     {count:,} B"]
            raise CommunicationError(f"the device claims to have more bytes than the {what} has", details=details)
    if delta is None:
        _send(client, module, sent, trial, _DATA_S, progress)
    else:
        _send(client, delta, len(delta) if sent == len(module) else received[0], trial, _DELTA_S, progress)
    return int(sent)


def _send(
    client: Client, data: bytes, sent: int, trial: int, work_s: float, progress: Callable[[int, int], None]
) -> None:
    """Send the missing bytes, and make the device accept the whole."""

    def pieces() -> Iterator[Request]:
        for offset, length in client.pieces(len(data) - sent):
            at = sent + offset
            progress(at, len(data))
            yield Request(Message.MT_DATA, struct.pack("<I", at) + data[at : at + length], work_s=work_s)

    client.ask(pieces())
    progress(len(data), len(data))
    client.ask([Request(Message.MT_COMMIT, bytes([trial] * (trial > 0)), work_s=_COMMIT_S)])


def module_limits(client: Client, name: str = "") -> ModuleLimits:
    """Return the device's limits for modules whose model has a name.

    Raises:
        DeviceError: its firmware does not support modules.
    """
    request = Request(Message.MT_ROOM, name.encode(), reply_bytes=1 + _ROOM_REPLY.size)
    reply = client.ask([request])[0]
    machine, kinds, *sizes, replaces, base, trial = unpack(_ROOM_REPLY, reply.payload, Message.MT_ROOM)
    there = frozenset(number for number in range(32) if kinds >> number & 1)
    numbers = (None if number == _NONE else number for number in (replaces, base, trial))
    return ModuleLimits(machine, there, *sizes, *numbers)


def models(client: Client) -> list[DeviceModel]:
    """Return all models of the device, in the order of their numbers.

    Raises:
        DeviceError: its firmware does not support modules.
        CommunicationError: the list is malformed, or does not end.
    """
    result: list[DeviceModel] = []
    while len(result) <= _NONE:
        payload = client.ask([Request(Message.MT_MODELS, bytes([len(result)]), reply_bytes=255)])[0].payload
        if not payload:
            return result
        while payload:
            place, digits, length = unpack(_MODEL, payload, Message.MT_MODELS)
            end = _MODEL.size + length
            if place > Place.RAM or end > len(payload):
                raise CommunicationError("this mtool can't read the device's list of models")
            name = payload[_MODEL.size : end].decode("ascii", "replace")
            result.append(DeviceModel(len(result), Place(place), name, digits.decode("ascii", "replace")))
            payload = payload[end:]
    what = "the device's list of models is too long"
    raise CommunicationError(what, details=[f"expected  at most {_NONE}", f"found     {len(result)} or more"])


def fetch(client: Client, model: int, offset: int, count: int) -> bytes:
    """Return bytes of the module file of a model, by the model's number.

    Raises:
        DeviceError: the model is not from a module, or the file is shorter.
    """
    requests = (
        Request(Message.MT_FETCH, _FETCH.pack(model, offset + at, length), reply_bytes=1 + length)
        for at, length in client.pieces(count)
    )
    data = b"".join(reply.payload for reply in client.ask(requests))
    if len(data) != count:
        what = "the device sent a wrong number of bytes of a module"
        raise CommunicationError(what, details=[f"expected {count:,} B, found {len(data):,} B"])
    return data
