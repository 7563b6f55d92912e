"""The delta decoder in C (crt/tests/mt_test_delta.c), under the sanitizers."""

import functools
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests import sanitized
from tests.crt.firmware import CRT, STRICT

ROOM = 1 << 20


SOURCES = (CRT / "tests" / "mt_test_delta.c", CRT / "modules" / "mt_delta.c", CRT / "src" / "mt_crc32.c")


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mtool-test-")


@functools.cache
def _program() -> Path:
    return sanitized.build(SOURCES, Path(_folder().name) / "delta", STRICT)


def decode(cases: Sequence[tuple[bytes, bytes]], *, piece: int = 1000, room: int = ROOM) -> list[tuple[int, bytes]]:
    """Decode deltas, each of its old bytes, in pieces of at most `piece` bytes; the statuses, and the new bytes."""
    program = _program()
    records = b"".join(struct.pack("=4I", len(old), len(delta), room, piece) + old + delta for old, delta in cases)
    done = subprocess.run([program], input=records, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    results, place = [], 0
    for _ in cases:
        status, count = struct.unpack_from("=iI", done.stdout, place)
        results.append((status, done.stdout[place + 8 : place + 8 + count]))
        place += 8 + count
    assert place == len(done.stdout)
    return results
