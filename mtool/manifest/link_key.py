"""The link key: 16 bytes that a device shares with its hosts, and the codes that authenticate frames with it."""

import os
import re
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mtool.base import files
from mtool.base.errors import UsageError, of_os_error
from mtool.base.filetree import IGNORED, SECRETS, FileTree
from mtool.manifest.modules import keys

OPTION: Final = "link_key"
"""The name of the option of a project, whose value is the key in hexadecimal digits."""

FILE_NAME, _HEADER = SECRETS
"""The key's file in the folder of a project, and the header with it in the firmware's sources."""

VARIABLE: Final = "MTOOL_LINK_KEY"
"""The environment variable that names the file of a key."""

CHALLENGE_BYTES: Final = 8
MAC_BYTES: Final = 8
_KEY_BYTES = 16
_FORM = re.compile(rb"(?!0+\s*$)[0-9a-fA-F]{%d}\s*" % (2 * _KEY_BYTES))
_MASK = (1 << 64) - 1
_WORDS = struct.Struct("<QQ")
_END = struct.Struct("<II")  # what the MAC covers after the frame: the full sequence number, and the direction
FROM_HOST: Final = 0
FROM_DEVICE: Final = 1


class LinkKey:
    """A key of 16 bytes, that of a device or of a session. It is never shown."""

    def __init__(self, raw: bytes, file: str = "") -> None:
        self._words = _WORDS.unpack(raw)
        self.file = file  # that it was read from

    @property
    def digits(self) -> str:
        """The key in hexadecimal digits, for a file."""
        return _WORDS.pack(*self._words).hex()

    def code(self, text: bytes) -> int:
        """Return the SipHash-2-4 of a text (Aumasson and Bernstein, 2012), as crt/src/mt_siphash.c does."""
        low, high = self._words
        a, b = low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D
        c, d = low ^ 0x6C7967656E657261, high ^ 0x7465646279746573
        padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 0xFF])
        for word in (*struct.unpack(f"<{len(padded) // 8}Q", padded), None):
            if word is None:
                c ^= 0xFF
            else:
                d ^= word
            for _ in range(4 if word is None else 2):
                a = (a + b) & _MASK
                c = (c + d) & _MASK
                b = ((b << 13) & _MASK | b >> 51) ^ a
                d = ((d << 16) & _MASK | d >> 48) ^ c
                a = ((a << 32) & _MASK | a >> 32) + d & _MASK
                c = c + b & _MASK
                d = ((d << 21) & _MASK | d >> 43) ^ a
                b = ((b << 17) & _MASK | b >> 47) ^ c
                c = (c << 32) & _MASK | c >> 32
            if word is not None:
                a ^= word
        return int(a ^ b ^ c ^ d)

    def of_session(self, host_challenge: bytes, device_challenge: bytes) -> "LinkKey":
        """Return the key of the session that follows from both sides' challenges."""
        halves = (self.code(bytes([half]) + host_challenge + device_challenge) for half in range(2))
        return LinkKey(_WORDS.pack(*halves))

    def mac(self, text: bytes, number: int, direction: int) -> bytes:
        """Return the code of a frame's bytes, its full sequence number and its direction."""
        return self.code(text + _END.pack(number & 0xFFFFFFFF, direction)).to_bytes(MAC_BYTES, "little")


def make(path: Path) -> None:
    """Write a new key to a new file that only its owner can read.

    Raises:
        UsageError: the file exists (it is never overwritten) or can't be written.
    """
    if os.path.lexists(path):
        raise UsageError(f"{path} exists, and keys are never overwritten", hint="choose another file name")
    keys.write_new(path, f"{secrets.token_hex(_KEY_BYTES)}\n".encode(), keys.ONLY_OWNER)


def read(path: Path) -> LinkKey:
    """Read a key; warn if others can read it too.

    Raises:
        UsageError: there is no such file, or it holds something else.
    """
    try:
        with files.open_named(path) as file:
            data = file.read(4 * _KEY_BYTES)
    except OSError as failed:
        raise of_os_error(failed, f"the link key {path} can't be read") from None
    if not _FORM.fullmatch(data):
        details = [f"expected {2 * _KEY_BYTES} hexadecimal digits, not all of them 0"]
        raise UsageError(f"{path} is not a link key", details=details, hint="make one: mtool key FILE --link")
    keys.warn_of_readers(path)
    return LinkKey(bytes.fromhex(data.decode()), str(path))


def find(path: str | Path | LinkKey | None, folder: Path | None = None) -> LinkKey | None:
    """Return the key for a device: that in `path`, the one in the project's folder, or that of MTOOL_LINK_KEY.

    Raises:
        UsageError: it can't be read, or MTOOL_LINK_KEY names another file that can't be.
    """
    if isinstance(path, LinkKey):
        return path
    if named := os.environ.get(VARIABLE, ""):
        try:
            of_variable = read(Path(named))
        except UsageError as failed:
            raise UsageError(f"{VARIABLE}: {failed.what}", details=failed.details, hint=failed.hint) from None
    if path is None and folder is not None and (folder / FILE_NAME).is_file():
        path = folder / FILE_NAME
    return read(Path(path)) if path is not None else of_variable if named else None


def of_option(options: Mapping[str, str]) -> LinkKey | None:
    """Return the key among the options of a project; None: it has none.

    Raises:
        UsageError: its value is not a key.
    """
    digits = options.get(OPTION)
    if digits is not None and not _FORM.fullmatch(digits.encode()):
        details = [f"expected {2 * _KEY_BYTES} hexadecimal digits, not all of them 0"]
        raise UsageError(
            f"the option {OPTION} is not a link key", details=details, hint="give its file: --link-key FILE"
        )
    return None if digits is None else LinkKey(bytes.fromhex(digits), "--link-key")


def file(key: LinkKey | None) -> FileTree:
    """Return the file with the key in a project's folder, if there is a key, and what keeps it out of git."""
    if key is None:
        return FileTree()
    return FileTree({FILE_NAME: f"{key.digits}\n".encode(), IGNORED: f"{FILE_NAME}\n{_HEADER}\nbuild/\n".encode()})


def headers(key: LinkKey) -> dict[str, bytes]:
    """Return the header that takes the place of crt/include/mt_key.h in firmware with a key, and the secret one."""
    numbers = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(key.digits))
    texts = {
        "mt_key.h": ("the firmware has a link key (--link-key)", "MT_KEY_H", '#include "mt_link_key.h"'),
        _HEADER: ("the link key, a secret", "MT_LINK_KEY_H", f"#define MT_LINK_KEY {{{numbers}}}"),
    }
    return {
        name: f"/* Generated by mtool: {what}. */\n#ifndef {guard}\n#define {guard}\n\n{line}\n\n#endif\n".encode()
        for name, (what, guard, line) in texts.items()
    }
