"""Frames: COBS with a zero at both ends, CRC-32. crt/PROTOCOL.md has the bytes."""

import struct
import zlib
from collections.abc import Iterator
from hmac import compare_digest
from typing import NamedTuple

from cobs import cobs

from mtool.manifest import link_key
from mtool.manifest.link_key import LinkKey

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


class Seal:
    """The authentication of a session's frames: a MAC at the end of each payload."""

    def __init__(self, key: LinkKey) -> None:
        self._key = key

    def seal(self, frame: Frame, number: int) -> Frame:
        """Return a frame to the device with its MAC; `number`: its full sequence number."""
        return frame._replace(payload=frame.payload + self._mac(frame, number, link_key.FROM_HOST))

    def open(self, frame: Frame, following: int) -> Frame | None:
        """Return a frame from the device without its MAC; None: that is wrong.

        `following`: the full number of the next request, at most 65,535 after the frame's.
        """
        plain = frame._replace(payload=frame.payload[: -link_key.MAC_BYTES])
        number = following - ((following - frame.sequence) & 0xFFFF)
        mac = self._mac(plain, number, link_key.FROM_DEVICE)
        return plain if compare_digest(plain.payload + mac, frame.payload) else None

    def _mac(self, frame: Frame, number: int, direction: int) -> bytes:
        return self._key.mac(_HEADER.pack(*frame[:3]) + frame.payload, number, direction)


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
