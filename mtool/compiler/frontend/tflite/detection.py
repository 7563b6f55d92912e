"""TFLite_Detection_PostProcess, at the end of object detectors."""

import math
from dataclasses import replace

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.custom_options import Numbers, numbers_of
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.translation import Translation

MOST_DETECTIONS = 2**15
NUM_DETECTIONS_PER_CLASS = 100  # where the options do not say
_EIGHT_BITS = (np.dtype(np.int8), np.dtype(np.uint8))


def _count(options: Numbers, name: str, most: int, default: int | None = None) -> int:
    found = options.whole(name, default)
    if not 1 <= found <= most:
        raise Unsupported(f"its option {name!r} is {found}; expected 1 to {most}")
    return found


def _positive(options: Numbers, name: str) -> float:
    found = options.real(name)
    if not 0 < found < math.inf:
        raise Unsupported(f"its option {name!r} is {found}; expected a positive number")
    return found


def _grid(tensor: Tensor) -> tuple[float, float]:
    """Return scale and zero point of a tensor; floats have a scale of 0.

    Raises:
        Unsupported: it is of another type.
    """
    if tensor.dtype == np.float32:
        return 0.0, 0.0
    if tensor.dtype not in _EIGHT_BITS or tensor.scale.size != 1:
        raise Unsupported(f"its input {tensor.name!r} is {tensor.dtype} with {tensor.scale.size} scales")
    return float(tensor.scale[0]), float(tensor.zero_point[0])


def _check_shapes(t: Translation, classes: int) -> None:
    boxes, scores, anchors = t.shape(0, 3), t.shape(1, 3), t.shape(2, 2)
    count = boxes[1]
    if boxes[0] != 1 or scores[:2] != (1, count) or anchors != (count, 4) or boxes[2] < 4 or not count:
        raise Unsupported(f"its boxes are {list(boxes)}, its scores {list(scores)}, its anchors {list(anchors)}")
    if scores[2] - classes not in (0, 1):
        raise Unsupported(f"its scores are {list(scores)} for {classes} classes")


def _detection_postprocess(t: Translation) -> None:
    """TFLite_Detection_PostProcess: its outputs have the shapes that its options say, whatever the file says."""
    if len(t.op.inputs) != 3 or len(t.op.outputs) != 4:
        raise Unsupported(f"it has {len(t.op.inputs)} inputs and {len(t.op.outputs)} outputs; expected 3 and 4")
    options = numbers_of(t.op)
    classes = _count(options, "num_classes", 2**15)
    most = _count(options, "max_detections", MOST_DETECTIONS)
    each = _count(options, "max_classes_per_detection", MOST_DETECTIONS // most)
    _check_shapes(t, classes)
    overlap, least = options.real("nms_iou_threshold"), options.real("nms_score_threshold")
    if not 0 < overlap <= 1 or math.isnan(least):
        raise Unsupported(f"its thresholds are {overlap} of overlap and {least} of score")
    grids = [number for index in range(3) for number in _grid(t.tensor(index))]
    made = t.several(
        "DetectionPostProcess",
        [t.stored(index) for index in range(3)],
        4,
        domain=OWN,
        max_detections=most,
        max_classes_per_detection=each,
        detections_per_class=_count(options, "detections_per_class", 2**31 - 1, NUM_DETECTIONS_PER_CLASS),
        use_regular_nms=options.whole("use_regular_nms", 0),
        num_classes=classes,
        nms_score_threshold=max(least, -float(np.finfo(np.float32).max)),
        nms_iou_threshold=overlap,
        scales=[_positive(options, f"{name}_scale") for name in ("y", "x", "h", "w")],
        grids=grids,
    )
    shapes = ((1, most * each, 4), (1, most * each), (1, most * each), (1,))
    for index, (value, shape) in enumerate(zip(made, shapes, strict=True)):
        if t.result(index).dtype != np.float32:
            raise Unsupported(f"its output {index} is {t.result(index).dtype}; expected float32")
        number = t.op.outputs[index]
        t.tensors[number] = replace(t.tensors[number], shape=shape)
        t.put(value, index)


TRANSLATIONS = {"CUSTOM TFLite_Detection_PostProcess": _detection_postprocess}
