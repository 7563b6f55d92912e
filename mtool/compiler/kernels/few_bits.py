"""Constants that are stored in fewer bits than a kernel reads, and unpacked before it runs (crt/include/mt_unpack.h).

A stream is what a kernel reads its weights from, in whatever layout: rows of words, in each of which biases, weights
and scalings lie one after the other. Unpacking gives the same words, so that no kernel needs to know of it. Columns of
a stream are stored by runs, each in the way that takes the fewest bits; single words that do not fit are stored apart.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.base.option_values import Compress
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.coded_numbers import MISFIT, Coded, codings, numbers_of

LEAST_BYTES = 64  # that packing has to save
LEAST_ROWS = 4  # of a stream whose columns may be equal in all
MOST_COLUMNS = (1 << 20) - 1
POWERS = 256  # elements of a table of exponentials
_SAME_BITS = 6  # in place of the logarithm of the bits


class _Form(NamedTuple):
    """How numbers lie in a word: code, their bits, and the factor of the least number that each is stored above."""

    code: int
    bits: int
    offset: int


WORDS = _Form(0, 32, 1)
HALVES = _Form(1, 16, 1)
PAIRS = _Form(2, 8, 257)  # halfwords a + 256 * b
BYTES = _Form(3, 8, 1)


@frozen
class _Kind:
    """A way to store a run of columns.

    form: how the numbers lie in a word.
    bits: of a number; 0: the run has one word.
    least: the number that 0 stands for.
    is_high: the numbers, times 256, are added to the column before; a run has one column.
    """

    form: _Form
    bits: int
    least: int
    is_high: bool = False

    head_words = 2

    def costs(self, rows: Array) -> Array:
        """Return the words that each column takes."""
        return np.asarray(len(rows) * self.bits / self.form.bits + MISFIT * (~self.fits(rows)).sum(0))

    def instructions(self, rows: Array) -> float:
        """Return the instructions that unpack a run."""
        if self.form.bits == 2 * self.bits and rows.shape[1] % 2 == 0:
            return 60 + len(rows) * 10 + 6.5 * rows.size
        return 60 + len(rows) * (3 + 6 * self.is_high) + 12 * rows.size

    def fits(self, rows: Array) -> Array:
        """Return which words of a stream can be stored so, bool [rows, columns]."""
        if not self.bits:
            return np.asarray(rows == _commonest(rows))
        if self.bits == self.form.bits:
            return np.ones(rows.shape, bool)
        numbers, exact = self._numbers(rows)
        return np.asarray(exact & (numbers >= self.least).all(-1) & (numbers < self.least + (1 << self.bits)).all(-1))

    def packed(self, rows: Array, first: int, count: int) -> tuple[Array, Array]:
        """Return a run's words, uint32, and which words of it are to be stored apart, bool [rows, count]."""
        part = rows[:, first : first + count]
        fits = self.fits(rows[:, first - 1 : first + 1])[:, 1:] if self.is_high else self.fits(part)
        if not self.bits:
            logarithm, added, words = _SAME_BITS, int(_commonest(part[:, :1])[0]), part[:0, 0]
        else:
            lanes = 0x01010101 if self.form is BYTES else 0x00010001 if self.form is not WORDS else 1
            turned = 1 << self.form.bits - 1 if self.form is BYTES else 1 << 15 if self.form is not WORDS else 0
            low = self.least * self.form.offset if self.bits < self.form.bits else 0
            logarithm, added = self.bits.bit_length() - 1, (turned + low) * lanes & 0xFFFFFFFF
            if self.bits == self.form.bits:
                words = part.reshape(-1)
            else:
                numbers = self._numbers(rows[:, first - 1 : first + 1] if self.is_high else part)[0][:, -count:]
                words = self._fields(np.where(fits[..., None], numbers - self.least, 0))
        code = count | logarithm << 20 | self.form.code << 23 | self.is_high << 25
        return np.concatenate([np.array([code, added], np.uint32), words]), ~fits

    def _numbers(self, rows: Array) -> tuple[Array, Array]:
        """Return the numbers of words, int64 [rows, columns, numbers], and whether they give the words back."""
        exact = np.ones(rows.shape, bool)
        if self.form in (BYTES, PAIRS):
            return numbers_of(rows, self.form is PAIRS), exact
        if self.form is WORDS:
            words = rows.view(np.int32).astype(np.int64)
            if self.is_high:
                words[:, 1:] -= words[:, :-1]
                exact = words & 255 == 0
                exact[:, 0] = False
                words >>= 8
            return words[..., None], exact
        return rows.view(np.int16).reshape(*rows.shape, 2).astype(np.int64), exact

    def _fields(self, numbers: Array) -> Array:
        """Return numbers [rows, columns, numbers of a word] as fields of words; the lowest are of the first word."""
        together, lanes = self.form.bits // self.bits, numbers.shape[2]
        flat = numbers.reshape(-1, lanes).astype(np.uint32)
        filled = np.pad(flat, ((0, -len(flat) % together), (0, 0))).reshape(-1, together, lanes)
        shifts = (np.arange(together) * self.bits)[:, None] + np.arange(lanes) * (32 // lanes)
        return np.asarray((filled << shifts.astype(np.uint32)).sum((1, 2), dtype=np.uint32))


_SAME, _PLAIN = _Kind(WORDS, 0, 0), _Kind(WORDS, 32, 0)
_NARROW = (
    _Kind(WORDS, 16, -(1 << 15)),
    _Kind(WORDS, 8, -(1 << 7)),
    _Kind(WORDS, 16, -(1 << 15), is_high=True),
)


@frozen
class Packed:
    """A packed constant.

    data: its words, uint32.
    words: those that it is unpacked to.
    function: the runtime's function that unpacks it.
    instructions: those that unpack it.
    """

    data: Array
    words: int
    function: str
    instructions: float

    @property
    def saved_bytes(self) -> int:
        """The bytes by which it is smaller."""
        return 4 * self.words - self.data.nbytes


@frozen
class Weights:
    """The weights of a node: the least and the greatest of them and 0, and those of 8 bits by channels, if any."""

    least: int
    most: int
    by_channel: Array | None = field(default=None, compare=False)

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Return a node's weights; those of its largest constant are by channels."""
        read = (graph.constants[value] for value in node.inputs if value in graph.constants)
        ints = [data for data in read if data.dtype in (np.int8, np.uint8, np.int16) and data.ndim > 1 and data.size]
        largest = max((data for data in ints if data.dtype.itemsize == 1), key=lambda data: data.size, default=None)
        return cls(
            min(0, *(int(data.min()) for data in ints), 0), max(0, *(int(data.max()) for data in ints), 0), largest
        )

    @property
    def bits(self) -> int:
        """The bits of a field; 0: more than four, or all are 0."""
        return bits_of(self.least, self.most) if self.least != self.most else 0

    def can_be_packed(self, coding: Compress) -> bool:
        """Whether there is a way to store them in fewer bits."""
        if self.bits and coding in ("auto", "fields"):
            return True
        return self.by_channel is not None and any(codings(coding, self.by_channel, len(self.by_channel)))


def packed_stream(stream: Array, weights: Weights, coding: Compress) -> Packed | None:
    """Return a stream of words, of which some are weights, in fewer words.

    None: it does not become smaller by `LEAST_BYTES`.
    """
    if stream.nbytes % 4 or stream.dtype.kind not in "iu":
        return None
    flat = np.ascontiguousarray(stream).reshape(-1).view(np.uint32)
    attempts = []
    for rows in {1, len(stream) if stream.ndim > 1 else 1}:
        if flat.size % rows == 0 and flat.size // rows <= MOST_COLUMNS:
            attempts.append(packed_rows(flat.reshape(rows, -1), weights, coding, stream.dtype.itemsize))
    best = min(attempts, key=lambda packed: len(packed.data), default=None)
    return best if best is not None and best.saved_bytes >= LEAST_BYTES else None


def packed_rows(rows: Array, weights: Weights, coding: Compress = "fields", element: int = 4) -> Packed:
    """Return a stream in the fewest words that are found.

    Args:
        rows: uint32 [rows, columns].
        weights: those in it.
        coding: how they are stored; auto: in fields, by tables or without zeros.
        element: the bytes of what a kernel reads.
    """
    kinds: list[_Kind | Coded] = [*_NARROW, _PLAIN, *[_SAME] * (len(rows) >= LEAST_ROWS)]
    if coding in ("auto", "fields") and weights.bits:
        kinds += [_Kind(form, weights.bits, weights.least) for form in (BYTES, PAIRS, HALVES)]
    if coding != "fields" and weights.by_channel is not None:
        kinds += codings(coding, weights.by_channel, len(rows))
    parts, apart = [np.array([len(rows), rows.shape[1] | element << 20], np.uint32)], np.zeros(rows.shape, bool)
    instructions = 40.0
    function = "mt_unpack"
    for kind, first, count in _runs(rows, kinds):
        function = "mt_unpack_coded" if isinstance(kind, Coded) else function
        words, wrong = kind.packed(rows, first, count)
        parts.append(words)
        if kind.is_high:
            wrong |= apart[:, first - 1 : first]  # to which it is added before words that are stored apart are there
        apart[:, first : first + count] = wrong
        instructions += kind.instructions(rows[:, first : first + count])
    places = np.flatnonzero(apart).astype(np.uint32)
    listed = np.stack([places, rows.reshape(-1)[places]], axis=1).reshape(-1)
    data = np.concatenate([*parts, np.array([len(places)], np.uint32), listed])
    return Packed(data, rows.size, function, instructions + 8 * len(places))


def packed_powers(table: Array, product: float) -> Packed | None:
    """Return a table of float exponentials exp(scale * d), for rising d, as two of 16 factors each.

    The products of factors are the table's numbers but for their lowest bits, whose difference is stored.

    Args:
        table: the exponentials; any others are not packed: None.
        product: the instructions of a product.
    """
    if table.dtype != np.float32 or table.size != POWERS:
        return None
    words = np.ascontiguousarray(table).reshape(16, 16)
    coarse, fine = words[:, 15], words[15]
    with np.errstate(all="ignore"):
        products = np.ascontiguousarray(coarse[:, None] * fine)
    rest = words.view(np.int32).astype(np.int64) - products.view(np.int32) + 2
    if not np.isfinite(products).all() or rest.min() < 0 or rest.max() > 3:
        return None
    corrections = (rest.astype(np.uint32) << 2 * np.arange(16, dtype=np.uint32)).sum(1, dtype=np.uint32)
    data = np.concatenate([np.ascontiguousarray(coarse).view(np.uint32), fine.view(np.uint32), corrections])
    return Packed(data, POWERS, "mt_unpack_powers", POWERS * (10 + product))


def bits_of(least: int, most: int) -> int:
    """Return the bits of a field for numbers of a range; 0: more than four."""
    return next((bits for bits in (1, 2, 4) if most - least < 1 << bits), 0)


def are_within(weights: Array, block: int, bits: int) -> bool:
    """Whether the sums over each block of int8 inputs are signed numbers of some bits, for weights [N, K]."""
    blocks = np.pad(weights.astype(np.int64), ((0, 0), (0, -weights.shape[1] % block))).reshape(-1, block)
    above, below = blocks.clip(min=0).sum(axis=1), -blocks.clip(max=0).sum(axis=1)
    most, least = 127 * above + 128 * below, -128 * above - 127 * below
    return bool(most.max() < 1 << bits - 1 and least.min() >= -(1 << bits - 1))


def _runs(rows: Array, kinds: list[_Kind | Coded]) -> Iterator[tuple[_Kind | Coded, int, int]]:
    """Yield runs as (kind, first column, columns) that take the fewest words: the shortest path through the columns."""
    count = rows.shape[1]
    same = _commonest(rows)
    costs, heads = np.array([kind.costs(rows) for kind in kinds]), np.array([kind.head_words for kind in kinds])
    ends = np.zeros(count, bool)
    ends[1:] = (costs[:, 1:] != costs[:, :-1]).any(0)
    if _SAME in kinds:
        ends[1:] |= same[1:] != same[:-1]
    starts = np.flatnonzero(ends | (np.arange(count) == 0)).tolist()
    alone = heads * np.array([kind.is_high for kind in kinds])
    total, origins = np.zeros(len(kinds)), list[Array]()
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else count
        stay = np.where([kind.is_high or kind is _SAME for kind in kinds], total + heads, total)
        best = int(np.argmin(total))
        change = total[best] + heads
        moved = (change < stay) | (number == 0)
        origins.append(np.where(moved, best, np.arange(len(kinds))))
        total = np.where(moved, change, stay) + (end - start) * costs[:, start] + (end - start - 1) * alone
    state, runs = int(np.argmin(total)), list[tuple[int, int, int]]()
    for start, end, before in reversed([*zip(starts, [*starts[1:], count], origins, strict=True)]):
        runs.append((state, start, end - start))
        state = int(before[state])
    joined = list[tuple[int, int, int]]()
    for state, start, length in reversed(runs):
        kind = kinds[state]
        if kind.is_high:
            joined += [(state, start + place, 1) for place in range(length)]
        elif joined and joined[-1][0] == state and kind is not _SAME:
            joined[-1] = (state, joined[-1][1], joined[-1][2] + length)
        else:
            joined.append((state, start, length))
    yield from ((kinds[state], start, length) for state, start, length in joined)


def _commonest(rows: Array) -> Array:
    """Return the most common word of each column."""
    ordered = np.sort(rows, axis=0)
    length, best, common = np.zeros(rows.shape[1], int), np.zeros(rows.shape[1], int), ordered[0].copy()
    for row, before in zip(ordered, [ordered[0], *ordered[:-1]], strict=True):
        length = np.where(row == before, length + 1, 1)
        common = np.where(length > best, row, common)
        best = np.maximum(best, length)
    return np.asarray(common)
