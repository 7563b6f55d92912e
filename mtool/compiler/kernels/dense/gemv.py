"""The common part of the schedules of dense layers."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.kernels.epilogues import TileEpilogue
from mtool.compiler.kernels.f32 import Stored, as_words
from mtool.compiler.kernels.mve.loops import Body
from mtool.compiler.kernels.packing import by_turns, numbers_of, packed_by_rows, round_up
from mtool.compiler.kernels.sum_schedule import E, SumSchedule
from mtool.compiler.kernels.target import Target

T = TypeVar("T", bound=TileEpilogue)


SUMS = 16  # int32 sums on the stack at a time


@frozen
class Matrix:
    """The sizes of a dense layer: rows of `depth` inputs, and the outputs of each."""

    rows: int
    depth: int
    outputs: int


class DenseSchedule(SumSchedule[Matrix, E]):
    """A schedule that is defined by the sizes of a dense layer and its epilogue."""

    sizes_name = "size"

    def sizes(self, node: Node, graph: Graph) -> Matrix:
        """Rows, depth, outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        return Matrix(rows, depth, graph.types[node.outputs[0]].shape[1])


class GroupedGemv(DenseSchedule[T]):
    """Row by row of the input, by a runtime function; a group of outputs shares the loaded inputs.

    Attributes:
        element: the type of the input's elements.
        together: the outputs of a group, unless `group` says otherwise.
        multiple: the function reads a multiple of this number of inputs, unless `filled` says otherwise.
    """

    template = "kernels/dense/gemv.c.j2"
    element: ClassVar[DType]
    together: ClassVar[int] = 8
    multiple: ClassVar[int] = 4

    def group(self, size: Matrix, epilogue: T) -> int:
        """Return how many outputs are computed at a time."""
        return self.together

    def filled(self, size: Matrix) -> int:
        """Return how many inputs the function reads: the depth, padded with zeros."""
        return round_up(size.depth, self.multiple)

    def groups(self, size: Matrix, epilogue: T) -> int:
        """Return how many groups a row has."""
        return -(-size.outputs // self.group(size, epilogue))

    def _sums(self, size: Matrix, epilogue: T) -> int:
        """Return how many sums lie on the stack, for the expression that follows them."""
        if epilogue.kind is not DType.INT32:
            return 0
        groups, group = self.groups(size, epilogue), self.group(size, epilogue)
        return group * max(n for n in range(1, SUMS // group + 1) if groups % n == 0)

    def _staged(self, size: Matrix, epilogue: T) -> int:
        """A row of results, if an expression follows; the last group, if it has unused outputs."""
        group = self.group(size, epilogue)
        if epilogue.kind is DType.INT32:
            return 0
        if epilogue.rest is not None:
            return round_up(size.outputs, group)
        return group if size.outputs % group else 0

    def scratch(self, size: Matrix, epilogue: T) -> int:
        """Results that are staged, and a row of inputs that has to be padded."""
        row = self.filled(size) if self.filled(size) > size.depth else 0
        return epilogue.kind.size * self._staged(size, epilogue) + self.element.size * row

    def values(self, size: Matrix, epilogue: T, target: Target) -> dict[str, Any]:
        """The group, the inputs that are read, the results that are staged."""
        variables = {"filled": self.filled(size), "element": self.element.c, "staged": epilogue.kind.c}
        variables |= {"group": self.group(size, epilogue), "results": self._staged(size, epilogue)}
        return {**variables, "sums": self._sums(size, epilogue), "vector": self.vector(size, epilogue)}

    def vector(self, size: Matrix, epilogue: T) -> Body | None:
        """Return the C of four results, from the sums on the stack; None: they are computed one by one."""
        return None


@dataclass(frozen=True)
class FewBitsGemv(GroupedGemv[T]):
    """The common part of schedules that can read weights of few bits, eight outputs at a time."""

    bits: int

    def in_few_bits(self, node: Node, graph: Graph, target: Target) -> Self | None:
        """With weights of four bits or fewer."""
        fewer = (replace(self, bits=bits) for bits in sorted(self.knobs()["bits"].values[1:]))
        return None if self.bits else next((s for s in fewer if s.supports(node, graph, target)), None)

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """With fewer bits than are fastest, what these save."""
        size = self.sizes(node, graph)
        return -(round_up(size.outputs, 8) * round_up(size.depth, 4) * (8 - self.bits) // 8) if self.bits else 0


# Packed weights of dense layers of float32.


LAYOUT_F32 = "some outputs a row: their weights by turns, their biases"


def pack_f32(weights: Array, bias: Array, group: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_rows and mt_mve_f32_rows, float32 [N/group, group * (K + 1)].

    Args:
        weights: float32 [N, K]; N is padded to a multiple of `group`, K of 4.
        bias: float32 [N].
        group: outputs at a time.
        stored: how the weights are stored, if not as floats: then they may be int8, and the stream is of words
            (mtool.compiler.kernels.f32), biases being floats.
    """
    return packed_by_rows(partial(_rows, group=group, stored=stored), group, weights, bias)


def _rows(weights: Array, bias: Array, group: int, stored: Stored) -> Array:
    words = as_words(by_turns(weights, group, 1, round_up(weights.shape[1], 4)), stored)
    stream = np.concatenate([words, numbers_of(bias, group, np.float32, np.uint32)], axis=1)
    return stream if stored else stream.view(np.float32)
