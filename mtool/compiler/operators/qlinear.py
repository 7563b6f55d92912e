"""QOperator models: each QLinear operator is written as dequantize, the float operator, quantize.

Sources: ONNX QLinearConv, QLinearMatMul (ai.onnx 10), and onnxruntime's contrib operators (com.microsoft) that its
quantizer writes. Each stands in the file of its float operator.
"""

from collections.abc import Callable
from typing import Any

from mtool.compiler.operators.onnx_node import Canonical, OnnxNode


class QLinear(OnnxNode):
    """A node whose operands are integers, with a scale and a zero point behind each."""

    @classmethod
    def form(cls, write: Callable[["QLinear"], None]) -> Canonical:
        """Return the form of an operator that a function writes."""
        return lambda node: write(cls(node.state, node.proto, node.origin, node.attrs, node.version))

    def dequantize(self, start: int, axis: int | None = None) -> str:
        """Dequantize input `start` by the scale and zero point behind it."""
        return self.dequantize_by(self.inputs[start], self.input(start + 1), self.input(start + 2), axis=axis)

    def dequantize_by(self, value: str, scale: str, zero_point: str = "", *, axis: int | None = None) -> str:
        """Dequantize a value; `axis`: along which there may be several scales."""
        per_axis = len(self.kind(scale).shape) == 1 and self.kind(scale).count > 1
        inputs = [value, scale, zero_point] if zero_point else [value, scale]
        return self("DequantizeLinear", *inputs, axis=axis if per_axis else None)

    def bias(self, index: int, x_scale: str, w_scale: str) -> str:
        """Dequantize a bias, whose scale is the product of the operands'."""
        constants = self.state.constants
        if x_scale in constants and w_scale in constants:
            scale = (constants[x_scale] * constants[w_scale]).astype("float32")
            product = self.state.constant(f"{self.origin}/bias_scale", scale)
        else:
            product = self("Mul", x_scale, w_scale)
        return self.dequantize_by(self.inputs[index], product, axis=0)

    def quantize(self, value: str, start: int) -> None:
        """Quantize into the operator's own output by inputs `start` and `start + 1`."""
        parameters = [name for name in self.inputs[start : start + 2] if name]
        self.write("QuantizeLinear", [value, *parameters], self.outputs[:1])


def qlinear_unary(op: str, *without: str) -> Canonical:
    """Return the form of an operator of one operand; `without`: attributes that the float operator does not have."""

    def write(parts: QLinear) -> None:
        attrs: dict[str, Any] = {key: value for key, value in parts.attrs.items() if key not in without}
        parts.quantize(parts(op, parts.dequantize(0), **attrs), 3)

    return QLinear.form(write)


def qlinear_binary(op: str) -> Canonical:
    """Return the form of an operator of two operands."""
    return QLinear.form(lambda parts: parts.quantize(parts(op, parts.dequantize(0), parts.dequantize(3)), 6))
