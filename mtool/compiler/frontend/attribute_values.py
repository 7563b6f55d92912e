"""The values that attributes with a fixed set of words may have; onnx's schemas have no lists of them."""

from collections.abc import Mapping
from typing import Any

from mtool.compiler.frontend.problems import Unsupported

_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_SCATTER = ("none", "add", "mul", "max", "min")
_REDUCED = ("none", "mean", "sum")
_MODES: dict[str, tuple[str, ...]] = {
    "Pad": ("constant", "reflect", "edge", "wrap"),
    "Resize": ("nearest", "linear", "cubic"),
    "Upsample": ("nearest", "linear", "bilinear"),
    "GridSample": ("linear", "bilinear", "nearest", "cubic", "bicubic"),
    "RoiAlign": ("avg", "max"),
    "DepthToSpace": ("DCR", "CRD"),
    "SpaceToDepth": ("DCR", "CRD"),
    "TensorScatter": ("linear", "circular"),
    "TfIdfVectorizer": ("TF", "IDF", "TFIDF"),
}
_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "direction": {
        **dict.fromkeys(["RNN", "GRU", "LSTM"], ("forward", "reverse", "bidirectional")), "BitShift": ("LEFT", "RIGHT"),
    },
    "reduction": {
        **dict.fromkeys(["ScatterElements", "ScatterND"], _SCATTER),
        **dict.fromkeys(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], _REDUCED),
    },
    "mode": _MODES,
    "padding_mode": {"GridSample": ("zeros", "border", "reflection")},
    "nearest_mode": {"Resize": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")},
    "coordinate_transformation_mode": {
        "Resize": (
            "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
            "tf_half_pixel_for_nn", "tf_crop_and_resize",
        ),
        "RoiAlign": ("half_pixel", "output_half_pixel"),
    },
    "keep_aspect_ratio_policy": {"Resize": ("stretch", "not_larger", "not_smaller")},
    "approximate": {"Gelu": ("none", "tanh")},
}  # fmt: skip
"""By attribute and operator."""

_FLAGS = (
    "align_corners", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside", "exclusive",
    "fmod", "inverse", "is_causal", "keepdims", "largest", "layout", "linear_before_reset", "noop_with_empty_axes",
    "onesided", "reverse", "select_last_index", "sorted", "storage_order", "transA", "transB", "upper",
)  # fmt: skip


def check_attribute_values(op: str, attrs: Mapping[str, Any]) -> None:
    """Check that the words and flags of a node have values that its operator knows.

    Raises:
        Unsupported: one is not among them.
    """
    for name, found in attrs.items():
        known = _PADS if name == "auto_pad" else _WORDS.get(name, {}).get(op)
        if known and found not in known:
            raise Unsupported(f"its {name} is {found!r}; expected {', '.join(known)}")
        if name in _FLAGS and isinstance(found, int) and found not in (0, 1):
            raise Unsupported(f"its {name} is {found}; expected 0 or 1")
