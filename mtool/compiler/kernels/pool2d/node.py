"""The nodes of pools: `pool2d`."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from mtool.compiler.ir import Attributes, Graph, Node, WithEpilogue
from mtool.compiler.kernels.specification import Channels, Operand, RowReads, RowWise, Specification, always

Pair = tuple[int, int]


class Pool2d(WithEpilogue):
    """A pool; pairs are (vertical, horizontal), in elements.

    kind: acc is the maximum, or the average: the mean of floats, the sum of integers.
    kernel: height and width of the window.
    strides, dilations: at least 1.
    pads: top, left, bottom, right; at least 0.
    count_pads: the mean counts the padding as zeros, up to `limits`.
    limits: the row and column from which on nothing is counted.
    """

    kind: Literal["max", "average"]
    kernel: Pair
    strides: Pair
    pads: tuple[int, int, int, int]
    dilations: Pair
    count_pads: bool
    limits: Pair

    def counts_all(self, made: Sequence[int]) -> bool:
        """Whether a mean is over as many elements for each of `made` windows, padding among them."""
        return self.count_pads and all(
            (made[n] - 1) * self.strides[n] + (self.kernel[n] - 1) * self.dilations[n] - self.pads[n] < self.limits[n]
            for n in (0, 1)
        )


def _window(node: Node, graph: Graph) -> RowReads:
    """Padding has no part in a maximum, so it may be the smallest value; to a sum it is 0."""
    attrs, dtype = Pool2d.of(node), graph.types[node.inputs[0]].dtype
    lowest = -math.inf if dtype.is_float else dtype.limits[0]
    reach = (attrs.kernel[0] - 1) * attrs.dilations[0] + 1
    fill = lowest if attrs.kind == "max" else 0
    return RowReads.of_window(node, graph, reach, attrs.strides[0], attrs.pads[0], fill)


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """No value is without effect on a mean that does not count the padding."""
    attrs, reads = Pool2d.of(node), _window(node, graph)
    is_sum = not graph.types[node.inputs[0]].dtype.is_float or attrs.counts_all(graph.types[node.outputs[0]].shape[1:3])
    return (reads,) if reads.fill is None or attrs.kind == "max" or is_sum else None


def _of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    attrs = Pool2d.of(node)
    start, end = _window(node, graph).rows(0, count)
    pads, limits = (0, attrs.pads[1], 0, attrs.pads[3]), (end - start, attrs.limits[1])
    return replace(attrs, pads=pads, limits=limits)


def _agree(node: Node, graph: Graph) -> None:
    """Each window begins in the input or its padding."""
    attrs, where = Pool2d.of(node), f"{node.op} {node.name}"
    assert min(*attrs.strides, *attrs.dilations) > 0, (
        f"{where} has strides {attrs.strides}, dilations {attrs.dilations}"
    )
    before, after = (graph.types[value].shape for value in (node.inputs[0], node.outputs[0]))
    for n in range(2):
        padded = before[1 + n] + attrs.pads[n] + attrs.pads[2 + n]
        begins = (after[1 + n] - 1) * attrs.strides[n] < padded
        assert begins, f"{where} is {list(after)}; fewer windows begin in {list(before)}"


SPECIFICATION = Specification(
    Pool2d,
    (Operand("input", "NHWC", is_in_arena=True),),
    layout="NPQC",
    agree=_agree,
    channels=always(Channels.EACH),
    row_wise=RowWise(_reads, _of_rows),
)
