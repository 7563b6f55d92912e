"""Decode a device's output without a session: separate lines of text from frames of the RPC."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtool.base.errors import CommunicationError
from mtool.device.rpc import protocol
from mtool.device.rpc.framing import Frame, decode
from mtool.device.rpc.protocol import Message, describe, device_error, read_fault
from mtool.device.session import faults
from mtool.manifest import Manifest
from mtool.manifest.link_key import MAC_BYTES

Kind = Literal["text", "log", "rpc", "fault", "bytes"]

_LONGEST_LINE = 4096  # bytes; longer data is not a line
_SHOWN = 16  # bytes of data that is neither text nor a frame


@dataclass(frozen=True, slots=True)
class DeviceOutput:
    """Something that a device sent: a printed line, a line logged in a frame, another frame, or a fault."""

    kind: Kind
    text: str


class Listener:
    """Decode bytes as they arrive.

    Args:
        manifest: of the project that runs there, for a fault's operator; None: unknown.
        firmware: its file, for a fault's line of C; None: it is not here.
        is_sealed: the firmware has a link key, so that frames end with a MAC, which is left out.
    """

    def __init__(
        self, manifest: Manifest | None = None, firmware: Path | None = None, *, is_sealed: bool = False
    ) -> None:
        self._is_sealed = is_sealed
        self._manifest = manifest
        self._firmware = firmware
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[DeviceOutput]:
        """Yield the frames, which end with a zero, and the lines that these bytes complete."""
        *pieces, self._pending = (self._pending + data).split(b"\0")
        for piece in pieces:
            frame = decode(piece) if piece else None
            yield from _unframed(piece) if frame is None else self._frame(frame)
        *lines, rest = self._pending.split(b"\n")
        if lines and all(map(_is_text, lines)):
            yield from _lines(b"\n".join(lines))
            self._pending = rest
        elif len(self._pending) > _LONGEST_LINE:
            yield from self.flush()

    def flush(self) -> Iterator[DeviceOutput]:
        """Yield incomplete data once nothing more comes: a shell's prompt, a partial frame."""
        piece, self._pending = self._pending, b""
        yield from _unframed(piece)

    def _frame(self, frame: Frame) -> Iterator[DeviceOutput]:
        if self._is_sealed and frame.type in (Message.MT_LOG, Message.MT_FAULT):
            frame = frame._replace(payload=frame.payload[:-MAC_BYTES])
        if frame.type == Message.MT_LOG:
            yield from (
                DeviceOutput("log", line) for line in frame.payload.decode(errors="replace").splitlines() or [""]
            )
        elif frame.type == Message.MT_FAULT:
            fault = read_fault(frame.payload)
            manifest = self._manifest
            error = device_error(fault) if manifest is None else faults.explain(fault, manifest, self._firmware)
            yield from (DeviceOutput("fault", line) for line in error.lines())
        else:
            yield DeviceOutput("rpc", _described(frame))


def _described(frame: Frame) -> str:
    """Return a frame in one line."""
    is_reply = bool(frame.type & protocol.REPLY) and frame.type < Message.MT_RESEND
    number = frame.type & ~protocol.REPLY if is_reply else frame.type
    name = next((kind.name.removeprefix("MT_") for kind in Message if kind == number), f"type 0x{frame.type:02x}")
    parts = [f"{name} reply" if is_reply else name, f"session {frame.session:04x}", f"#{frame.sequence}"]
    if is_reply and frame.payload:
        parts.append(describe(frame.payload[0]))
    if is_reply and number == Message.MT_HELLO:
        with contextlib.suppress(CommunicationError):
            hello = protocol.read_hello(frame.payload)
            parts.append(f"model {hello.model} {hello.model_hash}, build {hello.build_hash}")
    return f"{'  '.join(parts)}  {len(frame.payload):,} B"


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char in "\r\n\t\x1b\b" for char in text)


def _unframed(data: bytes) -> Iterator[DeviceOutput]:
    """Yield the lines of text that the data starts with, and the rest as text or as bytes."""
    *lines, rest = data.split(b"\n")
    count = next((at for at, line in enumerate(lines) if not _is_text(line)), len(lines))
    rest = b"\n".join([*lines[count:], rest])
    yield from _lines(b"".join(line + b"\n" for line in lines[:count]))
    if _is_text(rest):
        yield from _lines(rest)
    else:
        more = " …" if len(rest) > _SHOWN else ""
        yield DeviceOutput("bytes", f"{len(rest):,} B, neither a frame nor text: {rest[:_SHOWN].hex(' ')}{more}")


def _lines(data: bytes) -> Iterator[DeviceOutput]:
    yield from (DeviceOutput("text", line) for line in data.decode().splitlines())
