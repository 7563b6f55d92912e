"""A delta from old bytes to new ones, which firmware decodes as it arrives (crt/include/mt_delta.h).

Weights after a little more training differ by small steps in most bytes, so there are no long equal runs. The delta
therefore codes the differences, by their probabilities given those before, and not copies as most formats do. Like
bsdiff (Percival, Naive differences of executable code, 2003), which leaves its differences to a general compressor. The
bytes are the operations and numbers that crt/src/mt_delta.c reads, as decisions of the range coder.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen

# Find the part of the old bytes that each part of the new ones differs least from.


_WINDOW = 8  # windows of this many bytes are equal only where one comes from the other
_MOST_SHIFTS = 24
_BLOCK = 512  # bytes per block that is searched for by correlation
_MOST_BLOCKS = 48
_CHUNK = 1 << 14  # positions whose costs are in memory at once
# Approximate costs in bits: of a literal byte, of one that differs by 0, 1, 2…; and of a jump to another place.
_GIVEN_COST = 7.5
_ELSEWHERE = 32.0
_DIFFERENCE_COSTS = np.minimum(
    10.5, np.where(np.arange(129) == 0, 0.5, 1.0 + 1.6 * np.log2(1.0 + np.arange(129)))
).astype(np.float32)
_WORTHWHILE = 6.0  # bits per byte: above it a block is searched for elsewhere


@frozen
class Run:
    """A run of the new bytes, and the shift from their positions to those of the matching old bytes.

    `shift` is None: no old bytes are similar, and the new ones are literal.
    """

    bytes: int
    shift: int | None


def runs(old: bytes, new: bytes) -> list[Run]:
    """Return the cheapest runs, in order; together they are all of the new bytes."""
    before, after = np.frombuffer(old, np.uint8), np.frombuffer(new, np.uint8)
    shifts = _equal_windows(before, after)
    shifts += [shift for shift in _correlated(before, after, shifts) if shift not in shifts]
    return list(_cheapest(before, after, shifts))


def _equal_windows(old: NDArray[np.uint8], new: NDArray[np.uint8]) -> list[int]:
    """Return the shifts of most windows that occur once in the old bytes and in the new ones, and 0."""
    shifts = [0, len(old) - len(new)]
    if min(len(old), len(new)) >= _WINDOW:
        unique, at, count = np.unique(_windows(old), return_index=True, return_counts=True)
        unique, at = unique[count == 1], at[count == 1]
        windows = _windows(new)
        if len(unique):
            place = np.minimum(np.searchsorted(unique, windows), len(unique) - 1)
            hits = np.flatnonzero(unique[place] == windows)
            votes, count = np.unique(at[place[hits]] - hits, return_counts=True)
            shifts += [int(shift) for shift in votes[np.argsort(-count, kind="stable")[:_MOST_SHIFTS]]]
    return list(dict.fromkeys(shifts))


def _windows(data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, _WINDOW)).view(np.uint64).ravel()


def _correlated(old: NDArray[np.uint8], new: NDArray[np.uint8], shifts: list[int]) -> Iterator[int]:
    """Yield shifts for blocks of the new bytes that none of `shifts` brings close to old ones.

    Slightly changed weights have no equal windows: the place is where the sum of squared differences is least, found
    by a correlation.
    """
    if min(len(old), len(new)) < _BLOCK:
        return
    per_byte = np.min([_costs(old, new, shift, 0, len(new)) for shift in shifts], axis=0)
    blocks = len(new) // _BLOCK
    dear = np.flatnonzero(per_byte[: blocks * _BLOCK].reshape(blocks, _BLOCK).mean(axis=1) > _WORTHWHILE)
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
    """Return the costs of the new bytes from `start` to `end` as differences; infinite where there is no old byte."""
    costs = np.full(end - start, np.inf, np.float32)
    first, last = max(start, -shift), min(end, len(old) - shift)
    if first < last:
        difference = (new[first:last] - old[first + shift : last + shift]).view(np.int8).astype(np.int16)
        costs[first - start : last - start] = _DIFFERENCE_COSTS[np.abs(difference)]
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
            [np.full(end - start, _GIVEN_COST, np.float32), *(_costs(old, new, shift, start, end) for shift in shifts)],
            1,
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


# A range encoder with adaptive probabilities (Martin, Range encoding, 1979; as LZMA's), for crt/src/mt_delta.c.


_RATE = 5
_EVEN = 1 << 15
_LEAST_RANGE = 1 << 24


class RangeEncoder:
    """Encode binary decisions as bytes; each of `models` learns the probability of 0 from its decisions so far.

    The output is exactly as long as what a decoder reads for the same decisions.
    """

    def __init__(self, models: int) -> None:
        self._model = [_EVEN] * models
        self._low = 0
        self._range = 0xFFFFFFFF
        self._bytes = bytearray()

    def decide(self, bit: int, model: int) -> None:
        """Encode a decision with a model."""
        likely = self._model[model]
        self._write(bit, likely)
        self._model[model] = likely - (likely >> _RATE) if bit else likely + ((0x10000 - likely) >> _RATE)

    def even(self, bit: int) -> None:
        """Encode a decision with even probabilities."""
        self._write(bit, _EVEN)

    @property
    def bytes_so_far(self) -> int:
        """The number of bytes written, except for the last few, which depend on what follows."""
        return len(self._bytes)

    def end(self) -> bytes:
        """Return everything that was written."""
        for _ in range(4):
            self._shift()
        return bytes(self._bytes)

    def _write(self, bit: int, likely: int) -> None:
        while self._range < _LEAST_RANGE:
            self._range <<= 8
            self._shift()
        bound = (self._range >> 16) * likely
        if not bit:
            self._range = bound
            return
        self._low += bound
        self._range -= bound
        if self._low >> 32:
            self._low &= 0xFFFFFFFF
            self._carry()

    def _carry(self) -> None:
        place = len(self._bytes) - 1
        while self._bytes[place] == 0xFF:
            self._bytes[place] = 0
            place -= 1
        self._bytes[place] += 1

    def _shift(self) -> None:
        self._bytes.append(self._low >> 24)
        self._low = self._low << 8 & 0xFFFFFFFF


MAGIC = b"MTD1"
MOST_BYTES = 1 << 23  # of the old and of the new bytes; a jump over both is one number
_IS_GIVEN = 0
_SIGN_OF_JUMP, _SIGN_OF_DIFFERENCE, _SIGN_OF_GIVEN = 1, 2, 3
_RUN = 4
_DIFFERENCE_MODELS = _RUN + 23
_GIVEN_MODELS = _DIFFERENCE_MODELS + 5 * 7
_HIGHEST = _GIVEN_MODELS + 2 * 7
_MODELS = _HIGHEST + 2 * 8
_BITS_OF_RUN, _BITS_OF_BYTE = 23, 7  # below the highest, at most


def delta(old: bytes, new: bytes) -> bytes:
    """Return the delta from which a decoder with `old` restores `new`.

    Raises:
        UsageError: they are too large for a delta.
    """
    return delta_by_parts(old, new, ())[0]


def delta_by_parts(old: bytes, new: bytes, cuts: Sequence[int]) -> tuple[bytes, tuple[int, ...]]:
    """Return a delta, and the number of its bytes for each part of `new`, cut at ascending positions.

    Raises:
        UsageError: as `delta`.
    """
    if max(len(old), len(new)) > MOST_BYTES:
        raise UsageError(
            f"the files are too large for a delta: {len(old):,} and {len(new):,} bytes, at most {MOST_BYTES:,}"
        )
    header = MAGIC + struct.pack("<III", len(old), len(new), zlib.crc32(old))
    at: dict[int, int] = dict.fromkeys(cuts, 0)
    delta = header + _stream(old, new, runs(old, new), at) if new else header
    ends = [*(len(header) + at[cut] for cut in cuts), len(delta)]
    return delta, tuple(end - begin for begin, end in pairwise([0, *ends]))


def _stream(old: bytes, new: bytes, copies: list[Run], at: dict[int, int]) -> bytes:
    """Return the encoded decisions; `at` receives the number of bytes written at each of its positions in `new`."""
    coder = RangeEncoder(_MODELS)
    start = shift = 0
    for run in copies:
        coder.decide(int(run.shift is None), _IS_GIVEN)
        if run.shift is not None:
            jump, shift = run.shift - shift, run.shift
            _number(coder, abs(jump) + 1, _RUN, _BITS_OF_RUN)
            if jump:
                coder.decide(int(jump < 0), _SIGN_OF_JUMP)
        _number(coder, run.bytes, _RUN, _BITS_OF_RUN)
        last = before = 0
        for place in range(start, start + run.bytes):
            if place in at:
                at[place] = coder.bytes_so_far
            signed = (new[place] - (0 if run.shift is None else old[place + shift]) + 128 & 255) - 128
            around = 2 * last + before
            last, before = abs(signed), last
            if run.shift is None:
                _number(coder, last + 1, _GIVEN_MODELS + (0 if around < 64 else 7), _BITS_OF_BYTE, _HIGHEST + 8)
            else:
                near = around if around < 2 else 2 if around < 4 else 3 if around < 8 else 4
                _number(coder, last + 1, _DIFFERENCE_MODELS + 7 * near, _BITS_OF_BYTE, _HIGHEST)
            if signed:
                coder.decide(int(signed < 0), _SIGN_OF_GIVEN if run.shift is None else _SIGN_OF_DIFFERENCE)
        start += run.bytes
    at.update({place: coder.bytes_so_far for place in at if place >= len(new)})
    return coder.end()


def _number(coder: RangeEncoder, number: int, models: int, most_bits: int, highest: int | None = None) -> None:
    """Encode a number, 1 or more: its length in unary, then the bits below the highest.

    Args:
        coder: the encoder.
        number: the number.
        models: the first model of its length.
        most_bits: the largest number of bits below the highest.
        highest: the models of the first of them, by the number of bits; None: both values are equally likely.
    """
    bits = number.bit_length() - 1
    for place in range(bits):
        coder.decide(1, models + place)
    if bits < most_bits:
        coder.decide(0, models + bits)
    for place in range(bits - 1, -1, -1):
        bit = number >> place & 1
        if highest is not None and place == bits - 1:
            coder.decide(bit, highest + bits)
        else:
            coder.even(bit)
