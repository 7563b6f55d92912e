"""QOperator models: each QLinear operator is written as dequantise, the float operator, quantise.

Sources: ONNX QLinearConv, QLinearMatMul (ai.onnx 10), and onnxruntime's contrib operators
(com.microsoft) that its quantiser writes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.importer import Importer

Expansion = Callable[[Importer, onnx.NodeProto, str], list[onnx.NodeProto]]


class _Parts:
    """Collects the nodes that stand for one QLinear operator."""

    def __init__(self, state: Importer, proto: onnx.NodeProto, origin: str) -> None:
        self.state, self.proto, self.origin = state, proto, origin
        self.nodes: list[onnx.NodeProto] = []

    def node(self, op: str, inputs: list[str], output: str = "", **attrs: Any) -> str:
        output = output or self.state.unique(f"{self.origin}/{op}")
        kept = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, inputs, [output], name=self.origin, **kept))
        return output

    def dequantise(self, start: int, axis: int | None = None) -> str:
        """Dequantise input `start` by the scale and zero point behind it."""
        value, scale, zero_point = [*self.proto.input[start : start + 3], ""][:3]
        return self.dequantise_by(value, scale, zero_point, axis=axis)

    def dequantise_by(self, value: str, scale: str, zero_point: str = "", *, axis: int | None = None) -> str:
        per_axis = len(self.state.types[scale].shape) == 1 and self.state.types[scale].count > 1
        inputs = [value, scale, zero_point] if zero_point else [value, scale]
        return self.node("DequantizeLinear", inputs, axis=axis if per_axis else None)

    def bias_scale(self, x_scale: str, w_scale: str) -> str:
        """Return the scale of a bias: the product of the operands' scales."""
        constants = self.state.constants
        if x_scale in constants and w_scale in constants:
            scale = (constants[x_scale] * constants[w_scale]).astype("float32")
            return self.state.constant(f"{self.origin}/bias_scale", scale)
        product = self.node("Mul", [x_scale, w_scale])
        self.state.types[product] = self.state.types[w_scale]
        return product

    def quantise(self, value: str, start: int) -> list[onnx.NodeProto]:
        """Quantise into the operator's own output by inputs `start` and `start + 1`."""
        parameters = [name for name in self.proto.input[start : start + 2] if name]
        self.node("QuantizeLinear", [value, *parameters], self.proto.output[0])
        return self.nodes

    def attrs(self, *without: str) -> dict[str, Any]:
        """Return the operator's own attributes, for the float operator."""
        return {
            attr.name: helper.get_attribute_value(attr) for attr in self.proto.attribute if attr.name not in without
        }


def _conv(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    inputs = [parts.dequantise(0), parts.dequantise(3, axis=0)]
    if len(proto.input) > 8 and proto.input[8]:
        scale = parts.bias_scale(proto.input[1], proto.input[4])
        inputs.append(parts.dequantise_by(proto.input[8], scale, axis=0))
    return parts.quantise(parts.node("Conv", inputs, **parts.attrs()), 6)


def _matmul(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    last = len(state.types[proto.input[3]].shape) - 1
    return parts.quantise(parts.node("MatMul", [parts.dequantise(0), parts.dequantise(3, axis=last)]), 6)


def _gemm(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    attrs = parts.attrs()
    inputs = [parts.dequantise(0), parts.dequantise(3, axis=0 if attrs.get("transB") else 1)]
    if proto.input[6]:
        scale = parts.bias_scale(proto.input[1], proto.input[4])
        inputs.append(parts.dequantise_by(proto.input[6], scale, axis=0))
    return parts.quantise(parts.node("Gemm", inputs, **attrs), 7)


def _binary(op: str) -> Expansion:
    def expand(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
        parts = _Parts(state, proto, origin)
        return parts.quantise(parts.node(op, [parts.dequantise(0), parts.dequantise(3)]), 6)

    return expand


def _unary(op: str, *without: str, **fixed: Any) -> Expansion:
    def expand(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
        parts = _Parts(state, proto, origin)
        return parts.quantise(parts.node(op, [parts.dequantise(0)], **{**parts.attrs(*without), **fixed}), 3)

    return expand


def _concat(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    inputs = [parts.dequantise(start) for start in range(2, len(proto.input), 3)]
    return parts.quantise(parts.node("Concat", inputs, **parts.attrs()), 0)


def _where(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    chosen = parts.node("Where", [proto.input[0], parts.dequantise(1), parts.dequantise(4)])
    return parts.quantise(chosen, 7)


def _reduce_mean(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    attrs = parts.attrs()
    inputs = [parts.dequantise(0)]
    if attrs.get("axes"):
        inputs.append(state.constant(f"{origin}/axes", np.array(attrs["axes"], np.int64)))
    return parts.quantise(parts.node("ReduceMean", inputs, keepdims=attrs.get("keepdims", 1)), 3)


def _global_average_pool(state: Importer, proto: onnx.NodeProto, origin: str) -> list[onnx.NodeProto]:
    parts = _Parts(state, proto, origin)
    if parts.attrs().get("channels_last"):
        axes = state.constant(f"{origin}/axes", np.array([1, 2], np.int64))
        return parts.quantise(parts.node("ReduceMean", [parts.dequantise(0), axes], keepdims=1), 3)
    return parts.quantise(parts.node("GlobalAveragePool", [parts.dequantise(0)]), 3)


EXPANSIONS: dict[tuple[str, str], Expansion] = {
    ("", "QLinearConv"): _conv,
    ("", "QLinearMatMul"): _matmul,
    ("com.microsoft", "QGemm"): _gemm,
    ("com.microsoft", "QLinearAdd"): _binary("Add"),
    ("com.microsoft", "QLinearMul"): _binary("Mul"),
    ("com.microsoft", "QLinearAveragePool"): _unary("AveragePool", "channels_last"),
    ("com.microsoft", "QLinearGlobalAveragePool"): _global_average_pool,
    ("com.microsoft", "QLinearSoftmax"): _unary("Softmax", "opset"),
    ("com.microsoft", "QLinearSigmoid"): _unary("Sigmoid"),
    ("com.microsoft", "QLinearLeakyRelu"): _unary("LeakyRelu"),
    ("com.microsoft", "QLinearConcat"): _concat,
    ("com.microsoft", "QLinearWhere"): _where,
    ("com.microsoft", "QLinearReduceMean"): _reduce_mean,
}
