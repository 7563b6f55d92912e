"""TFLite_Detection_PostProcess: the boxes that a detector's anchors stand for, less those that overlap better ones.

Boxes are decoded one by one, as their turn comes, so that none but the selected ones are in memory. Where TFLite leaves
an output as it finds it, behind the last detection, there is 0. Source: TFLite's detection_postprocess.cc.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.scalar import literal
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionPostProcess(Attributes):
    """The options of the operator.

    grids: scale and zero point of boxes, scores and anchors, one after the other; a scale of 0: they are floats.
    scales: what y, x, height and width of a box are divided by.
    """

    max_detections: int
    max_classes_per_detection: int
    detections_per_class: int
    use_regular_nms: int
    num_classes: int
    nms_score_threshold: float
    nms_iou_threshold: float
    scales: tuple[float, ...]
    grids: tuple[float, ...]

    @property
    def rows(self) -> int:
        """How many detections there are at most, a box counting once for each of its classes."""
        return self.max_detections * self.max_classes_per_detection


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionPostProcessValues(Values):
    """The template's variables.

    count: boxes; codes: numbers of each; columns: scores of each; background: how many of them are of no class.
    most: boxes that are selected, of each class if `regular`; each, slots: classes of a box, and room for them.
    rows: room for detections; index: the C type of a box's number; heap_at: where that is in the scratch, in floats.
    scales, grids, threshold, overlap: C literals.
    """

    count: int
    codes: int
    columns: int
    background: int
    classes: int
    regular: bool
    most: int
    each: int
    slots: int
    rows: int
    index: str
    heap_at: int
    scales: tuple[str, ...]
    grids: tuple[tuple[str, str] | None, ...]
    threshold: str
    overlap: str


def _number(value: float) -> str:
    return literal(value, DType.FLOAT32).c


def _lower(ctx: Lowering, node: Node) -> None:
    boxes, scores, anchors = node.inputs
    attrs = DetectionPostProcess.of(node)
    _, count, columns = ctx.types[scores].shape
    regular = bool(attrs.use_regular_nms)
    most = min(attrs.detections_per_class, attrs.max_detections) if regular else attrs.max_detections
    pairs = [attrs.grids[first : first + 2] for first in (0, 2, 4)]
    index = DType.UINT16 if count <= 2**16 else DType.INT32
    values = DetectionPostProcessValues(
        count=count,
        codes=ctx.types[boxes].shape[2],
        columns=columns,
        background=columns - attrs.num_classes,
        classes=attrs.num_classes,
        regular=regular,
        most=most,
        each=min(attrs.max_classes_per_detection, attrs.num_classes),
        slots=attrs.max_classes_per_detection,
        rows=attrs.max_detections if regular else attrs.rows,
        index=index.c,
        heap_at=4 * most,
        scales=tuple(repr(float(np.float32(scale))) for scale in attrs.scales),
        grids=tuple((_number(scale), _number(point)) if scale else None for scale, point in pairs),
        threshold=_number(attrs.nms_score_threshold),
        overlap=_number(attrs.nms_iou_threshold),
    )
    best = 0 if regular else count * ctx.types[scores].dtype.size
    heap = -(-count * index.size // 4) * 4
    outputs = ("detection_boxes", "detection_classes", "detection_scores", "detections")
    template_node(
        ctx, node, "detection_postprocess", {"boxes": boxes, "scores": scores, "anchors": anchors},
        dict(zip(outputs, node.outputs, strict=True)), values,
        scratch=16 * most + heap + best, scratch_type="float", math=True,
    )  # fmt: skip


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, DetectionPostProcess)
    shapes = ((1, attrs.rows, 4), (1, attrs.rows), (1, attrs.rows), (1,))
    return [TensorType(DType.FLOAT32, shape) for shape in shapes]


OWN: dict[str, OwnOperator] = {"DetectionPostProcess": OwnOperator(Operator(_lower, DetectionPostProcess), _outputs)}
