"""Canonical forms of what computes each element by itself: sums, comparisons, bounds, casts."""

import numpy as np
import onnx

from mtool.compiler.frontend.canonical.forms import Attrs, Canonical, attributes_of, unchanged
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.ir import Attributes, TensorType
from mtool.compiler.operators import LOWERINGS
from mtool.compiler.operators.activations import Elu
from mtool.compiler.operators.elementwise import Cast


def _binary(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
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


def _clip(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Clip: opset 6 has its bounds as attributes, opset 11 as inputs. A NaN bounds nothing, as in onnxruntime."""
    inputs = [*proto.input, "", ""][:3]
    dtype = state.types[proto.input[0]].dtype.numpy
    for index, key in ((1, "min"), (2, "max")):
        if key in attrs:
            inputs[index] = state.constant(f"{origin}/{key}", np.asarray(attrs[key], dtype))
        bound = state.constants.get(inputs[index])
        if bound is not None and bound.dtype.kind not in "iu" and np.isnan(bound.astype(np.float64)).any():
            inputs[index] = ""
    state.emit("Clip", origin, inputs, [proto.output[0]])


def _celu(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Celu: with an alpha of 0 or NaN it is its definition, max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = attrs.get("alpha", 1.0)
    if alpha and not np.isnan(alpha):
        state.emit("Celu", origin, list(proto.input), list(proto.output), Elu(alpha=alpha))
        return
    x, dtype = proto.input[0], state.types[proto.input[0]].dtype.numpy
    factor, zero, one = (state.constant(f"{origin}/{value}", np.asarray(value, dtype)) for value in (alpha, 0, 1))

    def made(op: str, *inputs: str, output: str = "") -> str:
        name = output or state.unique(f"{origin}/{op}")
        state.run(onnx.helper.make_node(op, inputs, [name], name=origin), {"": version})
        return name

    below = made("Mul", factor, made("Sub", made("Exp", made("Div", x, factor)), one))
    made("Add", made("Max", zero, x), made("Min", zero, below), output=proto.output[0])


def _cast_like(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
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
    "Celu": _celu,
    "Clip": _clip,
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "PRelu", "Mod", "BitShift"], _binary),
    **dict.fromkeys(["Less", "Greater", "Equal"], _binary),
    "Cast": unchanged(Cast),
    "CastLike": _cast_like,
    "BitCast": unchanged(Attributes),
}
