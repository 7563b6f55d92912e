"""NonMaxSuppression 11 and Det 22.

As many boxes are selected as the output's shape has rows; rows that are not needed are -1.
"""

import math
from dataclasses import dataclass
from typing import Any

from mtool.ir import DType, Node
from mtool.lowerings.lowering import Lowering, Operator
from mtool.lowerings.ordering import Counting, counted
from mtool.lowerings.templates import narrowed, template_node, wide_output, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class NonMaxSuppression(Counting):
    """center_point_box: boxes are corners (0) or a centre, width and height (1)."""

    center_point_box: int = 0


def _non_max_suppression(ctx: Lowering, node: Node) -> None:
    boxes, scores, *limits = [*node.inputs, "", "", ""][:5]
    batches, classes, count = ctx.types[scores].shape
    inputs = {"boxes": boxes, "scores": scores}
    inputs |= {name: value for name, value in zip(("limit", "iou", "least"), limits, strict=True) if value}
    rows = ctx.types[node.outputs[0]].shape[0]
    values: dict[str, Any] = {
        "batches": batches, "classes": classes, "count": count, "rows": rows, "given": tuple(inputs),
        "center": NonMaxSuppression.of(node).center_point_box, "scratch_type": "uint8_t",
    }  # fmt: skip
    (output,), found = counted(node)
    template_node(ctx, node, "non_max_suppression", inputs, {"output": output, **found}, scratch=count, **values)


def _det(ctx: Lowering, node: Node) -> None:
    """Det, by elimination with row exchanges in a copy."""
    shape = ctx.types[node.inputs[0]].shape
    source, made = widened(ctx, node, node.inputs[0]), wide_output(ctx, node.outputs[0])
    size, dtype = shape[-1], ctx.types[source].dtype
    values: dict[str, Any] = {"size": size, "count": math.prod(shape[:-2]), "scratch_type": dtype.c}
    fabs = "fabs" if dtype is DType.FLOAT64 else "fabsf"
    scratch = size * size * dtype.size
    template_node(
        ctx, node, "det", {"input": source}, {"output": made}, scratch=scratch, math=True, fabs=fabs, **values
    )
    narrowed(ctx, node, [(made, node.outputs[0])])


LOWERINGS: dict[str, Operator] = {
    "NonMaxSuppression": Operator(_non_max_suppression, NonMaxSuppression),
    "Det": Operator(_det),
}
