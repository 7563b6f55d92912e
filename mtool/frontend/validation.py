"""A node held against its operator's schema, before anything reads its inputs and attributes."""

from collections.abc import Mapping
from typing import Any

import onnx
from onnx.defs import OpSchema

from mtool.frontend.problems import Unsupported
from mtool.ir import TensorType

_CONTROL = ("If", "Loop", "Scan")

_AXIS_BEHIND = ("OneHot", "Flatten", "Softmax", "LogSoftmax", "Hardmax")
"""Operators whose axis may be the input's rank too: that of the output, or where it is flattened."""

_OTHER_AXIS = ("QuantizeLinear", "DequantizeLinear", "ConcatFromSequence", "DFT")
"""Operators whose axis is not always used, or not of the first input; inference looks at it."""


def check_node(proto: onnx.NodeProto, schema: OpSchema, graphs: Mapping[str, Any]) -> None:
    """Hold the numbers of inputs and outputs and the attributes of a node against the operator's schema.

    Args:
        proto: the node.
        schema: its operator, in its version.
        graphs: the graphs among its attributes.

    Raises:
        Unsupported: there are too many or too few, one is missing that must be there, or is of another type.
    """
    for role, names, formal, least, most in (
        ("input", proto.input, schema.inputs, schema.min_input, schema.max_input),
        ("output", proto.output, schema.outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            expected = f"{least}" if least == most else f"{least} or more" if most > 1 << 20 else f"{least} to {most}"
            raise Unsupported(f"it has {len(names)} {role}s; expected {expected}")
        for place, name in enumerate(names):
            kind = formal[min(place, len(formal) - 1)]
            if not name and kind.option != OpSchema.FormalParameterOption.Optional and proto.op_type not in _CONTROL:
                raise Unsupported(f"its {role} {kind.name!r} is not given")
    for attr in proto.attribute:
        known = schema.attributes.get(attr.name)
        if known is not None and int(known.type.value) != attr.type:
            found = onnx.AttributeProto.AttributeType.Name(attr.type)
            raise Unsupported(f"its attribute {attr.name!r} is of type {found}; expected {known.type.name}")
    there = {attr.name for attr in proto.attribute} | {*graphs}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in there:
            raise Unsupported(f"its attribute {name!r} is not given")


def check_axis(proto: onnx.NodeProto, attrs: Mapping[str, Any], types: Mapping[str, TensorType]) -> None:
    """Hold an attribute `axis` against the dimensions of the first input.

    Raises:
        Unsupported: there is no such axis.
    """
    axis = attrs.get("axis")
    if not isinstance(axis, int) or proto.op_type in _OTHER_AXIS or not proto.input or proto.input[0] not in types:
        return
    rank = len(types[proto.input[0]].shape)
    most = rank if proto.op_type in _AXIS_BEHIND else max(rank - 1, 0)
    least = -rank - 1 if proto.op_type == "OneHot" else -max(rank, 1)
    if not least <= axis <= most:
        raise Unsupported(f"its axis is {axis}; its input has {rank} dimensions")


_AUTO_PAD = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_REDUCTION = ("none", "add", "mul", "max", "min")
_CHOICES: dict[tuple[str, str], tuple[str, ...]] = {
    **{(op, "auto_pad"): _AUTO_PAD for op in ("Conv", "ConvInteger", "ConvTranspose")},
    **{(op, "auto_pad"): _AUTO_PAD for op in ("MaxPool", "AveragePool", "LpPool")},
    **{(op, "direction"): ("forward", "reverse", "bidirectional") for op in ("RNN", "GRU", "LSTM")},
    **{(op, "reduction"): _REDUCTION for op in ("ScatterElements", "ScatterND")},
    **{(op, "mode"): ("nearest", "linear", "cubic", "bilinear") for op in ("Resize", "Upsample")},
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GridSample", "mode"): ("bilinear", "nearest", "bicubic", "linear", "cubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Gelu", "approximate"): ("none", "tanh"),
}  # fmt: skip
"""The words that an attribute may be, where it is one of a few."""

_WINDOW = ("kernel_shape", "strides", "dilations", "pads", "output_padding", "output_shape")
_MOST = 2**31 - 1  # indices in C are int32_t


def check_values(proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> None:
    """Hold the words and the sizes among a node's attributes against what they may be.

    Raises:
        Unsupported: one is something else.
    """
    for name, value in attrs.items():
        words = _CHOICES.get((proto.op_type, name))
        if words is not None and value not in words:
            raise Unsupported(f"its {name} is {value!r}; expected {', '.join(words)}")
        if name in _WINDOW and any(abs(number) > _MOST for number in value):
            raise Unsupported(f"its {name} are {list(value)}; at most {_MOST:,} are supported")
