"""Streams of constants of few bits: stored as fields of four, two or one bits, unpacked before a kernel reads them.

A stream is what a kernel reads its weights from, in whatever layout: rows of words, in each of which biases, weights
and scalings lie one after the other. Unpacking gives the same words, so that no kernel needs to know of it
(crt/include/mt_unpack.h).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array

LEAST_BYTES = 64  # that packing has to save
MOST_SAME = 32  # plain words of a row that may be equal in all
MOST_PLAIN = 4095  # plain words before or behind the packed ones


class _Form(NamedTuple):
    """How numbers lie in a word: their bits, and what stands beside each."""

    name: str
    bits: int
    offset: int  # the factor of the least number that is subtracted from a field's halfword or byte


BYTES = _Form("bytes", 8, 1)
PAIRS = _Form("pairs a + 256 * b", 16, 257)
HALVES = _Form("halfwords", 16, 1)


@frozen
class Packing:
    """How a stream is packed: `rows` rows of `before` plain words, `count` packed ones, `after` plain ones.

    form: how the numbers lie in a word.
    bits: of a field.
    least: the number that a field of 0 stands for.
    element: the bytes of an element of the stream.
    same: the plain words, as bits, that are equal in all rows and stored in the first one only.
    """

    form: _Form
    bits: int
    least: int
    rows: int
    before: int
    count: int
    after: int
    element: int = 4
    same: int = 0

    @property
    def together(self) -> int:
        """The unpacked words of a packed one."""
        return (16 if self.form is HALVES else 8) // self.bits

    @property
    def head(self) -> Array:
        """The words before the stream, for MT_UNPACK."""
        ones = 0x01010101 if self.form is BYTES else 0x00010001
        added = ((1 << self.form.bits - 1) + self.least * self.form.offset) * ones
        plain = self.before | self.after << 12 | (self.form is BYTES) << 24 | self.element << 25
        return np.array([self.rows, self.count // self.together, plain, self.same, added], np.uint32)

    @property
    def packed_words(self) -> int:
        """The words of the packed stream."""
        each = self.before + self.count // self.together + self.after
        return len(self.head) + self.rows * each - (self.rows - 1) * self.same.bit_count()

    @property
    def words(self) -> int:
        """The words of the stream."""
        return self.rows * (self.before + self.count + self.after)

    @property
    def instructions(self) -> float:
        """The instructions that unpack the stream: 4.6 for a word and its share of a packed one, 6 for a plain one."""
        return self.rows * (20 + 4.6 * self.count + 6 * (self.before + self.after))

    @property
    def function(self) -> str:
        """The name of its function, which MT_UNPACK of mt_unpack.h defines."""
        return f"mt_unpack{self.bits}_{self.together}"

    @property
    def macro(self) -> str:
        """The line that defines the function."""
        return f"MT_UNPACK({self.function}, {self.bits}, {self.together})"

    def pack(self, stream: Array) -> Array:
        """Return the packed words, uint32."""
        rows = np.ascontiguousarray(stream).reshape(-1).view(np.uint32).reshape(self.rows, -1)
        fields = _numbers(rows[:, self.before : self.before + self.count], self.form) - self.least
        lanes = fields.shape[2]
        turns = fields.reshape(self.rows, -1, self.together, lanes).astype(np.uint32)
        step = 32 // lanes
        shifts = (np.arange(self.together) * self.bits)[:, None] + np.arange(lanes) * step
        words = (turns << shifts.astype(np.uint32)).sum((2, 3), dtype=np.uint32)
        plain = [rows[:, : self.before], rows[:, self.before + self.count :]]
        varies = np.array([not self.same >> place & 1 for place in range(self.before + self.after)], bool)
        parts = plain[0][:, varies[: self.before]], words, plain[1][:, varies[self.before :]]
        first = np.concatenate([plain[0][:1], words[:1], plain[1][:1]], axis=1)
        return np.concatenate([self.head, first.reshape(-1), np.concatenate(parts, axis=1)[1:].reshape(-1)])


def _numbers(words: Array, form: _Form) -> Array:
    """Return the numbers in words of a form, int64 [..., numbers of a word]."""
    if form is BYTES:
        return words.view(np.int8).reshape(*words.shape, 4).astype(np.int64)
    halves = words.view(np.int16).reshape(*words.shape, 2).astype(np.int64)
    if form is HALVES:
        return halves
    low = (halves & 255 ^ 128) - 128
    return np.stack([low, (halves - low) >> 8], axis=-1).reshape(*words.shape, 4)


def packing_of(stream: Array, least: int, most: int) -> Packing | None:
    """Return how a stream is packed in the fewest words; None: it does not become smaller by `LEAST_BYTES`.

    Args:
        stream: [rows, ...], or one row.
        least, most: the range of the weights in it; 0 belongs to it.
    """
    bits = bits_of(least, most)
    if not bits or stream.nbytes % 4 or stream.dtype.kind not in "iu":
        return None
    flat = np.ascontiguousarray(stream).reshape(-1).view(np.uint32)
    found = []
    for rows in {1, len(stream) if stream.ndim > 1 else 1}:
        if flat.size % rows == 0:
            found += [
                one
                for form in (BYTES, PAIRS, HALVES)
                if (one := _best(flat.reshape(rows, -1), form, bits, least, most))
            ]
    best = min(found, key=lambda one: one.packed_words, default=None)
    if best is None or 4 * (best.words - best.packed_words) < LEAST_BYTES:
        return None
    return replace(best, element=stream.dtype.itemsize)


def bits_of(least: int, most: int) -> int:
    """Return the bits of a field for numbers of a range; 0: more than four."""
    return next((bits for bits in (1, 2, 4) if most - least < 1 << bits), 0)


def range_of(node: Node, graph: Graph) -> tuple[int, int]:
    """Return the least and the greatest of a node's integer weights and 0; (0, 0): it has none."""
    weights = [graph.constants[value] for value in node.inputs if value in graph.constants]
    weights = [data for data in weights if data.dtype in (np.int8, np.uint8, np.int16) and data.ndim > 1 and data.size]
    return min(0, *(int(data.min()) for data in weights), 0), max(0, *(int(data.max()) for data in weights), 0)


def _best(rows: Array, form: _Form, bits: int, least: int, most: int) -> Packing | None:
    """Return the packing of the longest run of words that hold such numbers in all rows."""
    numbers = _numbers(rows, form)
    fits = ((numbers >= least) & (numbers <= most)).all((0, 2))
    edges = np.flatnonzero(np.diff(np.concatenate([[False], fits, [False]])))
    if not edges.size:
        return None
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    before, end = int(edges[2 * longest]), int(edges[2 * longest + 1])
    is_same = (rows == rows[:1]).all(0) & (len(rows) > 1)  # stored once, if plain
    while before < end and is_same[before]:
        before += 1
    while before < end and is_same[end - 1]:
        end -= 1
    count = end - before
    together = Packing(form, bits, least, 1, 0, 0, 0).together
    count -= count % together
    if not count:
        return None
    after = rows.shape[1] - before - count
    plain = np.concatenate([is_same[:before], is_same[before + count :]])
    if max(before, after) > MOST_PLAIN:
        return None
    same = sum(1 << place for place in np.flatnonzero(plain[:MOST_SAME]).tolist())
    return Packing(form, bits, least, len(rows), before, count, after, same=same)
