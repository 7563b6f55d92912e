"""The memory of large models: what a compile has done with goes back to the operating system."""

import contextlib
import ctypes
import gc

_M_MMAP_THRESHOLD = -3  # mallopt(3)
_BLOCK_BYTES = 1 << 20


def return_large_blocks() -> None:
    """Let glibc return large blocks when they are freed; of itself it soon keeps those of up to 32 MB for reuse.

    They are weights, packed and then written: kept, they would count two and three times.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)


def drop_cycles() -> None:
    """Free what only cycles of references hold; the command line rarely looks for them."""
    gc.collect()
