"""PosenetDecoderOp, at the end of Coral's networks that find people and the places of their joints."""

import math
from dataclasses import replace

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.custom_options import Numbers, numbers_of
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.operators.pose_decoder import KEYPOINTS, MASK

MOST_POSES = 2**10
_CHANNELS = (KEYPOINTS, 2 * KEYPOINTS, 4 * (KEYPOINTS - 1), 2 * KEYPOINTS)
"""Of the inputs: scores; offsets to the nearest keypoint; to its neighbours, there and back; from all of a person."""


def _between(options: Numbers, name: str, least: float, most: float) -> float:
    found = options.real(name)
    if not least <= found <= most:
        raise Unsupported(f"its option {name!r} is {found:g}; expected {least:g} to {most:g}")
    return found


def _grid(tensor: Tensor, unit: float) -> tuple[float, float]:
    """Return scale and zero point of a tensor whose numbers are multiplied by `unit`, in float32 as libcoral has them.

    Raises:
        Unsupported: it is of another type.
    """
    if tensor.dtype == np.float32:
        return unit, 0.0
    if tensor.dtype != np.uint8 or tensor.scale.size != 1:
        raise Unsupported(f"its input {tensor.name!r} is {tensor.dtype} with {tensor.scale.size} scales")
    scale = float(np.float32(tensor.scale[0]) * np.float32(unit))
    if scale < np.finfo(np.float32).tiny:
        raise Unsupported(f"the scale of its input {tensor.name!r} is {scale:g}")
    return scale, float(tensor.zero_point[0])


def _check_shapes(t: Translation) -> None:
    shapes = [t.shape(index, 4) for index in range(len(t.op.inputs))]
    sizes = [shapes[0][:3]] * 3 + [(1, MASK, MASK)]
    for shape, size, channels in zip(shapes, sizes, _CHANNELS, strict=False):
        if shape[0] != 1 or 0 in shape or shape != (*size, channels):
            raise Unsupported(f"its inputs are {', '.join(str(list(one)) for one in shapes)}")


def _posenet_decoder(t: Translation) -> None:
    """PosenetDecoderOp: its outputs have the shapes that its options say, whatever the file says."""
    counts = (len(t.op.inputs), len(t.op.outputs))
    if counts not in ((3, 4), (4, 5)):
        raise Unsupported(f"it has {counts[0]} inputs and {counts[1]} outputs; expected 3 and 4, or 4 and 5")
    _check_shapes(t)
    options = numbers_of(t.op)
    most, stride = (int(_between(options, name, 1, MOST_POSES)) for name in ("max_detections", "stride"))
    threshold = np.float32(_between(options, "score_threshold", 0, 1))
    odds = 1 / (float(threshold) + 1e-6) - 1
    if odds <= 0:
        raise Unsupported(f"its option 'score_threshold' is {threshold}, which no score reaches")
    radius = np.float32(_between(options, "nms_radius", 0, 1e6)) / np.float32(stride)
    unit = float(np.float32(1 / stride))
    made = t.several(
        "PosenetDecoder",
        [t.stored(index) for index in range(counts[0])],
        counts[1],
        domain=OWN,
        max_detections=most,
        stride=stride,
        threshold=float(threshold),
        least=-math.log(odds),
        squared_radius=float(radius * radius),
        grids=[number for index in range(counts[0]) for number in _grid(t.tensor(index), unit if index else 1.0)],
    )
    shapes = ((1, most, KEYPOINTS, 2), (1, most, KEYPOINTS), (1, most), (1,), (1, most, MASK, MASK))
    for index, value in enumerate(made):
        if t.result(index).dtype != np.float32:
            raise Unsupported(f"its output {index} is {t.result(index).dtype}; expected float32")
        number = t.op.outputs[index]
        t.tensors[number] = replace(t.tensors[number], shape=shapes[index])
        t.put(value, index)


TRANSLATIONS = {"CUSTOM PosenetDecoderOp": _posenet_decoder}
