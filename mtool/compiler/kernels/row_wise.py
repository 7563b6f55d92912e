"""Row-wise execution: which rows of its inputs an operator computes rows of its output from."""

from collections.abc import Callable
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, Graph, Node

Fill = int | float | None


@dataclass(frozen=True, slots=True)
class RowReads:
    """The rows of one input that output rows are computed from: row r reads `reach` rows from r * stride - pad on.

    input: its index among the node's inputs.
    after: the padding rows below the input that the last output row reads.
    fill: what padding rows hold; None: there are none.
    """

    input: int
    stride: int = 1
    reach: int = 1
    pad: int = 0
    after: int = 0
    fill: Fill = None

    @classmethod
    def of_window(cls, node: Node, graph: Graph, reach: int, stride: int, pad: int, fill: Fill) -> "RowReads":
        """Return those of a window over the first input, of `reach` rows, with `pad` rows of `fill` above."""
        before, after = graph.types[node.inputs[0]].shape[1], graph.types[node.outputs[0]].shape[1]
        below = max((after - 1) * stride - pad + reach - before, 0)
        return cls(0, stride, reach, pad, below, fill if pad or below else None)

    def rows(self, first: int, count: int) -> tuple[int, int]:
        """Return the first row and the one after the last that `count` output rows from `first` on read."""
        start = first * self.stride - self.pad
        return start, start + (count - 1) * self.stride + self.reach


def _same(node: Node, graph: Graph, count: int) -> Attributes:
    return node.attrs


@dataclass(frozen=True, slots=True)
class RowWise:
    """The row-wise execution of an operator; tensors are [1, H, W, C].

    reads: the rows of its own inputs that it reads, beside those of its expression; None: it has to be computed as
        a whole.
    attributes: those of a node that computes `count` rows, where padding rows lie in its input already.
    """

    reads: Callable[[Node, Graph], tuple[RowReads, ...] | None]
    attributes: Callable[[Node, Graph, int], Attributes] = _same
