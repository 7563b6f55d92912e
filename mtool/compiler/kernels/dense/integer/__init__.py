"""Dense layers of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.dense.gemv import DenseSchedule, Matrix
from mtool.compiler.kernels.epilogues import EpilogueText, Products
from mtool.compiler.kernels.few_bits import bits_of
from mtool.compiler.kernels.integer import RESULT, Tile, TileKnobs, Work, is_narrow, reads_activations, tiled
from mtool.compiler.kernels.integer.signs import Signs
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import EIGHT_BITS


@dataclass(frozen=True)
class Gemv(TileKnobs, DenseSchedule[EpilogueText]):
    """A few outputs at a time share each input element; with two rows, they share each weight."""

    name = "int_rows"
    template = "kernels/dense/integer/gemv_int8.c.j2"
    core = "registers"
    forms = (EpilogueText,)

    def fits(self, size: Matrix, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits."""
        return is_narrow(epilogue.node, epilogue.graph)

    def work(self, size: Matrix, epilogue: EpilogueText) -> Work:
        """Its rows by its outputs."""
        return Work.of(epilogue.node, epilogue.graph, size.rows, size.outputs, size.depth)

    def best(self, target: Target, work: Work) -> Tile:
        """Return the tile, of two rows if their number is even."""
        columns = 1 if work.vectors % (self.columns or 2) else self.columns
        return Tile.best(target, work, columns, self.channels, self.unroll)

    def instructions(self, size: Matrix, epilogue: EpilogueText, target: Target) -> float:
        """The tiles', 12 instructions more an output."""
        work = self.work(size, epilogue)
        return self.best(target, work).cost(target, work) + RESULT * size.rows * size.outputs

    def values(self, size: Matrix, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The tile; weights in bytes."""
        return super().values(size, epilogue, target) | {"fields": None}


@frozen
class Stored:
    """Weights of few bits: of each, a field that stands for `least + step * field`.

    pairs: the words of two sums, so that a tile has twice as many outputs; a word of weights has a field of each lane.
    terms: the products that a lane holds at most.
    """

    bits: int
    least: int
    step: int
    pairs: int
    terms: int

    @classmethod
    def of(cls, size: Matrix, epilogue: EpilogueText, pairs: int) -> Self | None:
        """Return how weights of up to four bits are stored; None: they have more."""
        weights = epilogue.weights
        has_zeros = not weights.size or not weights.all()
        values = np.append(weights, 0) if has_zeros else weights
        least, most = int(values.min()), int(values.max())
        step = 2 if most == -least == 1 and not has_zeros else 1
        bits = bits_of(0, (most - least) // step)
        greatest = 255 if epilogue.x is DType.UINT8 else 128
        return cls(bits, least, step, pairs, 32767 // (greatest * ((1 << bits) - 1))) if bits else None

    @property
    def inputs(self) -> int:
        """The inputs of a word."""
        return 16 // self.bits // self.pairs

    @property
    def mask(self) -> int:
        """A field in each half of a word."""
        return ((1 << self.bits) - 1) * 0x10001

    def packed(self, weights: Array) -> Array:
        """Return the words of tiles, uint32: fields by inputs, of each by pairs; the first word may be partly used."""
        channels, depth = 2 * self.pairs, weights.shape[1]
        fields = ((weights.astype(np.int32) - self.least) // self.step).astype(np.uint32)
        tiles = tiled(fields, channels).reshape(-1, depth, 2, self.pairs)
        both = (tiles[:, :, 0] | tiles[:, :, 1] << np.uint32(16)).reshape(len(tiles), -1)
        rest = depth % self.inputs * self.pairs
        first = np.pad(both[:, :rest], ((0, 0), (0, (-rest) % (16 // self.bits))))
        words = np.concatenate([first, both[:, rest:]], axis=1).reshape(len(tiles), -1, 16 // self.bits)
        return np.asarray((words << np.arange(0, 16, self.bits, dtype=np.uint32)).sum(axis=2, dtype=np.uint32))


PAIR = (2.0, 3.6)  # instructions of two products, by those of one that is added up
PAIR_OF_THUMB1 = 4.0  # of five or six: estimates of other schedules are as much too low
FLUSH = 9.0  # of adding the sums of a pair to those of outputs


@dataclass(frozen=True)
class Fields(DenseSchedule[EpilogueText]):
    """Weights of four bits or fewer as they are stored: a product has those of two outputs, in halves of a word."""

    name = "int_fields"
    template = "kernels/dense/integer/gemv_int8.c.j2"
    core = "multiplies_words"
    forms = (EpilogueText,)

    def stored(self, size: Matrix, epilogue: EpilogueText, target: Target | None = None) -> Stored | None:
        """Return how weights are stored, for four pairs of outputs where registers suffice; None: they can't be."""
        once = reads_activations(epilogue.node, epilogue.graph)
        most = 2 if target is not None and target.is_thumb1 else 4
        fitting = (
            n for n in (4, 2, 1) if n <= most and 2 * n <= size.outputs and not (once and size.outputs % (2 * n))
        )
        pairs = next(fitting, 0)
        return Stored.of(size, epilogue, pairs) if pairs else None

    def fits(self, size: Matrix, epilogue: EpilogueText) -> bool:
        """8 bits by four or fewer, sums and their parts in 32 bits."""
        stored, bias = self.stored(size, epilogue), epilogue.bias_of_model
        if stored is None or epilogue.x not in EIGHT_BITS or epilogue.acc is not DType.INT32:
            return False
        reach = 256 * size.depth * (abs(stored.least) + 16) + int(np.abs(bias.astype(np.int64)).max(initial=0))
        return reach < 1 << 31

    def bits(self, size: Matrix, epilogue: EpilogueText) -> int:
        """Return the bits of a weight."""
        stored = self.stored(size, epilogue)
        return stored.bits if stored else 8

    def _unroll(self, size: Matrix, stored: Stored, *, for_size: bool) -> int:
        """Return the words of a turn."""
        words = [1] if for_size else [max(1, 4 // stored.inputs), 2, 1]
        return next(n for n in words if size.depth // stored.inputs % n == 0 and n * stored.inputs <= stored.terms)

    def values(self, size: Matrix, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The tile, the words of a turn, the products between two points at which sums are added up."""
        stored = self.stored(size, epilogue, target)
        assert stored is not None
        unroll = self._unroll(size, stored, for_size=epilogue.graph.for_size)
        turn = unroll * stored.inputs
        block = (stored.terms - size.depth % stored.inputs) // turn * turn
        tile = Tile(1, 2 * stored.pairs, turn)
        return {"tile": tile, "fields": stored, "words": unroll, "block": block}

    def products(self, size: Matrix, epilogue: EpilogueText, target: Target) -> Products:
        """Words, those of a tile one after the other."""
        stored = self.stored(size, epilogue, target)
        assert stored is not None
        channels = 2 * stored.pairs
        layout = f"{channels} output channels at a time, fields of {stored.bits} bits in halves of words"
        ties = epilogue.beside_halves(channels)
        return Products(stored.packed(epilogue.weights), layout, "mt_int_tables_int8.h", ties=ties)

    def instructions(self, size: Matrix, epilogue: EpilogueText, target: Target) -> float:
        """Those of words of two sums, of adding these up, of results, and what the code is worth."""
        stored = self.stored(size, epilogue, target)
        assert stored is not None
        pair = PAIR_OF_THUMB1 if target.is_thumb1 else PAIR[target.product_instructions - 1]
        turn = self._unroll(size, stored, for_size=epilogue.graph.for_size) * stored.inputs
        tile = size.depth * (stored.pairs * pair + 1 + 1 / stored.inputs + 4 / turn)
        tile += stored.pairs * (FLUSH * -(-size.depth // stored.terms) + 2 * (8 + RESULT)) + 12
        tiles, code = -(-size.outputs // (2 * stored.pairs)), 4 * (turn * (stored.pairs * pair + 1) + stored.pairs * 30)
        return size.rows * (tiles * tile + 4 * size.depth) + code * price_of_code(epilogue.node, epilogue.graph)


class RowSigns(Signs):
    """The same, row by row."""

    def axes(self, work: Work, epilogue: EpilogueText) -> dict[int, str]:
        """Row, output."""
        return {0: "m", 1: "(c + i)"}


SCHEDULES = (Gemv(), Fields(), RowSigns())
