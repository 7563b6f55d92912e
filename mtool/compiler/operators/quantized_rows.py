"""QuantisedRows: float activations become integers by their own range, a row of the first dimension at a time.

Products with int8 weights are sums of integers then. The arithmetic is that of LiteRT's hybrid operators
(tensor_utils.h: SymmetricQuantizeFloats, AsymmetricQuantizeFloats). Outputs are the steps less their zero point, int16,
and the scale of each row, float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedRows(Attributes):
    """around_zero: the range is as far below 0 as above it (1), or from the least number to the largest (0)."""

    around_zero: int


@dataclass(frozen=True, slots=True)
class QuantisedRowsValues(Values):
    """So many rows of `count` numbers."""

    rows: int
    count: int
    around_zero: bool


def _lower(ctx: Lowering, node: Node) -> None:
    steps, scale = node.outputs
    rows, *others = ctx.types[node.inputs[0]].shape
    around_zero = bool(QuantisedRows.of(node).around_zero)
    values = QuantisedRowsValues(rows, math.prod(others), around_zero)
    outputs = {"steps": steps, "scale": scale}
    template_node(ctx, node, "quantised_rows", {"x": node.inputs[0]}, outputs, values, headers=("mt_dynamic.h",))
    ctx.limits[steps] = (-127, 127) if around_zero else (-255, 255)


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    shape = inputs[0].shape
    return TensorType(DType.INT16, shape), TensorType(DType.FLOAT32, (shape[0], *(1 for _ in shape[1:])))


OWN: dict[str, OwnOperator] = {"QuantisedRows": OwnOperator(Operator(_lower, QuantisedRows), _outputs)}
