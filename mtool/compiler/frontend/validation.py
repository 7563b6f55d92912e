"""Check a node against its operator's schema and record, before anything reads its inputs and attributes.

onnx's shape inference does not check some attributes: with those refused here it would never end, or crash.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.defs import OpSchema

from mtool.base import plural
from mtool.compiler.ir import DType, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.onnx_node import IndexRange, OnnxNode
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import Unsupported

_CONTROL = ("If", "Loop", "Scan")

_MAX = 2**31 - 1  # the largest size or distance: offsets in generated C are int32_t
_WIDE = (
    "start", "end", "starts", "ends", "k", "ignore_index", "pool_int64s", "seed",
    "left_window_size", "right_window_size",
)  # fmt: skip
"""Attributes that may be larger: 64-bit elements, or numbers that are clamped to a dimension."""

_COUNTS = ("sampling_ratio", "output_height", "output_width", "max_skip_count", "max_gram_length", "min_gram_length")
"""Attributes that are 0 or greater."""

_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_FLAGS = (
    "align_corners", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside", "exclusive",
    "fmod", "inverse", "is_causal", "keepdims", "largest", "layout", "linear_before_reset", "noop_with_empty_axes",
    "onesided", "reverse", "select_last_index", "sorted", "storage_order", "transA", "transB", "upper",
)  # fmt: skip
"""Attributes that are 0 or 1 for every operator."""

_NAMES = {
    dtype: f"tensor({onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)).lower()})"
    for dtype in DType
}


def check_node(proto: onnx.NodeProto, schema: OpSchema, graphs: Mapping[str, Any]) -> None:
    """Check the numbers of inputs and outputs and the attributes of a node against the operator's schema.

    Args:
        proto: the node.
        schema: its operator, in its version.
        graphs: the graphs among its attributes.

    Raises:
        Unsupported: there are too many or too few, a required one is missing, or one has the wrong type.
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
        declared = schema.attributes.get(attr.name)
        if declared is not None and int(declared.type.value) != attr.type:
            actual = onnx.AttributeProto.AttributeType.Name(attr.type)
            raise Unsupported(f"its attribute {attr.name!r} is of type {actual}; expected {declared.type.name}")
    present = {attr.name for attr in proto.attribute} | {*graphs}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in present:
            raise Unsupported(f"its attribute {name!r} is not given")


def check_operand_types(proto: onnx.NodeProto, schema: OpSchema, types: Mapping[str, TensorType]) -> None:
    """Check that a node's inputs have element types that its operator takes, and equal ones where it requires that.

    Raises:
        Unsupported: an input has a wrong type.
    """
    formal = schema.inputs
    shared: dict[str, tuple[str, DType]] = {}
    for index, name in enumerate(proto.input):
        if name not in types or not formal:
            continue
        kind, dtype = formal[min(index, len(formal) - 1)], types[name].dtype
        if _NAMES[dtype] not in kind.types:
            expected = ", ".join(sorted(text.removeprefix("tensor(").removesuffix(")") for text in kind.types))
            raise Unsupported(
                f"its input {kind.name!r} is {dtype.label}{_since(schema, index, dtype)}; expected {expected}"
            )
        if "(" in kind.type_str or not kind.is_homogeneous:
            continue
        other, first = shared.setdefault(kind.type_str, (kind.name, dtype))
        if dtype != first:
            raise Unsupported(f"its inputs {other!r} and {kind.name!r} differ in type: {first.label}, {dtype.label}")


def _since(schema: OpSchema, index: int, dtype: DType) -> str:
    """Return words on the first later opset in which an operator's input has the type; empty: it has it in none."""
    versions = [
        later.since_version
        for later in onnx.defs.get_all_schemas_with_history()
        if (later.name, later.domain) == (schema.name, schema.domain) and later.since_version > schema.since_version
        if later.inputs and _NAMES[dtype] in later.inputs[min(index, len(later.inputs) - 1)].types
    ]
    return f", allowed from opset {min(versions)} on" if versions else ""


def check_attributes(node: OnnxNode, operator: Operator) -> None:
    """Check a node's attributes, and the sizes of inputs that determine the shapes of the outputs.

    Raises:
        Unsupported: one is out of range.
    """
    types = node.state.types
    axis = node.attrs.get("axis")
    if isinstance(axis, int) and operator.axis_ends is not None and node.input(0) in types:
        rank = len(node.shape)
        least, most = min(operator.axis_ends[0] - rank, -1), max(rank + operator.axis_ends[1], 0)
        if not least <= axis <= most:
            raise Unsupported(f"its axis is {axis}; its input has {rank} dimensions")
    for key, value in node.attrs.items():
        words = _PADS if key == "auto_pad" else operator.words.get(key)
        if words and value not in words:
            raise Unsupported(f"its {key} is {value!r}; expected {', '.join(words)}")
        if key in _FLAGS and isinstance(value, int) and value not in (0, 1):
            raise Unsupported(f"its {key} is {value}; expected 0 or 1")
    for index in operator.sizes:
        count = types[node.input(index)].count if node.input(index) in types else 0
        if count > max(operator.most_sizes, len(node.outputs)):
            actual = f"its input {index} has {plural.count(count, 'element')}"
            raise Unsupported(f"{actual}; at most {operator.most_sizes:,} are supported")
    for key, value in node.attrs.items():
        numbers = [number for number in (value if isinstance(value, tuple) else (value,)) if isinstance(number, int)]
        if key not in _WIDE and any(abs(number) > _MAX for number in numbers):
            raise Unsupported(f"its {key} is {value}; expected at most {_MAX:,}")
        if key in _COUNTS and any(number < 0 for number in numbers):
            raise Unsupported(f"its {key} is {value}; expected 0 or more")
    filters = node.shapes[1][2:] if len(node.shapes) > 1 else ()
    for steps, size in zip(node.attrs.get("dilations", ()), node.attrs.get("kernel_shape", filters), strict=False):
        if steps * size > _MAX // 2:
            raise Unsupported(f"its window spans {steps * size:,} elements; expected at most {_MAX // 2:,}")
    if any(abs(steps) > _MAX // 2 for steps in node.attrs.get("strides", ())):
        raise Unsupported(f"its strides are {node.attrs['strides']}; expected at most {_MAX // 2:,}")
    if operator.check is not None:
        operator.check(node)


def check_shapes(node: OnnxNode, operator: Operator) -> None:
    """Check that the shapes of a node's inputs and outputs match; otherwise the C would read beyond a tensor.

    Raises:
        Unsupported: they do not match.
    """
    types = node.state.types
    has_types = all(not name or name in types for name in (*node.inputs, *node.outputs))
    if operator.check_shapes is None or node.version < operator.shapes_from or not has_types:
        return
    try:
        fits = operator.check_shapes(node)
    except (IndexError, TypeError, ValueError):
        fits = False  # too few dimensions, or inputs
    if not fits:
        raise Unsupported(f"the shapes of its inputs do not match: {[list(shape) for shape in node.shapes]}")


def with_indices_inside(node: OnnxNode, operator: Operator, schema: OpSchema, *, clamp: bool) -> OnnxNode:
    """Return a node whose constant indices and lengths lie inside their dimensions.

    Computed indices are clamped at run time; a constant one outside is an error in the model, as in ONNX and
    onnxruntime. `clamp`: the node may never run, so the nearest valid index replaces it.

    Raises:
        Unsupported: an index is out of range.
    """
    allowed = _range_of_wrong_indices(node, operator)
    if allowed is None:
        return node
    name = node.inputs[allowed.index]
    data = node.state.constants[name]
    if not clamp:
        wrong = np.unravel_index(np.argmin(_is_inside(data, allowed)), data.shape)
        bounds = (np.broadcast_to(limit, data.shape)[wrong] for limit in (allowed.low, allowed.high, allowed.size))
        low, high, size = bounds
        problem = f"its {schema.inputs[allowed.index].name} contain {data[wrong]} for a dimension of {size}"
        raise Unsupported(f"{problem}; expected {low} to {high}")
    nearest = np.clip(data, allowed.low, np.maximum(allowed.high, allowed.low))
    changed = onnx.NodeProto()
    changed.CopyFrom(node.proto)
    changed.input[allowed.index] = node.state.constant(f"{name}/inside", np.asarray(nearest).astype(data.dtype))
    return OnnxNode(node.state, changed, node.origin, node.attrs, node.version)


def _range_of_wrong_indices(node: OnnxNode, operator: Operator) -> IndexRange | None:
    """Return the range of a node's constant indices, if one is outside it; None if none is, or they are computed."""
    state = node.state
    if operator.index_ranges is None or any(name and name not in state.types for name in node.inputs):
        return None
    try:
        allowed = operator.index_ranges(node)
        data = state.constants.get(node.input(allowed.index))
        return None if data is None or _is_inside(data, allowed).all() else allowed
    except (IndexError, ValueError):  # the shapes do not match, which is reported elsewhere
        return None


def _is_inside(data: Array, allowed: IndexRange) -> Array:
    return np.asarray((allowed.low <= data) & (data <= allowed.high))
