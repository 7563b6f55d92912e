"""What an operator's attributes may say: words of a list, flags, numbers that C's int32_t has.

ONNX states this in an operator's text only, so that its checker and its shape inference let other values pass.
"""

from collections.abc import Mapping
from typing import Any

from mtool.frontend.problems import Unsupported

_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_REDUCTIONS = ("none", "add", "mul", "max", "min")
_LOSSES = ("none", "mean", "sum")
_SAMPLING = {
    "mode": ("bilinear", "linear", "nearest", "bicubic", "cubic"),
    "padding_mode": ("zeros", "border", "reflection"),
}
_POOLING = {"mode": ("avg", "max"), "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")}
_RESIZING = {
    "mode": ("nearest", "linear", "cubic"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}
_DIRECTIONS = ("forward", "reverse", "bidirectional")

WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **{op: {"auto_pad": _PADS} for op in ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")},
    **{op: {"auto_pad": _PADS} for op in ("AveragePool", "LpPool", "MaxPool")},
    **{op: {"reduction": _REDUCTIONS} for op in ("ScatterElements", "ScatterND")},
    **{op: {"reduction": _LOSSES} for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    **{op: {"direction": _DIRECTIONS} for op in ("RNN", "GRU", "LSTM")},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": _SAMPLING,
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": _RESIZING,
    "RoiAlign": _POOLING,
    "TensorScatter": {"mode": ("linear", "circular")},
    "Upsample": {"mode": ("nearest", "linear", "bilinear")},
}
"""The words that an operator's attribute can be."""

_FLAGS = {
    "keepdims", "ceil_mode", "count_include_pad", "transA", "transB", "exclusive", "reverse", "largest", "sorted",
    "fmod", "select_last_index", "linear_before_reset", "align_corners", "noop_with_empty_axes", "antialias",
    "storage_order", "allowzero", "upper", "onesided", "inverse",
}  # fmt: skip

_SIZES = {
    "kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape", "blocksize", "group",
    "hidden_size", "output_height", "output_width", "sampling_ratio", "batch_axis", "time_axis", "batch_dims",
}  # fmt: skip

_LARGEST = 2**31 - 1


def check_attributes(op: str, attrs: Mapping[str, Any]) -> None:
    """Hold the values of an operator's attributes against what it defines.

    Args:
        op: the operator, of ONNX's own domain.
        attrs: its attributes.

    Raises:
        Unsupported: one is a word that the operator does not have, a flag other than 0 and 1, or too large.
    """
    for name, words in WORDS.get(op, {}).items():
        if name in attrs and attrs[name] not in words:
            raise Unsupported(f"its attribute {name!r} is {attrs[name]!r}; expected {', '.join(words)}")
    for name, value in attrs.items():
        if name in _FLAGS and value not in (0, 1):
            raise Unsupported(f"its attribute {name!r} is {value}; expected 0 or 1")
        if name in _SIZES:
            for number in value if isinstance(value, tuple) else (value,):
                if not -_LARGEST <= number <= _LARGEST:
                    raise Unsupported(f"its attribute {name!r} has {number}; expected at most {_LARGEST}")
