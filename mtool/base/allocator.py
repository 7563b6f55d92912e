"""The memory of large models: freed blocks go back to the operating system."""

import contextlib
import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_BLOCK_BYTES = 4 << 20


def return_large_blocks() -> None:
    """Make glibc return large blocks when they are freed; by default it soon keeps blocks of up to 32 MB for reuse.

    Such blocks are weights, which are packed and then written: kept, they would take memory two or three times.
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _BLOCK_BYTES)  # else the end of the heap is returned, and requested again, each time


def drop_cycles() -> None:
    """Free objects in reference cycles; the command line rarely collects them."""
    gc.collect()
