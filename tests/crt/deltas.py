"""The decoder of deltas in C (crt/tests/mt_test_delta.c), under the sanitizers."""

import struct
import subprocess
from collections.abc import Sequence

from tests.crt import firmware

ROOM = 1 << 20


def decode(cases: Sequence[tuple[bytes, bytes]], *, piece: int = 1000, room: int = ROOM) -> list[tuple[int, bytes]]:
    """Decode deltas, each of its old bytes, in pieces of at most `piece` bytes; the statuses, and the new bytes."""
    program = firmware.build("mt_test_delta.c")
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
