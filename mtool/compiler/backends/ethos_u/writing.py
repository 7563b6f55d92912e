"""Regions as TFLite models, with the user's names of tensors: what Vela reads."""

from collections.abc import Callable, Mapping

import numpy as np
import tflite

from mtool.compiler.backends.ethos_u.flatbuffer import Operator, Tensor, written
from mtool.compiler.backends.ethos_u.windows import padding_of
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operand, Operation
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array, Quant
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Pad
from mtool.compiler.operators.reduce import Axes
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import CONV, Convolution, Window

_ACTIVATIONS = {
    (None, None): "NONE",
    (0.0, None): "RELU",
    (0.0, 6.0): "RELU6",
    (-1.0, 1.0): "RELU_N1_TO_1",
}


def tflite_of(region: Region) -> bytes:
    """Return a region as a TFLite model, whose inputs and outputs are the region's in order."""
    return _Writer(region).model()


def activation_of(operation: Operation) -> str | None:
    """Return the fused activation of an operation by TFLite's name; None: TFLite has none that clips so."""
    activation = operation.activation
    if activation is None:
        return "NONE"
    low, high = activation.low, activation.high
    if (low, high) not in _ACTIVATIONS:
        first, last = _range(operation.output)
        low = None if low is not None and low <= first else low
        high = None if high is not None and high >= last else high
    return _ACTIVATIONS.get((low, high))


def _range(operand: Operand) -> tuple[float, float]:
    """Return the least and the largest number on a grid."""
    assert operand.quant is not None
    low, high = operand.dtype.limits
    scale, zero = operand.quant.scale[0], operand.quant.zero_point[0]
    return (int(low) - zero) * scale, (int(high) - zero) * scale


def is_depthwise(operation: Operation) -> bool:
    """Return whether a convolution computes each channel by itself."""
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    return attrs.group == operation.operand(0).shape[-1] and operation.operand(1).shape[1] == 1 and attrs.group > 1


class _Writer:
    def __init__(self, region: Region) -> None:
        self.region = region
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.numbers: dict[str, int] = {}  # of the tensors that are no constants, by value

    def model(self) -> bytes:
        region = self.region
        for operand in region.inputs:
            self.variable(operand)
        for operation in region.operations:
            for operand in operation.variables:
                self.variable(operand)
            WRITERS[operation.kind](self, operation)
        inputs = [self.numbers[one.value] for one in region.inputs]
        outputs = [self.numbers[one.value] for one in region.outputs]
        return written(region.name, self.tensors, self.operators, inputs, outputs)

    def tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def variable(self, operand: Operand) -> int:
        if operand.value not in self.numbers:
            tensor = Tensor(operand.tensor, operand.shape, operand.dtype, operand.quant)
            self.numbers[operand.value] = self.tensor(tensor)
        return self.numbers[operand.value]

    def constant(self, operand: Operand, data: Array, axis: int) -> int:
        """Add a constant whose elements were moved; `axis`: where its scales stand now."""
        quant = operand.quant
        if quant is not None:
            quant = Quant(quant.scale, quant.zero_point, axis if len(quant.scale) > 1 else None)
        return self.tensor(Tensor(operand.tensor, data.shape, operand.dtype, quant, data))

    def numbers_of(self, name: str, numbers: Array) -> int:
        return self.tensor(Tensor(name, numbers.shape, DType.INT32, None, numbers.astype(np.int32)))

    def call(
        self,
        code: str,
        version: int,
        operation: Operation,
        inputs: tuple[int, ...],
        table: str = "",
        options: Mapping[str, int | float] | None = None,
    ) -> None:
        outputs = tuple(self.variable(one) for one in operation.outputs)
        self.operators.append(Operator(code, version, inputs, outputs, table, options or {}))

    def bias(self, operation: Operation, weights: Operand, count: int) -> int:
        x = operation.operand(0)
        assert x.quant is not None and weights.quant is not None
        given = operation.inputs[2] if len(operation.inputs) > 2 else None
        data = np.zeros(count, np.int32) if given is None else given.data
        assert data is not None
        scales = tuple(float(np.float32(x.quant.scale[0]) * np.float32(one)) for one in weights.quant.scale)
        quant = Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
        name = f"{operation.output.tensor}/bias" if given is None else given.tensor
        spread = np.broadcast_to(data.reshape(-1), (count,))
        return self.tensor(Tensor(name, (count,), DType.of(data.dtype), quant, np.ascontiguousarray(spread)))


def _window(attrs: Window) -> dict[str, int]:
    return {"StrideH": attrs.strides[0], "StrideW": attrs.strides[1]}


def _fused(operation: Operation) -> dict[str, int]:
    return {"FusedActivationFunction": getattr(tflite.ActivationFunctionType, activation_of(operation) or "NONE")}


def _convolution(writer: _Writer, operation: Operation) -> None:
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    x, weights = operation.operand(0), operation.operand(1)
    assert weights.data is not None
    source, padding = writer.variable(x), padding_of(attrs, x.shape, operation.output.shape)
    if padding is None:  # any other stands before it, as an operator of its own
        padding, source = "VALID", _padded(writer, operation, attrs)
    depthwise = is_depthwise(operation)
    packed = weights.data.transpose(1, 2, 3, 0) if depthwise else weights.data.transpose(0, 2, 3, 1)
    filters = writer.constant(weights, np.ascontiguousarray(packed), 3 if depthwise else 0)
    bias = writer.bias(operation, weights, weights.shape[0])
    options = {
        **_window(attrs),
        "Padding": getattr(tflite.Padding, padding),
        "DilationHFactor": attrs.dilations[0],
        "DilationWFactor": attrs.dilations[1],
        **_fused(operation),
    }
    if depthwise:
        options["DepthMultiplier"] = weights.shape[0] // attrs.group
        writer.call(
            "DEPTHWISE_CONV_2D", 3, operation, (source, filters, bias), "DepthwiseConv2DOptions", options
        )  # fmt: skip
    else:
        writer.call("CONV_2D", 3, operation, (source, filters, bias), "Conv2DOptions", options)


def padded_name(operand: Operand) -> str:
    """Return the name of a tensor that is padded before a convolution."""
    return f"{operand.tensor}/padded"


def _padded(writer: _Writer, operation: Operation, attrs: Window) -> int:
    """Add what pads the input of a window with zeros, and return its result."""
    x, (top, left, bottom, right) = operation.operand(0), attrs.pads
    batch, height, width, channels = x.shape
    shape = (batch, height + top + bottom, width + left + right, channels)
    pads = writer.numbers_of(f"{x.tensor}/pads", np.asarray([[0, 0], [top, bottom], [left, right], [0, 0]]))
    result = writer.tensor(Tensor(padded_name(x), shape, x.dtype, x.quant))
    writer.operators.append(Operator("PAD", 2, (writer.variable(x), pads), (result,), "PadOptions"))
    return result


def _dense(writer: _Writer, operation: Operation) -> None:
    x, weights = operation.operand(0), operation.operand(1)
    assert weights.data is not None
    rows = weights.data if getattr(operation.attrs, "transB", 0) else weights.data.T
    filters = writer.constant(weights, np.ascontiguousarray(rows), 0)
    bias = writer.bias(operation, weights, rows.shape[0])
    options = {**_fused(operation), "KeepNumDims": int(len(operation.output.shape) != 2)}
    writer.call(
        "FULLY_CONNECTED", 4, operation, (writer.variable(x), filters, bias), "FullyConnectedOptions", options
    )  # fmt: skip


def _pool(writer: _Writer, operation: Operation) -> None:
    attrs = operation.attrs
    assert isinstance(attrs, Pool)
    x = operation.operand(0)
    padding = padding_of(attrs, x.shape, operation.output.shape)
    assert padding is not None
    options = {
        **_window(attrs),
        "Padding": getattr(tflite.Padding, padding),
        "FilterHeight": attrs.kernel[0],
        "FilterWidth": attrs.kernel[1],
        **_fused(operation),
    }
    code = "AVERAGE_POOL_2D" if attrs.kind == "average" else "MAX_POOL_2D"
    writer.call(code, 2, operation, (writer.variable(x),), "Pool2DOptions", options)


def _pair(code: str, table: str) -> Callable[[_Writer, Operation], None]:
    def write(writer: _Writer, operation: Operation) -> None:
        inputs = tuple(
            writer.constant(one, one.data, 0) if one.data is not None else writer.variable(one)
            for one in (operation.operand(0), operation.operand(1))
        )
        writer.call(code, 2, operation, inputs, table, _fused(operation))

    return write


def _softmax(writer: _Writer, operation: Operation) -> None:
    inputs = (writer.variable(operation.operand(0)),)
    writer.call("SOFTMAX", 2, operation, inputs, "SoftmaxOptions", {"Beta": 1.0})


def _reshape(writer: _Writer, operation: Operation) -> None:
    output = operation.output
    shape = writer.numbers_of(f"{output.tensor}/shape", np.asarray(output.shape))
    writer.call("RESHAPE", 1, operation, (writer.variable(operation.operand(0)), shape))


def _concatenation(writer: _Writer, operation: Operation) -> None:
    attrs = operation.attrs
    assert isinstance(attrs, AlongAxis)
    options = {"Axis": attrs.axis % len(operation.output.shape), **_fused(operation)}
    inputs = tuple(writer.variable(one) for one in operation.variables)
    writer.call("CONCATENATION", 2, operation, inputs, "ConcatenationOptions", options)


def _pad(writer: _Writer, operation: Operation) -> None:
    attrs, x = operation.attrs, operation.operand(0)
    assert isinstance(attrs, Pad)
    behind = [
        size - one - before for size, one, before in zip(operation.output.shape, x.shape, attrs.before, strict=True)
    ]
    pads = writer.numbers_of(f"{operation.output.tensor}/pads", np.asarray([attrs.before, behind]).T)
    writer.call("PAD", 2, operation, (writer.variable(x), pads), "PadOptions")


def _mean(writer: _Writer, operation: Operation) -> None:
    attrs = operation.attrs
    assert isinstance(attrs, Axes)
    axes = writer.numbers_of(f"{operation.output.tensor}/axes", np.asarray(attrs.axes))
    inputs = (writer.variable(operation.operand(0)), axes)
    writer.call("MEAN", 2, operation, inputs, "ReducerOptions", {"KeepDims": int(attrs.keepdims)})


WRITERS: Mapping[str, Callable[[_Writer, Operation], None]] = {
    CONV: _convolution,
    "Gemm": _dense,
    "MatMul": _dense,
    "Pool": _pool,
    "Add": _pair("ADD", "AddOptions"),
    "Mul": _pair("MUL", "MulOptions"),
    "Softmax": _softmax,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Concat": _concatenation,
    "Pad": _pad,
    "ReduceMean": _mean,
}
"""How an operation of each kind is written."""
