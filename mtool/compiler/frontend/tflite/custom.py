"""Custom operators: detection, poses, MediaPipe's and Ethos-U's, and the reasons why others can't be compiled."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from flatbuffers import flexbuffers

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.base.frozen import frozen
from mtool.compiler.frontend.tflite.products import weights
from mtool.compiler.frontend.tflite.schema import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, Translation
from mtool.compiler.ir import DType
from mtool.compiler.operators.detection import KEYPOINTS, MASK
from mtool.compiler.operators.external import kind_number
from mtool.compiler.operators.problems import Unsupported

_COMPILED = {
    "edgetpu-custom-op": "it runs only on a Coral Edge TPU; give the model from before edgetpu_compiler",
    "ethos-u": "it runs only on an Arm Ethos-U; give the model from before Vela",
}


def reason(kind: str) -> str:
    """Return the reason why an operator can't be translated; `kind` is `Operator.kind`."""
    if kind == "STABLEHLO_COMPOSITE":
        return "its decomposition is missing in the file, or its numbers of inputs or outputs differ"
    custom = kind.removeprefix("CUSTOM ")
    if custom == kind:
        return "not supported"
    if custom in _COMPILED:
        return _COMPILED[custom]
    if custom.startswith("Flex"):
        return "it is a TensorFlow operator; convert the model with only TFLITE_BUILTINS in target_spec.supported_ops"
    return "it is an unknown custom operator"


MAX_BYTES = 64 * 1024
MAX_NUMBERS = 64
_BROKEN = (Exception, RecursionError)
"""The exceptions on reading damaged bytes: the library checks nothing, apart from a few assertions."""


@frozen
class Numbers:
    """A custom operator's numeric options by name."""

    by_name: Mapping[str, int | float | bool]

    def whole(self, name: str, default: int | None = None, *, least: int = -(2**31), most: int = 2**32 - 1) -> int:
        """Return an option that is a 32-bit integer from `least` to `most`.

        Raises:
            Unsupported: it is not given and has no default, or is out of range.
        """
        value = self.by_name.get(name, default)
        if value is None:
            raise Unsupported(f"its option {name!r} is not given")
        if not float(value).is_integer() or not -(2**31) <= value < 2**32:
            raise Unsupported(f"its option {name!r} is {value}; expected a 32-bit integer")
        if not least <= value <= most:
            raise Unsupported(f"its option {name!r} is {int(value)}; expected {least} to {most}")
        return int(value)

    def real(self, name: str) -> float:
        """Return an option that is a number.

        Raises:
            Unsupported: it is not given.
        """
        if name not in self.by_name:
            raise Unsupported(f"its option {name!r} is not given")
        return float(self.by_name[name])


def numbers_of(operator: Operator) -> Numbers:
    """Return the numeric options of a custom operator.

    Raises:
        ModelError: the options are damaged, or not a flexbuffer map.
    """
    if not operator.custom:
        return Numbers({})
    try:
        return Numbers(_read(operator.custom))
    except _BROKEN as error:
        raise ModelError(
            f"the options of {operator.name} are damaged",
            details=[f"{type(error).__name__}: {error}", f"{len(operator.custom):,} bytes"],
            hint="export the model again, or compare its size with the original file's",
        ) from None


def _read(data: bytes) -> dict[str, int | float | bool]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes")
    root = flexbuffers.GetRoot(data)
    if not root.IsMap:
        raise ValueError("expected a flexbuffer map")
    entries = root.AsMap
    if len(entries) > MAX_NUMBERS:
        raise ValueError(f"they have {plural.count(len(entries), 'entry')}")
    numbers: dict[str, int | float | bool] = {}
    for index in range(len(entries)):
        key, value = entries.Keys[index], entries.Values[index]
        kind = next((kind for kind in ("Bool", "Int", "Float") if getattr(value, f"Is{kind}")), None)
        if kind is not None:
            numbers[key.AsKey] = getattr(value, f"As{kind}")
    return numbers


MAX_DETECTIONS = 2**15
NUM_DETECTIONS_PER_CLASS = 100  # the default
_DETECTION_TYPES = (np.dtype(np.int8), np.dtype(np.uint8))


def _positive(options: Numbers, name: str) -> float:
    value = options.real(name)
    if not 0 < value < math.inf:
        raise Unsupported(f"its option {name!r} is {value}; expected a positive number")
    return value


def _detection_grid(tensor: Tensor) -> tuple[float, float]:
    """Return scale and zero point of a tensor; floats have a scale of 0.

    Raises:
        Unsupported: its type is not supported.
    """
    if tensor.dtype == np.float32:
        return 0.0, 0.0
    if tensor.dtype not in _DETECTION_TYPES or tensor.scale.size != 1:
        raise Unsupported(
            f"its input {tensor.name!r} is {tensor.dtype} with {plural.count(tensor.scale.size, 'scale')}"
        )
    return float(tensor.scale[0]), float(tensor.zero_point[0])


def _check_detection_shapes(t: Translation, classes: int) -> None:
    boxes, scores, anchors = t.shape(0, 3), t.shape(1, 3), t.shape(2, 2)
    count = boxes[1]
    if boxes[0] != 1 or scores[:2] != (1, count) or anchors != (count, 4) or boxes[2] < 4 or not count:
        raise Unsupported(f"its boxes {list(boxes)}, scores {list(scores)} and anchors {list(anchors)} do not match")
    if scores[2] - classes not in (0, 1):
        raise Unsupported(f"its scores {list(scores)} do not fit {classes} classes")


def detection_postprocess(t: Translation) -> None:
    """TFLite_Detection_PostProcess: the options, not the file's tensors, determine the shapes of the outputs."""
    t.check_counts(3, 4)
    options = numbers_of(t.op)
    classes = options.whole("num_classes", least=1, most=2**15)
    most = options.whole("max_detections", least=1, most=MAX_DETECTIONS)
    per_box = options.whole("max_classes_per_detection", least=1, most=MAX_DETECTIONS // most)
    _check_detection_shapes(t, classes)
    overlap, least = options.real("nms_iou_threshold"), options.real("nms_score_threshold")
    if not 0 < overlap <= 1 or math.isnan(least):
        raise Unsupported(f"its overlap threshold {overlap} or its score threshold {least} is out of range")
    grids = [number for index in range(3) for number in _detection_grid(t.tensor(index))]
    outputs = t.several(
        "DetectionPostProcess", 4, *[t.stored(index) for index in range(3)],
        max_detections=most, max_classes_per_detection=per_box, num_classes=classes, grids=grids,
        detections_per_class=options.whole("detections_per_class", NUM_DETECTIONS_PER_CLASS, least=1, most=2**31 - 1),
        use_regular_nms=options.whole("use_regular_nms", 0),
        nms_score_threshold=max(least, -float(np.finfo(np.float32).max)), nms_iou_threshold=overlap,
        scales=[_positive(options, f"{name}_scale") for name in ("y", "x", "h", "w")],
    )  # fmt: skip
    _put_shaped(t, outputs, [(1, most * per_box, 4), (1, most * per_box), (1, most * per_box), (1,)])


def _put_shaped(t: Translation, values: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """Set the outputs to float32 values, with these shapes."""
    for index, (value, shape) in enumerate(zip(values, shapes, strict=False)):
        if t.result(index).dtype != np.float32:
            raise Unsupported(f"its output {index} is {t.result(index).dtype}; expected float32")
        number = t.op.outputs[index]
        t.tensors[number] = replace(t.tensors[number], shape=shape)
        t.put(value, index)


MAX_POSES = 2**10
_CHANNELS = (KEYPOINTS, 2 * KEYPOINTS, 4 * (KEYPOINTS - 1), 2 * KEYPOINTS)
"""Factors of the inputs: scores; offsets to the nearest keypoint; to its neighbours, both ways; over a person."""


def _between(options: Numbers, name: str, least: float, most: float) -> float:
    value = options.real(name)
    if not least <= value <= most:
        raise Unsupported(f"its option {name!r} is {value:g}; expected {least:g} to {most:g}")
    return value


def _pose_grid(tensor: Tensor, unit: float) -> tuple[float, float]:
    """Return scale and zero point of a tensor whose numbers are multiplied by `unit`, in float32 as in libcoral.

    Raises:
        Unsupported: its type is not supported.
    """
    if tensor.dtype == np.float32:
        return unit, 0.0
    if tensor.dtype != np.uint8 or tensor.scale.size != 1:
        raise Unsupported(
            f"its input {tensor.name!r} is {tensor.dtype} with {plural.count(tensor.scale.size, 'scale')}"
        )
    scale = float(np.float32(tensor.scale[0]) * np.float32(unit))
    if scale < np.finfo(np.float32).tiny:
        raise Unsupported(f"the scale of its input {tensor.name!r}, {scale:g}, is out of range")
    return scale, float(tensor.zero_point[0])


def _check_pose_shapes(t: Translation) -> None:
    shapes = [t.shape(index, 4) for index in range(len(t.op.inputs))]
    sizes = [shapes[0][:3]] * 3 + [(1, MASK, MASK)]
    for shape, size, channels in zip(shapes, sizes, _CHANNELS, strict=False):
        if shape[0] != 1 or 0 in shape or shape != (*size, channels):
            raise Unsupported(f"the shapes of its inputs do not match: {', '.join(str([*s]) for s in shapes)}")


def posenet_decoder(t: Translation) -> None:
    """PosenetDecoderOp: the options, not the file's tensors, determine the shapes of the outputs."""
    counts = (4, 5) if len(t.op.inputs) > 3 else (3, 4)  # with masks, or without
    t.check_counts(*counts)
    _check_pose_shapes(t)
    options = numbers_of(t.op)
    most, stride = (int(_between(options, name, 1, MAX_POSES)) for name in ("max_detections", "stride"))
    threshold = np.float32(_between(options, "score_threshold", 0, 1))
    odds = 1 / (float(threshold) + 1e-6) - 1
    if odds <= 0:
        raise Unsupported(f"its option 'score_threshold' is {threshold}, which no score reaches")
    radius = np.float32(_between(options, "nms_radius", 0, 1e6)) / np.float32(stride)
    unit = float(np.float32(1 / stride))
    outputs = t.several(
        "PosenetDecoder", counts[1], *[t.stored(index) for index in range(counts[0])], max_detections=most,
        stride=stride, threshold=float(threshold), least=-math.log(odds), squared_radius=float(radius * radius),
        grids=[number for index in range(counts[0]) for number in _pose_grid(t.tensor(index), unit if index else 1.0)],
    )  # fmt: skip
    _put_shaped(t, outputs, [(1, most, KEYPOINTS, 2), (1, most, KEYPOINTS), (1, most), (1,), (1, most, MASK, MASK)])


SAME, VALID = 1, 2  # TfLitePadding
MAX_WINDOW = 2**12  # the largest window or stride


def _numbers(t: Translation, count: int) -> list[int]:
    """Return the first numbers of the options: the padding, then sizes.

    Raises:
        Unsupported: there are too few, or one is out of range.
    """
    if len(t.op.custom) < 4 * count:
        raise Unsupported(f"its options have {len(t.op.custom)} bytes; expected at least {4 * count}")
    padding, *sizes = (int(number) for number in np.frombuffer(t.op.custom, "<i4", count))
    if padding not in (SAME, VALID) or not all(0 < size <= MAX_WINDOW for size in sizes):
        raise Unsupported(f"its padding {padding}, or its stride and window {sizes} are out of range")
    return [padding, *sizes]


def _before(
    padding: int, size: Sequence[int], out_size: Sequence[int], window: Sequence[int], stride: Sequence[int]
) -> list[int]:
    """Return the pads before height and width; the pads after them are equal, or one more."""
    pairs = zip(size, out_size, window, stride, strict=True)
    return [max((out - 1) * s + k - n, 0) // 2 for n, out, k, s in pairs] if padding == SAME else [0, 0]


def max_pooling(t: Translation) -> None:
    """MaxPoolingWithArgmax2D: the maximum, and its position in the window, row by row."""
    t.check_types(["float32"] * 1, ["float32"] * 2)
    padding, across, down, wide, high = _numbers(t, 5)
    activation = int(np.frombuffer(t.op.custom[20:24], "<i4").sum())
    size, window, stride = t.shape(0, 4)[1:3], (high, wide), (down, across)
    pairs = list(zip(size, window, stride, strict=True))
    out_size = [-(-n // s) if padding == SAME else (n - k + s) // s for n, k, s in pairs]
    if min(out_size) < 1:
        raise Unsupported(f"its window {window} is larger than its input")
    pads = _before(padding, size, out_size, window, stride)
    attrs = {"window": window, "strides": stride, "pads": pads, "out_size": out_size}
    best, positions = t.several("MaxPoolArgmax", 2, t.stored(0), **attrs)
    t.put(t.activated(best, activation))
    t.put(positions, 1)


def max_unpooling(t: Translation) -> None:
    """MaxUnpooling2D: each number at its position in the window, zeros around it."""
    t.check_types(["float32"] * 2, ["float32"] * 1)
    _, across, down, wide, high = _numbers(t, 5)
    size, window, stride = t.shape(0, 4)[1:3], (high, wide), (down, across)
    if t.shape(1) != t.shape(0):
        raise Unsupported(f"its positions {list(t.shape(1))} do not match its values {list(t.shape(0))}")
    out_size = [n * k for n, k in zip(size, window, strict=True)]
    pads = _before(SAME, out_size, size, window, stride)
    attrs = {"window": window, "strides": stride, "pads": pads, "out_size": out_size}
    t.put(t("MaxUnpoolWindow", t.stored(0), t.stored(1), **attrs))


def transpose_conv_bias(t: Translation) -> None:
    """Convolution2DTransposeBias: weights [out, height, width, in]."""
    t.check_types(["float32"] * 3, ["float32"] * 1)
    padding, across, down = _numbers(t, 3)
    size, shape = t.shape(0, 4), t.shape(1, 4)
    if size[3] != shape[3]:
        raise Unsupported(f"its weights are for {shape[3]} channels; its input has {size[3]}")
    stride = (down, across)
    pairs = zip(size[1:3], shape[1:3], stride, strict=True)
    totals = [max(0, k - (n - 1) % s - 1) if padding == SAME else 0 for n, k, s in pairs]
    pads = [total // 2 for total in totals] + [total - total // 2 for total in totals]
    image = t("Transpose", t.stored(0), perm=NCHW_OF_NHWC)
    filters = weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 1)
    offsets = t.constant("bias", t.data(2, "bias").reshape(-1), np.float32)
    t.store_image(t("ConvTranspose", image, filters, offsets, kernel_shape=shape[1:3], strides=stride, pads=pads))


KIND = "CUSTOM ethos-u"
_FIXED = 4  # the inputs before the network's own
_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))


def working_memories(operators: Sequence[Operator]) -> set[int]:
    """Return the tensors that Ethos-U operators read and no operator writes."""
    outputs = {number for operator in operators for number in operator.outputs}
    return {number for operator in operators if operator.kind == KIND for number in operator.inputs} - outputs


def _bytes(tensor: Tensor) -> int:
    return int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize


def _places(scratch: Tensor, tensors: list[Tensor]) -> list[int]:
    """Return the offsets of tensors in the working memory.

    Raises:
        Unsupported: the file does not have them, or one is outside.
    """
    if scratch.place is None:
        raise Unsupported("the file has no OfflineMemoryAllocation with the offsets of its tensors")
    offsets = []
    for tensor in tensors:
        place = -1 if tensor.place is None else tensor.place - scratch.place
        if place < 0 or place + _bytes(tensor) > _bytes(scratch):
            raise Unsupported(f"its tensor {tensor.name!r} is outside its working memory")
        offsets.append(place)
    return offsets


def ethos_u(t: Translation) -> None:
    """Append ethos-u."""
    count = len(t.op.inputs)
    if count <= _FIXED or min(t.op.inputs) < 0:
        raise Unsupported(reason(t.op.kind))
    fixed = [t.tensors[number] for number in t.op.inputs[:_FIXED]]
    if any(x.dtype not in _BYTES for x in fixed):
        raise Unsupported("its command stream, constants and working memory are not int8 or uint8")
    if any(x.data is None for x in fixed[:2]) or any(x.data is not None and x.data.size for x in fixed[2:]):
        raise Unsupported("its command stream or its constants are not in the file")
    read = [t.tensor(number) for number in range(_FIXED, count)]
    written = [t.result(number) for number in range(len(t.op.outputs))]
    commands, constants, scratch, fast = fixed
    names = [
        t.constant(stem, np.asarray(x.data).reshape(-1).view(np.uint8))
        for stem, x in (("commands", commands), ("constants", constants))
    ]
    outputs = t.several(
        "EthosU", len(written), *names, *(t.stored(number) for number in range(_FIXED, count)),
        scratch=_bytes(scratch), fast=0 if t.op.inputs[2] == t.op.inputs[3] else _bytes(fast),
        read=_places(scratch, read), written=_places(scratch, written),
        types=[kind_number(DType.of(x.dtype)) for x in written], ranks=[len(x.shape) for x in written],
        **{"sizes": sizes} if (sizes := [size for x in written for size in x.shape]) else {},
    )  # fmt: skip
    for number, value in enumerate(outputs):
        t.put(value, number)
