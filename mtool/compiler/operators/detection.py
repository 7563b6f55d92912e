"""NonMaxSuppression 11 and Det 22.

As many boxes are selected as the output's shape has rows; rows that are not needed are -1.
"""

import math
from dataclasses import dataclass

from mtool.compiler.ir import DType, Node
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.ordering import Counting, counted
from mtool.compiler.operators.templates import narrowed, template_node, wide_output, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMaxSuppression(Counting):
    """center_point_box: boxes are corners (0) or a centre, width and height (1)."""

    center_point_box: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMaxSuppressionValues(Values):
    """rows: the most boxes that may be selected; given: the C names of the inputs; center: ONNX's center_point_box."""

    batches: int
    classes: int
    count: int
    rows: int
    operands: tuple[str, ...]
    center: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DetValues(Values):
    """Square matrices of `size`; fabs: the C function of the element type."""

    size: int
    count: int
    fabs: str


def _non_max_suppression(ctx: Lowering, node: Node) -> None:
    boxes, scores, *limits = [*node.inputs, "", "", ""][:5]
    batches, classes, count = ctx.types[scores].shape
    inputs = {"boxes": boxes, "scores": scores}
    inputs |= {name: value for name, value in zip(("limit", "iou", "least"), limits, strict=True) if value}
    rows = ctx.types[node.outputs[0]].shape[0]
    values = NonMaxSuppressionValues(
        batches=batches, classes=classes, count=count, rows=rows, operands=tuple(inputs),
        center=NonMaxSuppression.of(node).center_point_box,
    )  # fmt: skip
    (output,), found = counted(node)
    outputs = {"output": output, **found}
    template_node(ctx, node, "non_max_suppression", inputs, outputs, values, scratch=count, scratch_type="uint8_t")


def _det(ctx: Lowering, node: Node) -> None:
    """Det, by elimination with row exchanges in a copy."""
    shape = ctx.types[node.inputs[0]].shape
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    size, dtype = shape[-1], ctx.types[source].dtype
    fabs = "fabs" if dtype is DType.FLOAT64 else "fabsf"
    values = DetValues(size=size, count=math.prod(shape[:-2]), fabs=fabs)
    scratch = size * size * dtype.size
    inputs, outputs = {"input": source}, {"output": made}
    template_node(ctx, node, "det", inputs, outputs, values, scratch=scratch, scratch_type=dtype.c, math=True)
    narrowed(ctx, node, [(made, node.outputs[0])])


LOWERINGS: dict[str, Operator] = {
    "NonMaxSuppression": Operator(_non_max_suppression, NonMaxSuppression),
    "Det": Operator(_det),
}
