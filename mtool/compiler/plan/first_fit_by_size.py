"""Offsets for thousands of storages that are live together: one first fit, the largest first, without a search."""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.ir.types import Array


def first_fit_by_size(
    sizes: Sequence[int], firsts: Sequence[int], lasts: Sequence[int], alignments: Sequence[int], unit: int
) -> tuple[dict[int, int], int]:
    """Return an offset for each storage, in bytes, and the size of all, a multiple of `unit`.

    Storages lie apart unless one's last step is before the other's first. The largest are placed first.
    """
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], firsts[number]))
    begins, ends, since, until = (np.zeros(len(sizes), np.int64) for _ in range(4))  # in the order of their begins
    placed: dict[int, int] = {}
    for count, number in enumerate(order):
        together = (since[:count] <= lasts[number]) & (until[:count] >= firsts[number])
        offset = _first_gap(begins[:count][together], ends[:count][together], sizes[number], alignments[number])
        placed[number] = offset
        at = int(np.searchsorted(begins[:count], offset))
        values = (offset, offset + sizes[number], firsts[number], lasts[number])
        for column, value in zip((begins, ends, since, until), values, strict=True):
            column[at + 1 : count + 1] = column[at:count].copy()
            column[at] = value
    total = int(ends.max(initial=0))
    return placed, -(-total // unit) * unit


def _first_gap(begins: Array, ends: Array, size: int, alignment: int) -> int:
    """Return the lowest aligned offset with `size` bytes between what is taken, which is in the order of `begins`."""
    if not len(begins):
        return 0
    free = np.maximum.accumulate(np.concatenate([[0], ends]))  # from where on what is before is past
    free = -(-free // alignment) * alignment
    fits = np.nonzero(free[:-1] + size <= begins)[0]
    return int(free[fits[0]] if len(fits) else free[-1])
