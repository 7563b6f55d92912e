"""Offsets in the arena: first fit over several orders of the storages, and a seeded local search.

The search ends at the lower bound (the most bytes that are live at one time) or after a number of tries. Each try
moves one storage in the order; only what this may affect is placed again.
"""

import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array
from mtool.compiler.plan.memory import ALIGNMENT, Part, Storage, aligned, live_bound

# Offsets for thousands of storages that are live together: a single first fit, largest first, without a search.


def first_fit_by_size(
    sizes: Sequence[int], firsts: Sequence[int], lasts: Sequence[int], alignments: Sequence[int], unit: int
) -> tuple[dict[int, int], int]:
    """Return an offset for each storage, in bytes, and the total size, a multiple of `unit`.

    Storages do not overlap unless one's last step is before the other's first. The largest are placed first.
    """
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], firsts[number]))
    begins, ends, since, until = (np.zeros(len(sizes), np.int64) for _ in range(4))  # in the order of their beginnings
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
    """Return the lowest aligned offset with `size` free bytes between the taken ranges, sorted by `begins`."""
    if not len(begins):
        return 0
    free = np.maximum.accumulate(np.concatenate([[0], ends]))  # the end of all ranges before each gap
    free = -(-free // alignment) * alignment
    fits = np.nonzero(free[:-1] + size <= begins)[0]
    return int(free[fits[0]] if len(fits) else free[-1])


SEARCH_TRIES = 400
SEARCH_STEPS = 8_000_000  # storages and pairs that all tries together may examine
SEARCHED_PAIRS = 100_000  # with more pairs of storages that are live together, there is no search


@frozen
class _Fit:
    """Storages in the order in which they were placed, their offsets, and their total size."""

    order: Sequence[int]
    placed: dict[int, int]
    bytes: int


def lay_out(pieces: Sequence[Storage]) -> tuple[dict[int, int], int]:
    """Return an offset for each storage, in bytes, and the arena's size."""
    bound = live_bound(pieces)
    numbers = range(len(pieces))
    firsts, lasts = [piece.first for piece in pieces], [piece.last for piece in pieces]
    pairs = pairs_of(firsts, lasts)
    if pairs is None:
        return first_fit_by_size(
            [piece.bytes for piece in pieces], firsts, lasts, [piece.alignment for piece in pieces], ALIGNMENT
        )
    spans = [last - first for first, last in zip(firsts, lasts, strict=True)]
    orders = [
        sorted(numbers, key=lambda n: (-pieces[n].bytes, firsts[n])),
        sorted(numbers, key=lambda n: (firsts[n], -pieces[n].bytes)),
        sorted(numbers, key=lambda n: (-spans[n], -pieces[n].bytes)),
        sorted(numbers, key=lambda n: (-pieces[n].bytes * (spans[n] + 1), n)),
    ]
    apart = apart_of(pieces, pairs)
    best = min((place_in_order(pieces, order, apart) for order in orders), key=lambda fit: fit.bytes)
    near = near_of(apart)
    chance = random.Random(0)
    tries = min(SEARCH_TRIES, SEARCH_STEPS // (len(pieces) + len(pairs) + 1))
    for _ in range(tries if len(pieces) > 2 else 0):
        if best.bytes <= bound:
            break
        best = moved(pieces, apart, near, best, chance.randrange(len(pieces)), chance.randrange(len(pieces)))
    return best.placed, best.bytes


Neighbours = list[tuple[int, int, int]]
Apart = list[Neighbours]
"""For each storage, the storages that it must not overlap, each with the distances at which they would overlap."""


def pairs_of(firsts: Sequence[int], lasts: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the pairs of storages whose lifetimes may overlap; None: there are more than `SEARCHED_PAIRS`."""
    pairs: list[tuple[int, int]] = []
    alive: dict[int, int] = {}
    for number in sorted(range(len(firsts)), key=lambda number: firsts[number]):
        alive = {other: last for other, last in alive.items() if last >= firsts[number]}
        pairs += [(other, number) for other in alive]
        alive[number] = lasts[number]
        if len(pairs) > SEARCHED_PAIRS:
            return None
    return pairs


def apart_of(pieces: Sequence[Storage], pairs: Iterable[tuple[int, int]]) -> Apart:
    """Return for each storage the distances at which others overlap it: open ranges of (its offset - theirs)."""
    lives = [piece.live for piece in pieces]
    apart: Apart = [[] for _ in pieces]
    for m, n in pairs:
        if lives[m] & lives[n]:
            ranges = _ranges(pieces[m].parts, pieces[n].parts)
            apart[n] += [(m, low, high) for low, high in ranges]
            apart[m] += [(n, -high, -low) for low, high in reversed(ranges)]
    return apart


def near_of(apart: Apart) -> list[int]:
    """Return the storages that each has in `apart`, as bits."""
    return [sum(1 << other for other in {other for other, _, _ in others}) for others in apart]


def _ranges(first: Sequence[Part], second: Sequence[Part]) -> tuple[tuple[int, int], ...]:
    ranges = sorted(
        (a.offset - b.offset - b.bytes, a.offset + a.bytes - b.offset) for a in first for b in second if a.live & b.live
    )
    merged: list[tuple[int, int]] = []
    for low, high in ranges:
        if merged and low < merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return tuple(merged)


def place_in_order(pieces: Sequence[Storage], order: Sequence[int], apart: Apart) -> _Fit:
    """Place storages one after the other, each at the lowest possible offset."""
    placed: dict[int, int] = {}
    for number in order:
        placed[number] = lowest(pieces[number], placed, apart[number])
    return _Fit(order, placed, aligned(max((at + pieces[number].bytes for number, at in placed.items()), default=0)))


def lowest(piece: Storage, placed: Mapping[int, int], apart: Neighbours) -> int:
    """Return the lowest offset at which a storage does not overlap those placed already, according to `apart`."""
    occupied = [(placed[other] + low, placed[other] + high) for other, low, high in apart if other in placed]
    occupied.sort()
    offset = 0
    for low, high in occupied:
        if offset <= low:
            break
        if offset < high:
            offset = aligned(high, piece.alignment)
    return offset


def moved(pieces: Sequence[Storage], apart: Apart, near: Sequence[int], best: _Fit, source: int, to: int) -> _Fit:
    """Return the fit with a storage moved in the order, if it is not larger; else the old fit.

    Args:
        pieces: the storages.
        apart: the distances at which storages overlap.
        near: the storages that each has in `apart`, as bits.
        best: the old fit.
        source: the position in the order of the storage to move.
        to: its new position.
    """
    order = [*best.order]
    moved = order.pop(source)
    order.insert(to, moved)
    start, end = min(source, to), max(source, to)
    placed = {number: best.placed[number] for number in order[:start]}  # what comes before keeps its offset
    changed = 1 << moved  # storages that may have changed; those not near to them are placed as before
    for place in range(start, len(order)):
        number = order[place]
        offset = best.placed[number]
        if number == moved or near[number] & changed:
            offset = lowest(pieces[number], placed, apart[number])
            if offset + pieces[number].bytes > best.bytes:
                return best
            if offset != best.placed[number]:
                changed |= 1 << number
        if place == end and placed.get(moved, offset) == best.placed[moved]:
            changed &= ~(1 << moved)  # it keeps its offset, before all that follow
        placed[number] = offset
    size = aligned(max(at + pieces[number].bytes for number, at in placed.items()))
    return _Fit(order, placed, size) if size <= best.bytes else best
