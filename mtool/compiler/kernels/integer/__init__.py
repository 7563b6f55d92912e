"""Register tiles of 8-bit products for cores with only an integer multiplier."""

import functools
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.epilogues import EpilogueText, Products
from mtool.compiler.kernels.schedule import Target, knob
from mtool.compiler.kernels.weighted_sum import EIGHT_BITS, is_stored_as_int8

# Register tiles of 8-bit products for cores with only an integer multiplier.
#
# A tile is `columns` input vectors by `channels` outputs: each loaded element is multiplied by all of the other side,
# and the sums stay in registers. Its size depends on the core's registers and on how much code the layer's work is
# worth. Instructions a product as GCC 12 -O2 compiles the inner loop: Cortex-M3, 2 by 4, 1.91; RV32IMC, 2 by 8,
# 2.75.


EPILOGUE = 8.0  # instructions of an output besides its products: three bytes of code each
RESULT = 12.0  # instructions of an output that are the same for all tiles of a schedule
COLUMNS_MEANING = "the most input vectors of a tile; auto: by the core's registers and the layer's work"
POINTERS = 4  # registers of a loop besides sums and inputs: a weight, pointers, the counter
IN_FLIGHT = 8  # the most products between two points at which the compiler must have added all of them


@frozen
class Work:
    """The work of a node: the numbers of input vectors, of outputs, and of elements per vector (`depth`).

    `once`: no output may be computed twice, since it overwrites its operands. `byte`: the instructions that a byte of
    code has to save.
    """

    vectors: int
    outputs: int
    depth: int
    once: bool
    byte: float

    @classmethod
    def of(cls, node: Node, graph: Graph, vectors: int, outputs: int, depth: int) -> Self:
        """Return a node's work."""
        return cls(vectors, outputs, depth, reads_activations(node, graph), price_of_code(node, graph))


@frozen
class Tile:
    """A register tile: input vectors by outputs, and the elements of depth in one turn of the loop.

    The last tile ends at the last output and computes some outputs of the previous tile again, so that one loop handles
    all outputs.
    """

    columns: int
    channels: int
    unroll: int

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def best(cls, target: Target, work: Work, columns: int = 0, channels: int = 0, unroll: int = 0) -> "Tile":
        """Choose the unset values (0) by instructions and code size; set values are used as far as possible."""
        wide = min(columns or 2, work.vectors)
        high = min(channels or 8, work.outputs)
        deep = unroll or (1 if target.is_8_bit else 8)  # for an AVR, code is compiled for size
        fitting = [
            cls(p, q, depth)
            for p in range(1, wide + 1)
            for q in range(1, high + 1)
            for depth in range(1, deep + 1)
            if work.depth % depth == 0
            and not (work.once and work.outputs % q)
            and ((p, q) == (1, 1) or p * q + p + POINTERS <= target.registers or (columns and channels))
        ]
        for name, chosen in (("columns", columns), ("channels", channels), ("unroll", unroll)):
            if chosen:
                most = max(getattr(tile, name) for tile in fitting)
                fitting = [tile for tile in fitting if getattr(tile, name) == most]
        return min(fitting, key=lambda tile: tile.cost(target, work) + work.byte * tile.code_bytes(target))

    @property
    def group(self) -> int:
        """The channels after which the compiler must have added all products."""
        return max(1, IN_FLIGHT // self.columns)

    def _step(self, target: Target) -> int:
        return self.columns + self.channels + self.columns * self.channels * target.product_instructions

    def cost(self, target: Target, work: Work) -> float:
        """Instructions of all of it."""
        tiles = -(-work.vectors // self.columns) * -(-work.outputs // self.channels)
        tile = work.depth * (self._step(target) + 3 / self.unroll) + EPILOGUE * self.columns * self.channels + 12
        return tiles * tile

    def code_bytes(self, target: Target) -> float:
        """Code, about."""
        return 4 * self.unroll * self._step(target) + 3 * EPILOGUE * self.columns * self.channels


@dataclass(frozen=True)
class TileKnobs:
    """The common part of schedules with such tiles: knobs and packed weights."""

    columns: int = knob(0, 1, 2, meaning=COLUMNS_MEANING)
    channels: int = knob(0, 1, 2, 4, 6, 8, meaning="the most outputs of a tile; auto: as for columns")
    unroll: int = knob(
        0, 1, 2, 4, meaning="the most elements of the depth per loop turn, a divisor of it; auto: as for columns"
    )

    def work(self, sizes: Any, epilogue: EpilogueText) -> Work:
        """Return the work of a layer."""
        raise NotImplementedError

    def best(self, target: Target, work: Work) -> Tile:
        """Return the tile for some work."""
        return Tile.best(target, work, self.columns, self.channels, self.unroll)

    def products(self, sizes: Any, epilogue: EpilogueText, target: Target) -> Products:
        """The channels of a tile together."""
        work, weights = self.work(sizes, epilogue), epilogue.stored_weights
        channels = self.best(target, work).channels
        packed = pack(weights.reshape(len(weights), -1), channels, len(weights) // work.outputs)
        layout = f"{channels} output channels at a time, side by side for each input"
        return Products(packed, layout, ties=epilogue.beside_halves(channels))

    def values(self, sizes: Any, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The tile."""
        return {"tile": self.best(target, self.work(sizes, epilogue))}


def is_narrow(node: Node, graph: Graph) -> bool:
    """Whether inputs and stored weights have 8 bits, as in most integer models; their products fit in any int."""
    return graph.types[node.inputs[0]].dtype in EIGHT_BITS and is_stored_as_int8(node, graph)


def reads_activations(node: Node, graph: Graph) -> bool:
    """Whether an epilogue reads operands that the output may overwrite: then each output is computed once."""
    return any(name not in graph.constants for name in node.inputs[3:])


def pack(weights: Array, channels: int, groups: int = 1) -> Array:
    """Return the weights in the order in which tiles read them: `channels` rows side by side, element by element.

    Args:
        weights: int8 [N, K].
        channels: rows of a tile; the last tile of a group ends with the group, over rows of the one before it.
        groups: parts of equal size that N consists of.
    """
    return np.concatenate([tiled(rows, channels).reshape(-1) for rows in np.split(weights, groups)])


def tiled(rows: Array, channels: int) -> Array:
    """Return the same of a group as [tiles, K, channels]."""
    firsts = [min(first, len(rows) - channels) for first in range(0, len(rows), channels)]
    return np.stack([rows[first : first + channels].T for first in firsts])
