"""Which part of the old bytes each part of the new ones differs least from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_WINDOW = 8  # bytes that are equal only where one comes from the other
_MOST_SHIFTS = 24
_BLOCK = 512  # bytes that are looked for by correlation
_MOST_BLOCKS = 48
_CHUNK = 1 << 14  # positions whose costs are in memory at once

# What a byte costs in bits, about: a given one, and one that differs by 0, 1, 2…; and what it costs to go on elsewhere.
_GIVEN = 7.5
_ELSEWHERE = 32.0
_DIFFERENCE = np.minimum(10.5, np.where(np.arange(129) == 0, 0.5, 1.0 + 1.6 * np.log2(1.0 + np.arange(129)))).astype(
    np.float32
)
_WORTHWHILE = 6.0  # bits a byte: above it a block is looked for elsewhere


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of the new ones, and what has to be added to their places for those of the old ones.

    `shift` is None: nothing in the old bytes is like them, and they are given.
    """

    bytes: int
    shift: int | None


def runs(old: bytes, new: bytes) -> list[Run]:
    """Return the runs, in their order, that cost least; together they are all of the new bytes."""
    before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    found = _equal_windows(before, after)
    found += [shift for shift in _correlated(before, after, found) if shift not in found]
    return list(_cheapest(before, after, found))


def _equal_windows(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> list[int]:
    """Return the shifts by which most windows that are once in the old bytes are in the new ones; 0 is one of them."""
    shifts = [0, len(old) - len(new)]
    if min(len(old), len(new)) >= _WINDOW:
        known, at, count = np.unique(_windows(old), return_index=True, return_counts=True)
        known, at = known[count == 1], at[count == 1]
        asked = _windows(new)
        if len(known):
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            hits = np.flatnonzero(known[place] == asked)
            votes, count = np.unique(at[place[hits]] - hits, return_counts=True)
            shifts += [int(one) for one in votes[np.argsort(-count, kind="stable")[:_MOST_SHIFTS]]]
    return list(dict.fromkeys(shifts))


def _windows(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, _WINDOW)).view(np.uint64).ravel()


def _correlated(old: NDArray[np.uint8], new: NDArray[np.uint8], shifts: list[int]) -> Iterator[int]:
    """Return shifts for blocks of the new bytes that none of `shifts` brings near to old ones.

    Weights of which each was moved a little have no equal windows: the place is where the sum of the squares of the
    differences is least, by a correlation.
    """
    if min(len(old), len(new)) < _BLOCK:
        return
    per_byte = np.min([_costs(old, new, shift, 0, len(new)) for shift in shifts], axis=0)
    whole = len(new) // _BLOCK
    dear = np.flatnonzero(per_byte[: whole * _BLOCK].reshape(whole, _BLOCK).mean(axis=1) > _WORTHWHILE)
    if not len(dear):
        return
    size = 1 << (len(old) + _BLOCK).bit_length()
    signal = old.view(np.int8).astype(np.float32)
    spectrum = np.fft.rfft(signal, size)
    energy = np.concatenate([[0.0], np.cumsum(signal.astype(np.float64) ** 2)])
    energies = energy[_BLOCK:] - energy[:-_BLOCK]
    tried = list(shifts)
    for block in dear[:: max(1, len(dear) // _MOST_BLOCKS)]:
        start = int(block) * _BLOCK
        if min(_costs(old, new, shift, start, start + _BLOCK).mean() for shift in tried) <= _WORTHWHILE:
            continue
        pattern = new[start : start + _BLOCK].view(np.int8).astype(np.float32)
        product = np.fft.irfft(spectrum * np.conj(np.fft.rfft(pattern, size)), size)[: len(energies)]
        shift = int(np.argmin(energies - 2 * product)) - start
        if shift not in tried and _costs(old, new, shift, start, start + _BLOCK).mean() <= _WORTHWHILE:
            tried.append(shift)
            yield shift


def _costs(old: NDArray[np.uint8], new: NDArray[np.uint8], shift: int, start: int, end: int) -> NDArray[np.float32]:
    """Return what the new bytes from `start` to `end` cost as differences; infinite where there is no old byte."""
    costs = np.full(end - start, np.inf, np.float32)
    first, last = max(start, -shift), min(end, len(old) - shift)
    if first < last:
        difference = (new[first:last] - old[first + shift : last + shift]).view(np.int8).astype(np.int16)
        costs[first - start : last - start] = _DIFFERENCE[np.abs(difference)]
    return costs


def _cheapest(old: NDArray[np.uint8], new: NDArray[np.uint8], shifts: list[int]) -> Iterator[Run]:
    """Choose a shift or none for each byte, so that costs and changes are least (Viterbi, 1967)."""
    choices: list[int | None] = [None, *shifts]
    total = np.zeros(len(choices), np.float64)
    came_from_best = np.empty((len(new), len(choices)), np.bool_)
    best = np.empty(len(new), np.int64)
    for start in range(0, len(new), _CHUNK):
        end = min(start + _CHUNK, len(new))
        costs = np.stack(
            [np.full(end - start, _GIVEN, np.float32), *(_costs(old, new, shift, start, end) for shift in shifts)], 1
        )
        for number, cost in enumerate(costs, start):
            least = int(total.argmin())
            limit = total[least] + _ELSEWHERE
            best[number] = least
            came_from_best[number] = total > limit
            total = np.minimum(total, limit) + cost
    chosen = np.empty(len(new), np.int64)
    state = int(total.argmin())
    for number in range(len(new) - 1, -1, -1):
        chosen[number] = state
        if came_from_best[number, state]:
            state = int(best[number])
    ends = [*(np.flatnonzero(np.diff(chosen)) + 1), len(new)]
    start = 0
    for end in ends if len(new) else ():
        yield Run(int(end) - start, choices[chosen[start]])
        start = int(end)
