"""Frames: COBS with a zero at both ends, CRC-32. crt/PROTOCOL.md has the bytes."""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from cobs import cobs

_HEADER = struct.Struct("<BHH")
_CRC = struct.Struct("<I")
_TAIL_BYTES = 4096
_MOST_BYTES = 1 << 17  # the longest frame: a device that sends no zero must not fill the memory

FRAME_BYTES = _HEADER.size + _CRC.size
"""The size of a frame with an empty payload, before encoding."""


class Frame(NamedTuple):
    """One message: `type` of mtool.device.rpc.protocol.Message, `session` and `sequence` of 16 bits."""

    type: int
    session: int
    sequence: int
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """Return a frame's bytes on the wire, including delimiters."""
    body = _HEADER.pack(frame.type, frame.session, frame.sequence) + frame.payload
    encoded: bytes = cobs.encode(body + _CRC.pack(zlib.crc32(body)))
    return b"\0" + encoded + b"\0"


def decode(encoded: bytes | bytearray) -> Frame | None:
    """Return the frame between two delimiters, or None if it is damaged."""
    try:
        body: bytes = cobs.decode(encoded)
    except cobs.DecodeError:
        return None
    if len(body) < FRAME_BYTES or _CRC.unpack(body[-_CRC.size :])[0] != zlib.crc32(body[: -_CRC.size]):
        return None
    kind, session, sequence = _HEADER.unpack_from(body)
    return Frame(kind, session, sequence, body[_HEADER.size : -_CRC.size])


class Decoder:
    """Find frames in bytes as they arrive."""

    def __init__(self) -> None:
        self.pending = bytearray()
        self._tail = bytearray()

    @property
    def tail(self) -> bytes:
        """The last bytes that were not a frame, such as firmware's printed text."""
        return bytes(self._tail + self.pending)[-_TAIL_BYTES:]

    def feed(self, data: bytes) -> Iterator[Frame | None]:
        """Yield the frames that are now complete, None for each damaged one."""
        self.pending += data
        *pieces, rest = self.pending.split(b"\0")
        self.pending = rest if len(rest) <= _MOST_BYTES else bytearray()
        for piece in pieces:
            if piece:
                frame = decode(piece)
                if frame is None:
                    self._tail += piece
                    del self._tail[:-_TAIL_BYTES]
                yield frame
