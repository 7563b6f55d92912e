"""NonMaxSuppression 11, Det 22, and the decoders of detectors and poses.

The output's shape has a row for each selected box; unused rows are -1.
"""

import math
from collections.abc import Sequence

import numpy as np

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.scalar import literal
from mtool.compiler.operators.lowering import Lowering, accumulator, by_template, template_node
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator, case
from mtool.compiler.operators.ordering import Counting, counted
from mtool.compiler.operators.problems import OWN


class NonMaxSuppression(Counting):
    """center_point_box: boxes are corners (0) or a centre, width and height (1)."""

    center_point_box: int = 0


def _non_max_suppression(ctx: Lowering, node: Node) -> None:
    boxes, scores, *limits = [*node.inputs, "", "", ""][:5]
    batches, classes, count = ctx.types[scores].shape
    inputs = {"boxes": boxes, "scores": scores}
    inputs |= {name: value for name, value in zip(("limit", "iou", "least"), limits, strict=True) if value}
    rows = ctx.types[node.outputs[0]].shape[0]
    values = {
        "batches": batches, "classes": classes, "count": count, "rows": rows, "operands": tuple(inputs),
        "center": NonMaxSuppression.of(node).center_point_box,
    }  # fmt: skip
    (output,), count_output = counted(node)
    outputs = {"output": output, **count_output}
    template_node(ctx, node, "non_max_suppression", inputs, outputs, values, scratch=count, scratch_type="uint8_t")


def _det(ctx: Lowering, node: Node) -> dict[str, object]:
    """Det, by elimination with row exchanges in a copy."""
    kind = ctx.types[node.inputs[0]]
    fabs = "fabs" if kind.dtype is DType.FLOAT64 else "fabsf"
    return {"size": kind.shape[-1], "count": math.prod(kind.shape[:-2]), "fabs": fabs}


def _det_scratch(ctx: Lowering, node: Node) -> tuple[int, str]:
    kind = ctx.types[node.inputs[0]]
    dtype = accumulator(kind.dtype)
    return kind.shape[-1] ** 2 * dtype.size, dtype.c


def _fits_scores(node: OnnxNode) -> bool:
    boxes, scores = node.ins[0], node.ins[1]
    whole = len(boxes) == len(scores) == 3 and boxes[2] == 4
    return whole and boxes[0] == scores[0] and boxes[1] == scores[2]


def _most_selected(node: OnnxNode, most: int | None) -> list[tuple[TensorType, int | None]]:
    if most is None:
        (batches, classes, boxes), limit = node.kind(1).shape, node.state.constants.get(node.input(2))
        most = batches * classes * (boxes if limit is None else min(max(int(limit.item()), 0), boxes))
    return [(TensorType(DType.INT64, (most, 3)), 0)]


# TFLite_Detection_PostProcess: decode the boxes of a detector's anchors, without those that overlap better ones.
#
# Boxes are decoded one by one when needed, so that only the selected ones are in memory. Behind the last detection,
# where TFLite leaves the outputs unchanged, there is 0. Source: TFLite's detection_postprocess.cc.
class DetectionPostProcess(Attributes):
    """The options of the operator.

    grids: scale and zero point of boxes, scores and anchors, in this order; a scale of 0: they are floats.
    scales: the divisors of y, x, height and width of a box.
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
        """The largest number of detections, where a box counts once for each of its classes."""
        return self.max_detections * self.max_classes_per_detection


def _number(value: float) -> str:
    return literal(value, DType.FLOAT32).c


def _postprocess(ctx: Lowering, node: Node) -> None:
    boxes, scores, anchors = node.inputs
    attrs = DetectionPostProcess.of(node)
    _, count, columns = ctx.types[scores].shape
    regular = bool(attrs.use_regular_nms)
    most = min(attrs.detections_per_class, attrs.max_detections) if regular else attrs.max_detections
    pairs = [attrs.grids[first : first + 2] for first in (0, 2, 4)]
    index = DType.UINT16 if count <= 2**16 else DType.INT32
    values = {
        "count": count, "codes": ctx.types[boxes].shape[2], "columns": columns,
        "background": columns - attrs.num_classes, "classes": attrs.num_classes, "regular": regular, "most": most,
        "each": min(attrs.max_classes_per_detection, attrs.num_classes), "slots": attrs.max_classes_per_detection,
        "rows": attrs.max_detections if regular else attrs.rows, "index": index.c, "heap_at": 4 * most,
        "scales": tuple(repr(float(np.float32(scale))) for scale in attrs.scales),
        "grids": tuple((_number(scale), _number(point)) if scale else None for scale, point in pairs),
        "threshold": _number(attrs.nms_score_threshold), "overlap": _number(attrs.nms_iou_threshold),
    }  # fmt: skip
    best = 0 if regular else count * ctx.types[scores].dtype.size
    heap = -(-count * index.size // 4) * 4
    outputs = ("detection_boxes", "detection_classes", "detection_scores", "detections")
    template_node(
        ctx, node, "detection_postprocess", {"boxes": boxes, "scores": scores, "anchors": anchors},
        dict(zip(outputs, node.outputs, strict=True)), values,
        scratch=16 * most + heap + best, scratch_type="float", math=True,
    )  # fmt: skip


def _postprocess_outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, DetectionPostProcess)
    shapes = ((1, attrs.rows, 4), (1, attrs.rows), (1, attrs.rows), (1,))
    return [TensorType(DType.FLOAT32, shape) for shape in shapes]


def _suppressed(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=3)
    boxes = draw.numbers().uniform(0, 1, (value.shape[0], value.shape[2], 4))
    limits = (draw.constant(2, np.int64), draw.constant(0.4, np.float32), draw.constant(-0.5, np.float32))
    return Case([draw.constant(boxes, np.float32), value.name, *limits], {"center_point_box": draw.rng.randint(0, 1)})


# PosenetDecoder: people and their keypoints, from the feature maps that a network computes from an image.
#
# A keypoint whose score is the greatest near it begins a pose, the best first. From there the others are found along
# the edges of a skeleton, which is a tree, by the offsets that the maps hold. Source: libcoral's posenet_decoder.cc
# (Apache-2.0), after Papandreou et al., PersonLab, 2018. Keypoints of equal scores have the order of GCC's
# std::priority_queue, as maps of 8 bits have many. Behind the last pose there is 0, where libcoral leaves what was
# there.

KEYPOINTS = 17
MASK = 33
"""Height and width of the masks of people, and of the map that they are made of."""
EDGES = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15), (0, 6), (6, 8), (8, 10),
    (6, 12), (12, 14), (14, 16),
)  # fmt: skip
"""The skeleton from the nose outwards: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles, left first."""


class PosenetDecoder(Attributes):
    """The options of the operator.

    stride: pixels per position of a map.
    threshold, least: the smallest score, as a probability and as its log-odds.
    squared_radius: the squared distance within which two keypoints are the same, in positions of a map.
    grids: scale and zero point of each input, in order; the zero point of a float is 0.
    """

    max_detections: int
    stride: int
    threshold: float
    least: float
    squared_radius: float
    grids: tuple[float, ...]


def _lower(ctx: Lowering, node: Node) -> None:
    attrs = PosenetDecoder.of(node)
    kinds = [ctx.types[value] for value in node.inputs]
    _, height, width, _ = kinds[0].shape
    candidates = height * width * KEYPOINTS
    index = DType.UINT16 if candidates <= 2**16 else DType.INT32
    grids = tuple(
        (_number(attrs.grids[2 * n]), "" if kind.dtype.is_float else _number(attrs.grids[2 * n + 1]))
        for n, kind in enumerate(kinds)
    )
    values = {
        "height": height, "width": width, "most": attrs.max_detections, "keypoints": KEYPOINTS,
        "parents": tuple(parent for parent, _ in EDGES), "children": tuple(child for _, child in EDGES),
        "stride": attrs.stride, "index": index.c, "grids": grids, "threshold": _number(attrs.threshold),
        "least": _number(attrs.least), "radius": _number(attrs.squared_radius),
        "mask": MASK if len(kinds) == 4 else 0,
    }  # fmt: skip
    inputs = ("heatmaps", "short_offsets", "mid_offsets", "long_offsets")[: len(kinds)]
    outputs = ("pose_keypoints", "keypoint_scores", "pose_scores", "poses", "masks")[: len(node.outputs)]
    pose_bytes = attrs.max_detections * (3 * KEYPOINTS + 3) * 4
    template_node(
        ctx, node, "posenet_decoder", dict(zip(inputs, node.inputs, strict=True)),
        dict(zip(outputs, node.outputs, strict=True)), values,
        scratch=pose_bytes + -(-candidates * index.size // 4) * 4, scratch_type="float", math=True,
    )  # fmt: skip


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, PosenetDecoder)
    most = attrs.max_detections
    shapes = ((1, most, KEYPOINTS, 2), (1, most, KEYPOINTS), (1, most), (1,), (1, most, MASK, MASK))
    return [TensorType(DType.FLOAT32, shape) for shape in shapes[: len(inputs) + 1]]


_DET = by_template("det", "input", "output", _det, _det_scratch, math=True, wide=("input", "output"))
OPERATORS = (
    Operator(
        "NonMaxSuppression", cases=_suppressed, attributes=NonMaxSuppression, check_shapes=_fits_scores, sizes=(2,),
        is_declared=True, bound=_most_selected, lower=_non_max_suppression,
    ),
    Operator("Det", cases=case(rank=(2, 3), fits=lambda shape: shape[-1] == shape[-2]), lower=_DET),
    Operator(
        "DetectionPostProcess", domain=OWN, attributes=DetectionPostProcess, infer=_postprocess_outputs,
        lower=_postprocess,
    ),
    Operator("PosenetDecoder", domain=OWN, attributes=PosenetDecoder, infer=_outputs, lower=_lower),
)  # fmt: skip
