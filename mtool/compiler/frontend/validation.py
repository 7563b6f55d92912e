"""A node held against its operator's schema, before anything reads its inputs and attributes.

onnx's shape inference believes some attributes: it runs without end, or ends the process, on what is refused here.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.defs import OpSchema

from mtool.compiler.frontend.inference import SHAPING
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array

_CONTROL = ("If", "Loop", "Scan")

_AXIS_BEHIND = ("OneHot", "Flatten", "Softmax", "LogSoftmax", "Hardmax")
"""Operators whose axis may be the input's rank too: that of the output, or where it is flattened."""

_OTHER_AXIS = ("QuantizeLinear", "DequantizeLinear", "ConcatFromSequence", "DFT")
"""Operators whose axis is not always used, or not of the first input; inference looks at it."""

_MOST_SIZES = 1024  # elements of an input that says what shape the output has

_MOST = 2**31 - 1  # of a size or a distance: offsets in generated C are int32_t
_WIDE = (
    "start", "end", "starts", "ends", "k", "ignore_index", "pool_int64s", "seed",
    "left_window_size", "right_window_size",
)  # fmt: skip
"""Attributes that may be larger: elements of 64 bits, or what is clamped to a dimension."""

_COUNTS = ("sampling_ratio", "output_height", "output_width", "max_skip_count", "max_gram_length", "min_gram_length")
"""Attributes that are no less than 0."""

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def check_node(proto: onnx.NodeProto, schema: OpSchema, graphs: Mapping[str, Any]) -> None:
    """Check the numbers of inputs and outputs and the attributes of a node against the operator's schema.

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
        for index, name in enumerate(names):
            kind = formal[min(index, len(formal) - 1)]
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
    """Check an attribute `axis` against the dimensions of the first input.

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


def check_values(proto: onnx.NodeProto, attrs: Mapping[str, Any], types: Mapping[str, TensorType]) -> None:
    """Check blocks, windows and equations, which only some operators have, against the shapes of the inputs.

    Raises:
        Unsupported: an attribute or the size of an input is out of range.
    """
    shapes = [types[name].shape if name in types else () for name in proto.input]
    for index in SHAPING.get(proto.op_type, ()):
        if index < len(shapes) and proto.input[index] in types:
            count = types[proto.input[index]].count
            if count > max(_MOST_SIZES, len(proto.output)) and proto.op_type != "ImageDecoder":
                raise Unsupported(f"its input {index} has {count:,} elements; at most {_MOST_SIZES:,} are supported")
    for key, value in attrs.items():
        numbers = [one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int)]
        if key not in _WIDE and any(abs(number) > _MOST for number in numbers):
            raise Unsupported(f"its {key} is {value}; at most {_MOST:,} is supported")
        if key in _COUNTS and any(number < 0 for number in numbers):
            raise Unsupported(f"its {key} is {value}; expected 0 or more")
    filters = shapes[1][2:] if proto.op_type.startswith("Conv") and len(shapes) > 1 else ()
    for steps, size in zip(attrs.get("dilations", ()), attrs.get("kernel_shape", filters), strict=False):
        if steps * size > _MOST // 2:
            raise Unsupported(f"its window reaches over {steps * size:,} elements; at most {_MOST // 2:,} is supported")
    if any(abs(steps) > _MOST // 2 for steps in attrs.get("strides", ())):
        raise Unsupported(f"its strides are {attrs['strides']}; at most {_MOST // 2:,} is supported")
    if proto.op_type == "Split" and attrs.get("num_outputs", len(proto.output)) != len(proto.output):
        raise Unsupported(f"its num_outputs is {attrs['num_outputs']}, and it has {len(proto.output)} outputs")
    if proto.op_type == "GatherND" and not 0 <= attrs.get("batch_dims", 0) < max(1, min(map(len, shapes), default=1)):
        raise Unsupported(f"its batch_dims is {attrs['batch_dims']}, for inputs {[list(shape) for shape in shapes]}")
    if proto.op_type in ("DepthToSpace", "SpaceToDepth") and len(shapes[0]) == 4:
        _check_blocks(proto.op_type, attrs.get("blocksize", 1), shapes[0])
    if proto.op_type in ("Conv", "ConvInteger") and len(shapes[0]) == len(shapes[1]):
        _check_windows(attrs, shapes[0][2:], shapes[1][2:])
    if proto.op_type == "Einsum":
        _check_equation(attrs["equation"].replace(" ", ""), shapes)


def check_range(constants: Mapping[str, Array], names: Sequence[str]) -> None:
    """Refuse a Range whose step is 0, or whose numbers are not finite: onnx's inference gives it no elements.

    Raises:
        Unsupported: it has no last number.
    """
    numbers = [float(each) for name in names for each in constants[name].reshape(-1)]
    if not all(map(math.isfinite, numbers)) or (numbers and numbers[-1] == 0):
        raise Unsupported(f"it has no last number: its start, limit and step are {numbers}")


def _check_windows(attrs: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]) -> None:
    """Check that a convolution's window fits into its input; onnx's shape inference rounds what is missing away."""
    mode, rank = attrs.get("auto_pad", "NOTSET"), len(kernel)
    if mode in ("SAME_UPPER", "SAME_LOWER") or 0 in spatial:
        return
    pads = (0,) * 2 * rank if mode == "VALID" else attrs.get("pads") or (0,) * 2 * rank
    dilations = attrs.get("dilations") or (1,) * rank
    for index, size in enumerate(spatial):
        span = (kernel[index] - 1) * dilations[index] + 1
        padded = size + pads[index] + pads[rank + index]
        if padded < span:
            raise Unsupported(f"its window reaches over {span:,} elements, its padded input has {padded:,}")


def _check_blocks(op: str, size: int, shape: tuple[int, ...]) -> None:
    if size < 1:
        raise Unsupported(f"its blocksize is {size}")
    channels, rows, columns = shape[1:]
    if op == "DepthToSpace" and channels % size**2:
        raise Unsupported(f"it has {channels} channels; expected a multiple of {size**2}, the elements of a block")
    if op == "SpaceToDepth" and (rows % size or columns % size):
        raise Unsupported(f"its input is {rows} x {columns}; expected multiples of {size}")


def _check_equation(equation: str, shapes: Sequence[tuple[int, ...]]) -> None:
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes) or not all(_TERM.fullmatch(term) for term in (*terms, right)):
        raise Unsupported(f"its equation {equation!r} is not one of {len(shapes)} inputs")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        letters = term.replace("...", "")
        if len(letters) != len(shape) and not ("..." in term and len(letters) < len(shape)):
            raise Unsupported(f"its equation {equation!r} has {term!r} for an input of {len(shape)} dimensions")
        before = len(term.partition("...")[0])
        axes = [*range(before), *range(before - len(letters), 0)]
        for letter, axis in zip(letters, axes, strict=True):
            known = sizes.setdefault(letter, shape[axis])
            if 1 not in (known, shape[axis]) and known != shape[axis]:
                raise Unsupported(
                    f"its equation {equation!r} has {letter!r} for dimensions of {known} and {shape[axis]}"
                )
            sizes[letter] = max(known, shape[axis])
    made = right.replace("...", "")
    if arrow and (len(set(made)) != len(made) or not set(made) <= set(sizes)):
        raise Unsupported(f"its equation {equation!r} makes {right!r}")
