"""Load a module into a device whose firmware accepts modules."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mtool import boards, manifest
from mtool.base.errors import DeviceError, FitError, MtoolError, UsageError
from mtool.boards import Usb
from mtool.commands.modules import read_module
from mtool.device import session
from mtool.device.flash import ports
from mtool.device.rpc import Client, loading
from mtool.device.rpc.loading import HEAD_BYTES, DeviceModel, ModuleLimits, Place
from mtool.device.rpc.protocol import Status
from mtool.device.session import delta_update
from mtool.device.session.connection import no_modules, of_flash, require_modules
from mtool.device.transport import open_port
from mtool.manifest.link_key import find
from mtool.manifest.modules import exports, format
from mtool.manifest.modules.format import Kind, Module
from mtool.stages.job import check_board, project_in

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
_TIMEOUT_S = 10.0
_MORE = "build the firmware with more memory for modules: --option module_slot_bytes=N, module_ram_bytes=N"
_DEFAULT_BAUD = Usb().uart


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of loading a module.

    Attributes:
        module: the module.
        place: where it is now.
        file_bytes: the size of its file.
        there_bytes: the part of these that the device had already.
        seconds: the time that loading took.
        models: all models of the device, in the order of their numbers.
        delta_bytes: the size of the delta that was sent; 0: the whole file was sent.
        replaced: the model with another name whose place in flash it took; empty: none.
        trial: the starts in which it must be confirmed; 0: it stays.
        is_confirmed: it was on trial before, and stays from now on.
        is_kept: it is still there when the device is opened again; False: the emulator that had it has ended.
    """

    module: Module
    place: Place
    file_bytes: int
    there_bytes: int
    seconds: float
    models: tuple[DeviceModel, ...]
    delta_bytes: int = 0
    replaced: str = ""
    trial: int = 0
    is_confirmed: bool = False
    is_kept: bool = True


def load_module(
    path: Path,
    project: Path | None = None,
    *,
    port: str = "",
    probe: str = "",
    board: str = "",
    ram: bool = False,
    since: Path | None = None,
    trial: int = 0,
    link_key: Path | None = None,
    progress: Progress = lambda there, whole: None,
) -> Loaded:
    """Load a module; an interrupted load of the same module is resumed.

    Args:
        path: the module's file.
        project: the folder of the firmware that runs on the device; None: the firmware that answers at the port.
        port: that of `session.open`; without a project a serial port or tcp://HOST:PORT, which is required.
        probe: that of `session.open`.
        board: without a project, the board whose baud rate is used; empty: 115200.
        ram: load it into RAM, where it is lost at the next reset.
        since: the file of the module that is in flash: only the difference is sent; None: that module, if it was loaded
            from this computer.
        trial: the number of starts for which it is on trial: if it is not confirmed in that time, or memory protection
            stops it, the next start uses the modules before it; 0: it stays, which also confirms it.
        link_key: that of `session.open`.
        progress: called with the number of bytes sent so far, and the number of bytes to send.

    Raises:
        UsageError: the file is not a module, there is no device to load it into, or the firmware can't run its kind.
        FitError: the device does not have enough memory.
        DeviceError: the device refuses it; what it had before stays.
        CommunicationError: the device stopped answering.
    """
    module, data = read_module(path)
    old = read_module(since)[1] if since is not None else b""
    place = Place.RAM if ram else Place.FLASH
    if project is not None:
        described = project_in(project)
        check_board(project, described, board)
        require_modules(described)
        with session.open(project, port=port, probe=probe, link_key=link_key) as device:
            try:
                done = _load(device.session, module, data, old, place, trial, progress)
            except DeviceError as refused:
                raise of_flash(refused, device.connection.transport.flash) from None
            # project_templates/shared/storage_in_file.c names the file of an emulated flash.
            firmware = manifest.firmware_of(project, described, "host_driven")
            has_flash_file = firmware.with_name(f"{firmware.name}.flash").is_file()
            return replace(done, is_kept=device.is_at_port or (not ram and has_flash_file))
    if not port:
        raise UsageError(
            "neither a project nor a port is given for the device",
            hint=f"give the firmware's project, or a port: mtool load {path} build/PROJECT",
        )
    if port == ports.EMULATOR:
        raise UsageError(
            f"--port {port} needs the project whose firmware the emulator runs",
            hint=f"mtool load {path} build/PROJECT --port {port}",
        )
    usb = boards.get(board).usb if board else None
    with open_port(port, baud=usb.uart if usb else _DEFAULT_BAUD, probe=probe) as transport:
        client = Client(transport, timeout_s=_TIMEOUT_S, key=find(link_key))
        try:
            return _load(client, module, data, old, place, trial, progress)
        finally:
            client.close()


def _load(
    client: Client, module: Module, data: bytes, old: bytes, place: Place, trial: int, progress: Progress
) -> Loaded:
    start = time.monotonic()
    try:
        limits = loading.module_limits(client, module.name)
    except DeviceError as refused:
        if Status.MT_UNKNOWN_MESSAGE.name not in str(refused):
            raise
        raise no_modules() from None
    check(module, len(data), place, limits)
    head = loading.fetch(client, limits.trial, 0, HEAD_BYTES) if limits.trial is not None else b""
    try:
        sent = delta_update.send(client, data, place, since=old, trial=trial, progress=progress)
    except DeviceError as refused:
        raise explained(refused, module) from None
    seconds = time.monotonic() - start
    how = f"as a delta of {sent.delta_bytes:,} B" if sent.delta_bytes else f"{sent.there_bytes:,} there before"
    log.info("  %-9s %4.1f s   %s B, %s", "load", seconds, f"{len(data):,}", how)
    models = tuple(loading.models(client))
    is_confirmed = head == data[:HEAD_BYTES] and place == Place.FLASH and not trial
    if trial and loading.module_limits(client, module.name).trial is None:
        trial = 0  # it was there, and confirmed
    return Loaded(
        module,
        place,
        len(data),
        sent.there_bytes,
        seconds,
        models,
        sent.delta_bytes,
        sent.replaced,
        trial,
        is_confirmed,
    )


def check(module: Module, file_bytes: int, place: Place, limits: ModuleLimits) -> None:
    """Check that the device will accept a module.

    Raises:
        UsageError: the firmware does not run its kind or machine, or has had a newer one.
        FitError: the device does not have enough memory.
    """
    if module.kind not in limits.kinds:
        raise UsageError(
            f"this firmware has no support for {module.kind.name.lower()} modules",
            hint="rebuild it with --option module_kinds=both",
        )
    if module.counter < limits.counter:
        raise UsageError(
            f"{module.name}'s counter ({module.counter}) is below the device's ({limits.counter})",
            details=[f"expected  counter {limits.counter} or more", f"found     {module.counter}"],
            hint=f"to replace the device's module, make this one with --counter {limits.counter}",
        )
    if not format.runs(limits.machine, module.machine):
        raise UsageError(
            f"{module.name} is for another machine",
            details=[
                f"expected  {format.describe(limits.machine)}, or less",
                f"found     {format.describe(module.machine)}",
            ],
            hint="make it with the device's board: --board BOARD",
        )
    if place == Place.FLASH and not limits.flash_bytes:
        hint = "load it into RAM: --ram; the flash that firmware can use: docs/modules.md"
        raise UsageError("the device has no flash for modules", hint=hint)
    ram_bytes = module.ram_bytes() + (file_bytes if place == Place.RAM else 0)
    for what, needed, available in (
        ("a slot", file_bytes if place == Place.FLASH else 0, limits.flash_bytes),
        ("the RAM for modules", ram_bytes, limits.ram_bytes),
    ):
        if needed > available:
            raise FitError(
                f"{module.name} does not fit into {what} on the device",
                details=[f"needs {needed:,} B of {available:,} B"],
                hint=_MORE,
            )


def explained(error: DeviceError, module: Module) -> MtoolError:
    """Return an error that explains why the device refused a module."""
    if Status.MT_NO_MEMORY.name in str(error):
        return FitError(
            f"{module.name} does not fit beside the device's other modules",
            details=[f"it needs {module.ram_bytes():,} B of RAM, and an entry for its name in the journal of counters"],
            hint=_MORE,
        )
    if Status.MT_BAD_SIGNATURE.name in str(error):
        reason = "it is not signed"
        if module.is_signed:
            reason = f"its key id is {module.key_id.hex()}: not the firmware's key, or replaced, or a changed header"
            if module.next_key:
                reason += "; or its --next-key was replaced before: a replaced key never comes back"
        return DeviceError(
            f"the device does not trust the signature of {module.name}",
            details=[reason],
            hint="sign it with the device's current key (the firmware's, or its replacement): mtool module --key FILE",
        )
    if Status.MT_MISSING_IMPORT.name in str(error) and module.kind == Kind.BYTECODE:
        return DeviceError(
            f"{module.name} calls a kernel that the firmware does not have",
            hint="build the firmware with all of MT_BYTECODE_INT8, MT_BYTECODE_FLOAT32 and MT_BYTECODE_MAP",
        )
    if Status.MT_MISSING_IMPORT.name in str(error):
        names = [exports.BY_HASH[key].name if key in exports.BY_HASH else f"{key:#010x}" for key in module.imports]
        return DeviceError(
            f"{module.name} calls a function that the firmware does not have",
            details=[f"it calls {', '.join(names)}"],
            hint=f"build the firmware with --option definitions=MT_MODULE_MATH={exports.level(module.imports)}",
        )
    return error
