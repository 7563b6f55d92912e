"""`mtool monitor`: what a board sends while no host drives it."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mtool.base.errors import BoardError, CommunicationError, UsageError
from mtool.cli.output import SCHEMA_VERSION, Output

if TYPE_CHECKING:
    from mtool.boards import Board
    from mtool.device.flash.ports import Attached, DeviceSelector
    from mtool.device.session.monitoring import DeviceOutput, Listener
    from mtool.device.transport import Transport
    from mtool.manifest import Manifest

_QUIET_S = 0.1  # without a byte: what has arrived is shown, even an incomplete line
_LOOK_S = 0.3  # between two attempts to reopen a port that is gone


def monitor(
    out: Output,
    project: Path | None = None,
    board: str = "",
    port: str = "",
    probe: str = "",
    baud: int = 0,
    seconds: float = 0.0,
    *,
    link_key: Path | None = None,
) -> None:
    """Show what a board sends, with text, logs and RPC frames kept apart.

    Text is shown as the board printed it; other lines start with what they are: log, rpc, fault, bytes. If the port
    disappears, as one over USB does at a reset, mtool waits for it. With --json each message is an object on its own
    line.
    """
    from mtool import boards
    from mtool.boards import Usb
    from mtool.device.flash import ports
    from mtool.device.session.monitoring import Listener
    from mtool.device.transport import open_port
    from mtool.manifest.link_key import find

    described, firmware = _project(project)
    on = described.project.board if described is not None and described.project is not None else None
    if board:
        on = boards.get(board)
    selector = ports.selector(port, probe)
    rate = baud or (on.usb or Usb()).uart if on is not None else baud or Usb().uart
    device = _device(on, selector)

    def connect() -> "Transport":
        return open_port(device.port, baud=rate, firmware=firmware, probe=device.probe)

    transport = connect()
    started = time.monotonic()
    until = started + seconds if seconds else None
    out.note(f"listening to {transport.name}{f' at {rate} baud' if transport.baud else ''}; Ctrl-C stops")
    is_sealed = find(link_key, project) is not None
    for heard in _follow(out, transport, connect, Listener(described, firmware, is_sealed=is_sealed), until):
        show_message(out, heard, time.monotonic() - started)


def _project(folder: Path | None) -> "tuple[Manifest | None, Path | None]":
    from mtool import manifest

    if folder is None:
        return None, None
    described = manifest.load(folder)
    on = manifest.project_of(described, folder)
    files = [manifest.firmware_of(folder, on, kind) for kind in on.firmware]
    return described, next((file for file in files if file.is_file()), None)


def _device(board: "Board | None", selector: "DeviceSelector") -> "Attached":
    from mtool.device.flash import ports

    if board is None:
        return ports.any_port(selector)
    if not selector.port and not selector.probe and (board.emulator is not None or board.usb is None):
        raise UsageError(
            f"{board.name} has no port: it runs only while mtool starts it",
            hint="mtool run shows its log; to listen to an emulator that you started yourself, give --port",
        )
    return ports.require(board, selector)


def _follow(
    out: Output, transport: "Transport", connect: "Callable[[], Transport]", listener: "Listener", until: float | None
) -> "Iterator[DeviceOutput]":
    """Show messages until a time; if the port disappears, wait for it."""
    while True:
        try:
            with transport:
                while not is_over(until):
                    data = transport.read(timeout_s=_QUIET_S)
                    yield from listener.feed(data) if data else listener.flush()
                return
        except CommunicationError as gone:
            yield from listener.flush()
            out.note(f"{gone.what}; waiting for it")
        back: Transport | None = None
        while back is None:
            if is_over(until):
                return
            time.sleep(_LOOK_S)
            with contextlib.suppress(BoardError, CommunicationError):
                back = connect()
        transport = back
        out.note(f"{transport.name} is back")


def is_over(until: float | None) -> bool:
    """Return whether a time has passed; None never passes."""
    return until is not None and time.monotonic() >= until


def show_message(out: Output, heard: "DeviceOutput", seconds: float) -> None:
    """Print a message, with --json as a line of JSON."""
    if out.as_json:
        row = {"schema_version": SCHEMA_VERSION, "command": out.command, "seconds": round(seconds, 3)}
        out.line(json.dumps({**row, "kind": heard.kind, "text": heard.text}))
    else:
        out.text(heard.text if heard.kind == "text" else f"{heard.kind:<5} {heard.text}")
