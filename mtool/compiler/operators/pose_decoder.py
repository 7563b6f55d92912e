"""PosenetDecoder: people and their keypoints, of the maps that a network makes of an image.

A keypoint whose score is the greatest near it begins a pose, the best first. From there the others are found along the
edges of a skeleton, which is a tree, by the offsets that the maps hold. Source: libcoral's posenet_decoder.cc
(Apache-2.0), after Papandreou et al., PersonLab, 2018. Keypoints of equal scores have the order of GCC's
std::priority_queue, as maps of 8 bits have many. Behind the last pose there is 0, where libcoral leaves what was there.
"""

from collections.abc import Sequence

from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.scalar import literal
from mtool.compiler.operators.lowering import Lowering, template_node
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN

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

    stride: pixels from one place of a map to the next.
    threshold, least: of scores, as a probability and as the logarithm of its odds.
    squared_radius: within which two keypoints are the same, in places of a map.
    grids: scale and zero point of each input, one after the other; those of a float have no zero point.
    """

    max_detections: int
    stride: int
    threshold: float
    least: float
    squared_radius: float
    grids: tuple[float, ...]


def _number(value: float) -> str:
    return literal(value, DType.FLOAT32).c


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
    found = attrs.max_detections * (3 * KEYPOINTS + 3) * 4
    template_node(
        ctx, node, "posenet_decoder", dict(zip(inputs, node.inputs, strict=True)),
        dict(zip(outputs, node.outputs, strict=True)), values,
        scratch=found + -(-candidates * index.size // 4) * 4, scratch_type="float", math=True,
    )  # fmt: skip


def _outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, PosenetDecoder)
    most = attrs.max_detections
    shapes = ((1, most, KEYPOINTS, 2), (1, most, KEYPOINTS), (1, most), (1,), (1, most, MASK, MASK))
    return [TensorType(DType.FLOAT32, shape) for shape in shapes[: len(inputs) + 1]]


OPERATORS = (Operator("PosenetDecoder", domain=OWN, attributes=PosenetDecoder, infer=_outputs, lower=_lower),)
