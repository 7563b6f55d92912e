"""Weighted sums, the common part of convolutions and dense layers: inputs times constant weights, plus a bias."""

from dataclasses import dataclass, replace

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.expression_check import accumulators
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.specification import Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum(WithEpilogue):
    """A kernel whose operands are its input, its weights (output channels first) and a bias for each channel.

    pad_value: what an integer input is where it is 0 in reality: its zero point.
    float_bias: the epilogue adds a float bias of the model's, which may be rounded to whole steps of the accumulator
        where the result is an integer (mtool.compiler.passes.fold_bias).
    macs: the multiply-accumulates of the model as given, if channels were removed since; None: those of its shapes.
    """

    pad_value: int = 0
    float_bias: bool = False
    macs: int | None = None

    def macs_of_rows(self, rows: int, of: int) -> int | None:
        """Return the part of `macs` that some of all rows have."""
        return None if self.macs is None else self.macs * rows // of


def as_computed(node: Node) -> Node:
    """Return a node whose multiply-accumulates are those of its shapes, whatever the model had."""
    attrs = node.attrs
    return replace(node, attrs=replace(attrs, macs=None)) if isinstance(attrs, WeightedSum) and attrs.macs else node


FACTORS = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""The element types of what is multiplied: floats by floats or int8 weights, integers by integers."""

SUMS = (DType.FLOAT32, DType.INT32, DType.INT64)
"""Those of the sums, and of what is added to them."""


def operands(layout: str, weights: str) -> tuple[Operand, Operand, Operand]:
    """Return the operands: an input and weights of these layouts, and a bias for each output channel."""
    return (
        Operand("input", layout, FACTORS, is_in_arena=True),
        Operand("weights", weights, FACTORS, is_constant=True),
        Operand("bias", weights[0], SUMS, is_constant=True),
    )


def check_types(node: Node, graph: Graph) -> None:
    """Check that a node multiplies and adds floats, or integers, and that its epilogue reads a sum of the bias's type.

    Floats may be multiplied by int8 weights.

    Raises:
        AssertionError: it does not; a bug of the pass that made it.
    """
    kinds = [graph.types[value] for value in node.inputs[:3]]
    mixed = ", ".join(map(str, kinds))
    activation, weight, added = (kind.dtype for kind in kinds)
    kept = activation.is_float and weight == DType.INT8  # each is made a float as it is read
    assert activation.is_float == added.is_float and (activation.is_float == weight.is_float or kept), (
        f"{node.op} {node.name} mixes floats and integers: {mixed}"
    )
    wanted, read = kinds[2].dtype, accumulators(WithEpilogue.of(node).epilogue)
    assert read <= {wanted}, f"{node.op} {node.name} has sums of {wanted.label}; its epilogue reads another type"


def is_widened(node: Node, graph: Graph) -> bool:
    """Whether a node multiplies floats by int8 weights."""
    kinds = [graph.types[value].dtype for value in node.inputs[:2]]
    return kinds[0].is_float and kinds[1] == DType.INT8
