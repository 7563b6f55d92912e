"""Weights as codes: places in tables of their values, Huffman codes, and words of zeros that are left out.

They are runs of columns of a packed stream (mtool.compiler.kernels.few_bits): four numbers a word, one code after the
other, the lowest bit first. crt/include/mt_unpack.h decodes them.
"""

import heapq
from collections.abc import Iterator

import numpy as np

from mtool.base.frozen import frozen
from mtool.base.option_values import Compress
from mtool.compiler.ir.types import Array

CODES = 7  # in place of the logarithm of a field's bits
HUFFMAN, PLAIN = 0, 8  # in place of the bits of a place in a table
LONGEST = 15  # bits of a Huffman code
MOST_TOGETHER = 16  # channels of a row
MOST_VALUES = 128  # of a table for all channels
MOST_OF_CHANNEL = 16
MISFIT = 2  # words of one that is stored apart


@frozen
class Coded:
    """Columns of bytes or of halfwords a + 256 * b, as codes.

    in_pairs: halfwords.
    bits: of a code; HUFFMAN: as many as it has; PLAIN: the number itself.
    tables: the values, int64 [1 or rows, channels of a row, values]; of Huffman codes, the shortest first.
    lengths: of the Huffman codes, as the values.
    lanes: the logarithm of the numbers of a channel before those of the next, from a row's begin on.
    zeros: a bit for each word: 0, or its codes follow.
    """

    in_pairs: bool
    bits: int
    tables: Array
    lengths: tuple[int, ...] = ()
    lanes: int = 0
    zeros: bool = False
    is_high: bool = False

    @property
    def head(self) -> Array:
        """The tables as words: of each its values; before those of Huffman codes the number of each length."""
        if self.bits == PLAIN:
            return np.zeros(0, np.uint32)
        listed = self.tables.reshape(-1, self.tables.shape[-1])
        filled = np.pad(
            listed, ((0, 0), (0, -listed.shape[1] % 4 if self.bits == HUFFMAN else self._size - listed.shape[1]))
        )
        words = np.ascontiguousarray(filled.astype(np.int8)).view(np.uint32).reshape(-1)
        if self.bits != HUFFMAN:
            return words
        counts = np.bincount(self.lengths, minlength=LONGEST + 1).astype(np.uint8)
        return np.concatenate([counts.view(np.uint32), words])

    @property
    def _size(self) -> int:
        return max(4, 1 << self.bits)

    @property
    def head_words(self) -> int:
        """The words before the codes."""
        return 2 + len(self.head)

    def costs(self, rows: Array) -> Array:
        """Return the words that each column takes."""
        _, fits, bits = self._codes(rows, 0)
        total = np.where(fits, bits.sum(-1), 0) + self.zeros
        return np.asarray(total.sum(0) / 32 + MISFIT * (~fits).sum(0))

    def instructions(self, rows: Array) -> float:
        """Return the instructions that decode a run: 62 a word, or of Huffman codes 30 a number and 18 a bit."""
        _, _, bits = self._codes(rows, 0)
        is_coded = bits.sum(-1) > 0
        decoding = 120 * is_coded.sum() + 18 * bits.sum() if self.bits == HUFFMAN else 62 * is_coded.sum()
        return float(60 + 10 * rows.size + decoding)

    def packed(self, rows: Array, first: int, count: int) -> tuple[Array, Array]:
        """Return a run's words, uint32, and which words of it are to be stored apart, bool [rows, count]."""
        codes, fits, bits = self._codes(rows[:, first : first + count], first)
        codes, bits = np.where(fits[..., None], codes, 0), np.where(fits[..., None] | (not self.zeros), bits, 0)
        if not self.zeros:  # a word that is stored apart has the first code
            shortest = self.lengths[0] if self.bits == HUFFMAN else self.bits
            bits = np.where(fits[..., None], bits, shortest)
        else:
            flags = (bits.sum(-1, keepdims=True) > 0).astype(np.int64)
            codes, bits = np.concatenate([flags, codes], -1), np.concatenate([np.ones_like(flags), bits], -1)
        together = (self.tables.shape[1] - 1).bit_length() if self.bits != PLAIN else 0
        how = self.bits | self.zeros << 4 | (len(self.tables) > 1) << 5 | self.lanes << 8 | ((1 << together) - 1) << 12
        how |= (self.tables.shape[-1] - 1) << 24 if self.bits == HUFFMAN else 0
        form = 2 if self.in_pairs else 3
        head = np.array([count | CODES << 20 | form << 23, how], np.uint32)
        return np.concatenate([head, self.head, _written(codes.reshape(-1), bits.reshape(-1))]), ~fits

    def _codes(self, rows: Array, first: int) -> tuple[Array, Array, Array]:
        """Return the codes of columns from `first` on, [rows, columns, 4], which words have them, and their bits."""
        numbers = numbers_of(rows, self.in_pairs)
        inside = (numbers >= -128) & (numbers <= 127)
        unsigned = numbers & 255
        if self.bits == PLAIN:
            codes = unsigned
        else:
            of_row = np.arange(rows.shape[0])[:, None, None] if len(self.tables) > 1 else 0
            place = np.arange(4 * first, 4 * (first + rows.shape[1])).reshape(-1, 4) >> self.lanes
            codes = self._places[of_row, place & self.tables.shape[1] - 1, unsigned]
        bits: Array = np.full(codes.shape, self.bits)
        if self.bits == HUFFMAN:
            bits = np.append(self.lengths, 0)[codes]
            codes = np.append(_canonical(self.lengths), -1)[codes]
        fits: Array = np.asarray(inside.all(-1) & (codes >= 0).all(-1))
        if self.zeros:
            empty = ~numbers.any(-1)
            fits |= empty
            bits[empty] = 0
        return codes, fits, bits

    @property
    def _places(self) -> Array:
        """The place of each byte in the tables, or -1."""
        places = np.full((*self.tables.shape[:2], 256), -1)
        for place in reversed(range(self.tables.shape[2])):
            np.put_along_axis(places, self.tables[:, :, place : place + 1] & 255, place, 2)
        return places


def codings(coding: Compress, weights: Array, rows: int) -> Iterator[Coded]:
    """Yield the ways to code weights in a stream.

    Args:
        coding: which: table, sparse, huffman; auto: all but Huffman codes, which take long.
        weights: int8 or uint8 [channels, ...].
        rows: the number of rows; a row has the weights of one channel, or of 2, 4, 8 or 16.
    """
    by_channel = weights.reshape(len(weights), -1).astype(np.int64)
    counts = np.bincount((by_channel & 255).reshape(-1), minlength=256)
    counts[0] += 1
    values = np.flatnonzero(counts)
    if coding == "huffman":
        lengths = _huffman_lengths(counts[values])
        order = np.lexsort((values, lengths))
        if np.bincount(lengths).max() < 256:
            for in_pairs in (False, True):
                yield Coded(in_pairs, HUFFMAN, values[order][None, None], tuple(lengths[order].tolist()))
        return
    tables = list[tuple[Array, int]]()
    if len(values) <= (MOST_OF_CHANNEL if coding == "auto" else MOST_VALUES):
        tables = [(values[None, None], 0)]
    together = -(-len(weights) // rows)
    if len(values) > MOST_OF_CHANNEL and together <= MOST_TOGETHER and together.bit_count() == 1:
        distinct = [np.flatnonzero(np.bincount(np.append(channel & 255, 0))) for channel in by_channel]
        most = max(map(len, distinct))
        if most <= MOST_OF_CHANNEL:
            distinct += [np.zeros(1, np.int64)] * (rows * together - len(distinct))
            listed = np.array([np.pad(table, (0, most - len(table)), "edge") for table in distinct])
            shaped = listed.reshape(rows, together, most)
            for lanes in range(3 if together > 1 else 1):  # the first weight may be of any word
                turns = range(0, together, max(1, 4 >> lanes))
                tables += [(np.roll(shaped, turn, axis=1), lanes) for turn in turns]
    for in_pairs in (False, True):
        for table, lanes in tables:
            bits = max(1, (table.shape[2] - 1).bit_length())
            yield from (
                Coded(in_pairs, bits, table, lanes=lanes, zeros=zeros)
                for zeros in (False, True)
                if coding == "auto" or zeros == (coding == "sparse")
            )
    if coding != "table" and counts[0] * 2 > weights.size:
        yield from (Coded(in_pairs, PLAIN, np.zeros((1, 1, 0), np.int64), zeros=True) for in_pairs in (False, True))


def numbers_of(rows: Array, in_pairs: bool) -> Array:
    """Return the four numbers of each word, int64 [rows, columns, 4]."""
    if not in_pairs:
        return rows.view(np.int8).reshape(*rows.shape, 4).astype(np.int64)
    halves = rows.view(np.int16).reshape(*rows.shape, 2).astype(np.int64)
    low = (halves & 255 ^ 128) - 128
    return np.stack([low, (halves - low) >> 8], axis=-1).reshape(*rows.shape, 4)


def _huffman_lengths(counts: Array) -> Array:
    """Return the lengths of symbols' codes, up to LONGEST bits, from how often each symbol occurs."""
    lengths = np.ones(len(counts), int)
    weights = counts.astype(float)
    while len(counts) > 1:
        heap: list[tuple[float, int, list[int]]] = [(weight, number, [number]) for number, weight in enumerate(weights)]
        heapq.heapify(heap)
        lengths[:] = 0
        while len(heap) > 1:
            (weight, number, symbols), (other, _, others) = heapq.heappop(heap), heapq.heappop(heap)
            lengths[symbols + others] += 1
            heapq.heappush(heap, (weight + other, number, symbols + others))
        if lengths.max() <= LONGEST:
            break
        weights = weights + weights.max() / 64
    return lengths


def _canonical(lengths: tuple[int, ...]) -> Array:
    """Return the codes of rising lengths, their first bit the lowest."""
    codes, code, before = [], 0, 0
    for length in lengths:
        code <<= length - before
        codes.append(int(f"{code:0{length}b}"[::-1], 2))
        code, before = code + 1, length
    return np.array(codes)


def _written(codes: Array, bits: Array) -> Array:
    """Return codes, each of its number of bits, one after the other as words, uint32."""
    places = np.cumsum(bits) - bits
    stream = np.zeros(-(-int(bits.sum()) // 32) * 32, np.uint8)
    for bit in range(int(bits.max(initial=0))):
        longer = bits > bit
        stream[places[longer] + bit] = codes[longer] >> bit & 1
    return np.packbits(stream, bitorder="little").view("<u4").astype(np.uint32)
