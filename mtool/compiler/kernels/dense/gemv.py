"""The common part of schedules that compute some outputs of a dense layer at a time by a runtime function."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.epilogues import TileEpilogue
from mtool.compiler.kernels.f32 import Stored, as_words
from mtool.compiler.kernels.packing import filled_up, round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the runtime: its name, the packed weights and their layout, the C of its last argument, if any.

    shared: the lines that define it, as a Kernel has them.
    """

    function: str
    weights: Array
    layout: str
    last: str = ""
    shared: tuple[str, ...] = ()


class GroupedGemv(BaseSchedule):
    """Row by row of the input; a group of outputs shares what is loaded of it."""

    element: ClassVar[DType]
    header: ClassVar[str]
    range_of: ClassVar[str] = ""  # the template whose macro declares the output's range
    staged: ClassVar[DType | None] = None  # the type of results that are staged, if not the elements'

    def epilogue(self, node: Node, graph: Graph) -> TileEpilogue | None:
        """Return the node's epilogue, of the element's type; None: it is not for this schedule."""
        raise NotImplementedError

    def group(self, node: Node, graph: Graph) -> int:
        """Return how many outputs are computed at a time."""
        raise NotImplementedError

    def padded_depth(self, depth: int) -> int:
        """Return how many inputs the function reads: the depth, filled up with zeros."""
        raise NotImplementedError

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """Return what is called."""
        raise NotImplementedError

    def groups(self, node: Node, graph: Graph) -> int:
        """Return how many groups a row has."""
        return -(-graph.types[node.outputs[0]].shape[1] // self.group(node, graph))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that has to be filled up."""
        depth = graph.types[node.inputs[0]].shape[1]
        row = self.padded_depth(depth) if self.padded_depth(depth) > depth else 0
        return (self.staged or self.element).size * self._staged(node, graph) + self.element.size * row

    def _staged(self, node: Node, graph: Graph) -> int:
        """A row of results, if an expression follows; the last group, if its outputs are not all wanted."""
        epilogue, outputs = self.epilogue(node, graph), graph.types[node.outputs[0]].shape[1]
        group = self.group(node, graph)
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, group)
        return group if outputs % group else 0

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, call = self.epilogue(node, graph), self.call(node, graph, target)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "kernels/dense/gemv.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            group=self.group(node, graph),
            function=call.function,
            last=call.last,
            epilogue=epilogue,
            element=self.element.c,
            staged=(self.staged or self.element).c,
            weights_type=DType.of(call.weights.dtype).c,
            range_of=self.range_of,
            filled=self.padded_depth(depth),
            results=self._staged(node, graph),
            rest=lambda acc, offset, channel, row: epilogue.rest_text(node, graph, acc, offset, channel, row),
        )
        scratch = (self.staged or self.element).c if self.scratch_bytes(node, graph) else ""
        return epilogue.kernel(node, graph, body, call.weights, call.layout, self.header, scratch, call.shared)


# Packed weights of dense layers of float32.


LAYOUT_F32 = "some outputs a row: their weights by turns, their biases"


def pack_f32(weights: Array, bias: Array, group: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_rows and mt_mve_f32_rows, float32 [N/group, group * (K + 1)].

    Args:
        weights: float32 [N, K]; N is filled up to a multiple of `group`, K of 4.
        bias: float32 [N].
        group: outputs at a time.
        stored: how the weights are stored, if not as floats: then they may be int8, and the stream is of words
            (mtool.compiler.kernels.f32), biases being floats.
    """
    if stored:
        count, depth = (round_up(size, to) for size, to in zip(weights.shape, (group, 4), strict=True))
        filled = filled_up(weights, count, depth).reshape(count // group, group, depth)
        words = as_words(filled.transpose(0, 2, 1).reshape(count // group, -1), stored)
        biases = np.pad(bias, (0, count - bias.size)).reshape(count // group, group)
        return np.concatenate([words, as_words(biases, "")], axis=1)
    count, depth = weights.shape
    whole, rest = divmod(count, group)
    stream = np.zeros((round_up(count, group) // group, round_up(depth, 4) + 1, group), weights.dtype)
    for part, source in ((stream[:, :depth], weights), (stream[:, -1:], bias[:, np.newaxis])):
        part[:whole] = source[: whole * group].reshape(whole, group, source.shape[1]).transpose(0, 2, 1)
        part[whole:, :, :rest] = source[whole * group :].T
    return stream.reshape(len(stream), -1)
