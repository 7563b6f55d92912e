"""How much of an expensive test runs: a part, or all of it (`make test-all`, which sets MTOOL_TESTS=all)."""

import os
import zlib

IS_ALL = os.environ.get("MTOOL_TESTS") == "all"
PART = 16  # of a product's combinations, one in this number runs


def of(everything: int, part: int) -> int:
    """Return how many random cases to try."""
    return everything if IS_ALL else part


def takes(content: bytes) -> bool:
    """Return whether something is of the part that is tried: the same each time, by its content."""
    return IS_ALL or zlib.crc32(content) % PART == 0
