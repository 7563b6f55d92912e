"""Which operators can be computed a few rows at a time, and which rows of their inputs that takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtool.ir import Expr, Graph, Node
from mtool.ir.expr import axis

Fill = int | float | None


@dataclass(frozen=True, slots=True)
class Reads:
    """The rows of one input that output rows are computed from: row r reads `reach` rows from r * stride - pad on.

    input: its place among the node's inputs.
    after: the padding rows below the input that the last output row reads.
    fill: what padding rows hold; None: there are none.
    """

    input: int
    stride: int = 1
    reach: int = 1
    pad: int = 0
    after: int = 0
    fill: Fill = None

    def rows(self, first: int, count: int) -> tuple[int, int]:
        """Return the first row and the one after the last that `count` output rows from `first` on read."""
        start = first * self.stride - self.pad
        return start, start + (count - 1) * self.stride + self.reach


def reads_of(node: Node, graph: Graph) -> tuple[Reads, ...] | None:
    """Return what rows a node reads of the inputs that have rows; None: it can't be computed a few rows at a time.

    Tensors are [1, H, W, C]; their rows lie one after the other.
    """
    if len(node.outputs) != 1 or "whole" in node.attrs:
        return None
    out = graph.types[node.outputs[0]].shape
    if len(out) != 4 or out[0] != 1 or out[1] < 2:
        return None
    own = _OWN.get(node.op)
    found = own(node, graph, out) if own else None
    expr: Expr | None = node.attrs[node.expression_key] if node.expression_key else None
    if found is None or expr is None:
        return found
    operands = _operands(expr, node, graph, out)
    taken = {reads.input for reads in found}
    if operands is None or taken & {*operands}:
        return None
    return (*found, *(Reads(number) for number in operands))


def _window(node: Node, graph: Graph, out: tuple[int, ...], fill: Fill) -> Reads:
    height = graph.types[node.inputs[0]].shape[1]
    reach = (node.attrs["kernel"][0] - 1) * node.attrs["dilations"][0] + 1
    stride, pad = node.attrs["strides"][0], node.attrs["pads"][0]
    after = max((out[1] - 1) * stride - pad + reach - height, 0)
    return Reads(0, stride, reach, pad, after, fill if pad or after else None)


def _convolution(node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[Reads, ...] | None:
    return (_window(node, graph, out, node.attrs["pad_value"]),)


def _pooling(node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[Reads, ...] | None:
    """Padding has no part in a maximum, so it may be the smallest value; it has none in a mean either."""
    dtype = graph.types[node.inputs[0]].dtype
    lowest = -math.inf if dtype.is_float else dtype.limits[0]
    reads = _window(node, graph, out, lowest)
    return (reads,) if reads.fill is None or node.attrs["kind"] == "max" else None


def _loop(node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[Reads, ...] | None:
    return ()


def _concatenation(node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[Reads, ...] | None:
    if node.attrs["axis"] != 3 or any(value in graph.constants for value in node.inputs):
        return None
    return tuple(Reads(number) for number in range(len(node.inputs)))


_OWN = {"conv2d": _convolution, "pool2d": _pooling, "loop": _loop, "concat": _concatenation}


def _operands(expr: Expr, node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the inputs that an expression reads at the row that it computes; None: it reads others, or knows its row.

    Inputs that are read as a whole, whatever the row, are not among them.
    """
    by_row: dict[int, bool] = {}
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]].shape
        own = len(kind) == 4 and load.args[1] == axis(1)
        if own and (kind[1] != out[1] or kind[0] != 1 or node.inputs[load.value] in graph.constants):
            return None
        rest = [arg for place, arg in enumerate(load.args) if not (own and place == 1)]
        if any(part == axis(1) for arg in rest for part in arg.walk()):
            return None
        if by_row.setdefault(load.value, own) != own:
            return None
    if any(part == axis(1) or part.op == "reduce" for part in expr.walk(indices=False)):
        return None
    return tuple(sorted(number for number, own in by_row.items() if own))


def of_rows(node: Node, graph: Graph, count: int, reads: Reads | None) -> Mapping[str, Any]:
    """Return the attributes of a node that computes `count` rows, where padding rows lie in its input already.

    `reads` is that of the first input, if it has any.
    """
    attrs = dict(node.attrs)
    if "macs" in attrs:
        attrs["macs"] = attrs["macs"] * count // graph.types[node.outputs[0]].shape[1]
    if reads is not None and "pads" in attrs:
        attrs["pads"] = (0, attrs["pads"][1], 0, attrs["pads"][3])
    if reads is not None and "limits" in attrs:
        start, end = reads.rows(0, count)
        attrs["limits"] = (end - start, attrs["limits"][1])
    return attrs
