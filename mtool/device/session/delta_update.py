"""A module sent as its difference from the one of its name that the device has in flash, where that one's file is here.

Files that were loaded are kept in the user's cache, so that the next one mostly finds its predecessor. The device
makes the whole file again and checks it like any other: what is here decides how many bytes are sent, and no more.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mtool.base import cache
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import HEAD_BYTES, Place
from mtool.manifest.delta import MOST_BYTES, delta
from mtool.manifest.modules.format import unpack

log = logging.getLogger(__name__)

_KEPT = "module.mtm"
_OF = b"a module's head:"


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent of a module.

    Attributes:
        there_bytes: of the file, those that the device had already; of a delta, 0.
        delta_bytes: of the delta that was sent in place of the file; 0: the file was.
        replaced: the model of another name whose place in flash it took; empty: none's.
    """

    there_bytes: int
    delta_bytes: int = 0
    replaced: str = ""


def send(
    client: Client,
    module: bytes,
    place: Place,
    *,
    since: bytes = b"",
    progress: Callable[[int, int], None] = lambda there, whole: None,
) -> Sent:
    """Load a module's file, as `mtool.device.rpc.loading.load`, by as few bytes as there is a way.

    Args:
        client: the session's own.
        module: the whole file.
        place: FLASH, where it stays, or RAM.
        since: the file of the module that the device has in flash; empty: one that was loaded from here before.
        progress: is told how many bytes are on their way or there, of all that are sent.

    Raises:
        UsageError: the device has another module in flash than `since`.
        DeviceError: the device refuses the module; what it had before stays.
        CommunicationError: the device stopped answering; load it again, and it goes on where it was.
    """
    name = unpack(module).name
    room = loading.room(client, name)
    replaced = loading.models(client)[room.replaces].name if place == Place.FLASH and room.replaces is not None else ""
    replaced = "" if replaced == name else replaced
    if replaced:
        kept = f"{room.modules} module{'s' * (room.modules > 1)}"
        log.warning("%s replaces %s: the device keeps %s in flash", name, replaced, kept)
    made = _delta(client, module, since, room.delta_base)
    if made and len(made) < len(module) - HEAD_BYTES:
        loading.load(client, module, place, delta=made, progress=progress)
        sent = Sent(0, len(made), replaced)
    else:
        sent = Sent(loading.load(client, module, place, progress=progress), replaced=replaced)
    files = cache.of_user()
    if files is not None and place == Place.FLASH:
        files.put(_key(module), {_KEPT: cache.File(module)})
    return sent


def _delta(client: Client, module: bytes, since: bytes, base: int | None) -> bytes:
    """Return the delta from the module of a number; empty: there is none, or its file is not here."""
    if base is None:
        if since:
            log.warning("the device has no module of that name in flash to start from: the new one is sent whole")
        return b""
    head = loading.fetch(client, base, 0, HEAD_BYTES)
    if since and since[:HEAD_BYTES] != head:
        raise UsageError(
            "the device has another module in flash than the one that the new one is to start from",
            hint="leave --since out, and it is sent whole",
        )
    old = since or _kept(head)
    if head == module[:HEAD_BYTES] or not old or max(len(old), len(module)) > MOST_BYTES:
        return b""
    return delta(old[HEAD_BYTES:], module[HEAD_BYTES:])


def _kept(head: bytes) -> bytes:
    """Return the file with a head, if it was loaded from here."""
    kept = cache.of_user()
    found = kept.get(_key(head)) if kept is not None else None
    data = found[_KEPT].data if found and _KEPT in found else b""
    try:
        unpack(data)  # whose head has the hash of the rest
    except UsageError:
        return b""
    return data if data[:HEAD_BYTES] == head else b""


def _key(module: bytes) -> str:
    return hashlib.sha256(_OF + module[:HEAD_BYTES]).hexdigest()
