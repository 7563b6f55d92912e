"""Canonical forms of what computes each element by itself: sums, comparisons, bounds, casts."""

from typing import TYPE_CHECKING

import numpy as np
import onnx

from mtool.frontend.canonical.forms import Attrs, Canonical, as_it_is, attributes_of
from mtool.ir import Attributes, TensorType
from mtool.lowerings import LOWERINGS
from mtool.lowerings.elementwise import Cast

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer


def _binary(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Before opset 7 a second operand is broadcast only if told, and from `axis` on."""
    inputs = list(proto.input)
    left, right = (state.types[name] for name in inputs[:2])
    start = attrs.get("axis")
    if version < 7 and len(right.shape) < len(left.shape) and (start is not None or proto.op_type == "PRelu"):
        start = 1 if start is None else start % len(left.shape)
        padded = (*right.shape, *[1] * (len(left.shape) - start - len(right.shape)))
        inputs[1] = state.unique(f"{origin}/aligned")
        state.types[inputs[1]] = TensorType(right.dtype, padded)
        state.emit("Reshape", origin, [proto.input[1]], [inputs[1]])
    told = attributes_of(LOWERINGS[proto.op_type].attributes, attrs)
    state.emit(proto.op_type, origin, inputs, list(proto.output), told)


def _clip(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Clip: opset 6 has its bounds as attributes, opset 11 as inputs."""
    inputs = [*proto.input, "", ""][:3]
    dtype = state.types[proto.input[0]].dtype.numpy
    for place, key in ((1, "min"), (2, "max")):
        if key in attrs:
            inputs[place] = state.constant(f"{origin}/{key}", np.asarray(attrs[key], dtype))
    state.emit("Clip", origin, inputs, [proto.output[0]])


def _cast_like(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """CastLike: of a constant it is one too, whatever the value whose type it takes."""
    source, output = proto.input[0], proto.output[0]
    if source in state.constants:
        dtype, data = state.types[output].dtype, state.constants[source]
        if attrs.get("saturate", 1) and dtype.is_float and dtype.size == 1:
            data = np.clip(data, -dtype.largest, dtype.largest)
        state.add_constant(output, data.astype(dtype.numpy))
        return
    state.emit("CastLike", origin, [source], [output], attributes_of(Cast, attrs))


ELEMENTWISE: dict[str, Canonical] = {
    "Clip": _clip,
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "PRelu", "Mod", "BitShift"], _binary),
    **dict.fromkeys(["Less", "Greater", "Equal"], _binary),
    "Cast": as_it_is(Cast),
    "CastLike": _cast_like,
    "BitCast": as_it_is(Attributes),
}
