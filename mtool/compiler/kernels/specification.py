"""Specifications of the internal kinds: requirements on their nodes, and properties for passes and the planner."""

from collections.abc import Callable
from enum import Enum
from itertools import zip_longest
from typing import TypeVar

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, Computation, DType, Graph, Node
from mtool.compiler.ir.graph import check_expression

# Row-wise execution: the rows of its inputs from which an operator computes rows of its output.


Fill = int | float | None
V = TypeVar("V")


@frozen
class RowReads:
    """The rows of one input that output rows are computed from: row r reads `reach` rows from r * stride - pad on.

    input: its index among the node's inputs.
    after: the padding rows below the input that the last output row reads.
    fill: the contents of padding rows; None: there are none.
    """

    input: int
    stride: int = 1
    reach: int = 1
    pad: int = 0
    after: int = 0
    fill: Fill = None

    @classmethod
    def of_window(cls, node: Node, graph: Graph, reach: int, stride: int, pad: int, fill: Fill) -> "RowReads":
        """Return the reads of a window over the first input, of `reach` rows, with `pad` rows of `fill` above."""
        before, after = graph.types[node.inputs[0]].shape[1], graph.types[node.outputs[0]].shape[1]
        below = max((after - 1) * stride - pad + reach - before, 0)
        return cls(0, stride, reach, pad, below, fill if pad or below else None)

    def rows(self, first: int, count: int) -> tuple[int, int]:
        """Return the first row and the one after the last that `count` output rows from `first` on read."""
        start = first * self.stride - self.pad
        return start, start + (count - 1) * self.stride + self.reach


@frozen
class RowWise:
    """The row-wise execution of an operator; tensors are [1, H, W, C].

    reads: the rows of its own inputs that it reads, besides those of its expression; None: it has to be computed as
        a whole.
    attributes: the attributes of a node that computes `count` rows, with padding rows already in its input.
    """

    reads: Callable[[Node, Graph], tuple[RowReads, ...] | None]
    attributes: Callable[[Node, Graph, int], Attributes] = lambda node, graph, count: node.attrs


class Channels(Enum):
    """The dependence of output channels on input channels."""

    EACH = "each on that of the same number alone"
    ALL = "each on all, by constant weights"
    MIXED = "in another way"


def always(value: V) -> Callable[..., V]:
    """Return a function that returns this, whatever it is called with."""
    return lambda *_: value


@frozen
class Operand:
    """One of a kind's own operands, which come before those of its expression.

    name: its name in the kind's documentation.
    layout: a letter for each dimension; equal letters of one node are equal sizes; "": any shape.
    dtypes: the allowed element types; empty: any.
    is_constant: it has to be a constant.
    is_in_arena: the C reads it from the arena, so that a constant is copied there first.
    is_given: whether a node with these attributes has it.
    """

    name: str
    layout: str = ""
    dtypes: tuple[DType, ...] = ()
    is_constant: bool = False
    is_in_arena: bool = False
    is_given: Callable[[Attributes], bool] = lambda *_: True


@frozen
class Specification:
    """The properties of every node of a kind.

    attributes: the class of its attributes.
    operands: its own operands, in order; an expression may read these and further ones.
    takes_more: it has any number of further operands, though no expression.
    has_one_output: it has exactly one output.
    layout: the layout of the (first) output.
    agree: checks that operands, output and attributes match, beyond equal letters of layouts; it raises AssertionError.
        It is called after all other checks.
    channels: the input channels on which its output channels, the last dimension, depend.
    row_wise: how it is computed a few rows at a time; None: not possible.
    """

    attributes: type[Attributes]
    operands: tuple[Operand, ...] = ()
    takes_more: bool = False
    has_one_output: bool = True
    layout: str = ""
    agree: Callable[[Node, Graph], None] = lambda *_: None
    channels: Callable[[Node, Graph], Channels] = lambda *_: Channels.MIXED
    row_wise: RowWise | None = None

    def fixed_operands(self, node: Node) -> tuple[Operand, ...]:
        """Return a node's own operands, which come before those of its expression."""
        return tuple(operand for operand in self.operands if operand.is_given(node.attrs))

    def check(self, node: Node, graph: Graph) -> None:
        """Check a node against the specification.

        Raises:
            AssertionError: it does not meet it; a bug in the pass that made it.
        """
        where, attrs, expected = f"{node.op} {node.name}", node.attrs, self.attributes
        assert type(attrs) is expected, f"{where} has {type(attrs).__name__}; expected {expected.__name__}"
        args = self.fixed_operands(node)
        assert len(node.inputs) >= len(args), f"{where} has {len(node.inputs)} inputs; expected {len(args)}"
        has_more = self.takes_more or isinstance(attrs, Computation)
        assert has_more or len(node.inputs) == len(args), f"{where} has {len(node.inputs)} inputs; expected {len(args)}"
        count = len(node.outputs)
        assert count == 1 or not self.has_one_output, f"{where} has {count} outputs; expected 1"
        if isinstance(attrs, Computation):
            check_expression(node, graph, attrs.expr)
        sizes: dict[str, int] = {}
        for operand, value in zip(args, node.inputs, strict=False):
            kind, label = graph.types[value], f"{operand.name} of {where}"
            assert not operand.is_constant or value in graph.constants, f"{label} is not a constant"
            assert not operand.dtypes or kind.dtype in operand.dtypes, f"{label} is {kind}"
            _check_layout(label, operand.layout, kind.shape, sizes)
        _check_layout(f"the output of {where}", self.layout, graph.types[node.outputs[0]].shape, sizes)
        self.agree(node, graph)


def _check_layout(label: str, layout: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    for letter, size in zip_longest(layout, shape) if layout else ():
        assert letter and size is not None, f"{label} is {list(shape)}; expected {layout}"
        assert sizes.setdefault(letter, size) == size, f"{label} has {letter} = {size}; expected {sizes[letter]}"
