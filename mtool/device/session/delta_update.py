"""Send a module as its difference from the device's module of that name in flash, if that module's file is here.

Loaded files are kept in the user's cache, so the next version usually finds its predecessor. The device
rebuilds the whole file and checks it like any other: the cache only decides how many bytes are sent.
"""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mtool.base import cache, plural
from mtool.base.errors import UsageError
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import HEAD_BYTES, Place
from mtool.manifest.delta import MOST_BYTES, delta
from mtool.manifest.modules.format import unpack

log = logging.getLogger(__name__)

_MOST_STARTS = 255
_KEPT = "module.mtm"
_OF = b"a module's head:"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The sent part of a module.

    Attributes:
        there_bytes: bytes of the file that the device already had; 0 for a delta.
        delta_bytes: bytes of the delta that was sent instead of the file; 0: the file was sent.
        replaced: the model of another name that it replaced in flash; empty: none.
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
    trial: int = 0,
    progress: Callable[[int, int], None] = lambda there, whole: None,
) -> Transfer:
    """Load a module's file like `mtool.device.rpc.loading.load`, with the fewest bytes.

    Args:
        client: the session's own.
        module: the whole file.
        place: FLASH, where it is kept, or RAM.
        since: the file of the device's module in flash; empty: find it among the files that were loaded from here.
        trial: the starts of a trial; 0: for good.
        progress: called with the bytes that were sent or that the device already has, and the total.

    Raises:
        UsageError: the device has another module in flash than `since`, or the trial is too long or in RAM.
        DeviceError: the device refuses the module; the previous one is kept.
        CommunicationError: the device stopped answering; load it again to continue.
    """
    if not 0 <= trial <= _MOST_STARTS or (trial and place == Place.RAM):
        details = [f"expected  0 to {_MOST_STARTS} starts, of a module in flash"]
        details += [f"found     {trial}, in {'RAM' if place == Place.RAM else 'flash'}"]
        raise UsageError("a module can't be on trial like this", details=details)
    name = unpack(module).name
    limits = loading.module_limits(client, name)
    replaced = (
        loading.models(client)[limits.replaces].name if place == Place.FLASH and limits.replaces is not None else ""
    )
    replaced = "" if replaced == name else replaced
    if replaced:
        held = plural.count(limits.modules, "module")
        log.warning("%s replaces %s: the device only keeps %s in flash", name, replaced, held)
    delta = _delta(client, module, since, limits.delta_base if limits.trial is None else None)
    if delta and len(delta) < len(module) - HEAD_BYTES:
        loading.load(client, module, place, delta=delta, trial=trial, progress=progress)
        sent = Transfer(0, len(delta), replaced)
    else:
        sent = Transfer(loading.load(client, module, place, trial=trial, progress=progress), replaced=replaced)
    files = cache.of_user()
    if files is not None and place == Place.FLASH:
        files.put(_key(module), {_KEPT: cache.File(module)})
    return sent


def _delta(client: Client, module: bytes, since: bytes, base: int | None) -> bytes:
    """Return the delta from the module of a model's number; empty: there is none, or its file is not here."""
    if base is None:
        if since:
            log.warning("the device has no module of that name in flash, so the new one is sent as a whole")
        return b""
    head = loading.fetch(client, base, 0, HEAD_BYTES)
    if since and since[:HEAD_BYTES] != head:
        raise UsageError(
            "the device's module in flash is not the one of --since",
            hint="omit --since to send the whole module",
        )
    old = since or _cached_module(head)
    if head == module[:HEAD_BYTES] or not old or max(len(old), len(module)) > MOST_BYTES:
        return b""
    return delta(old[HEAD_BYTES:], module[HEAD_BYTES:])


def _cached_module(head: bytes) -> bytes:
    """Return the loaded file with a header from the cache."""
    cached = cache.of_user()
    files = cached.get(_key(head)) if cached is not None else None
    data = files[_KEPT].data if files and _KEPT in files else b""
    try:
        unpack(data)  # checks the rest against the hash in the header
    except UsageError:
        return b""
    return data if data[:HEAD_BYTES] == head else b""


def _key(module: bytes) -> str:
    return hashlib.sha256(_OF + module[:HEAD_BYTES]).hexdigest()
