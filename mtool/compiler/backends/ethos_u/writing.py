"""Regions as TFLite models, with the user's names of tensors: what Vela reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import tflite

from mtool.compiler.backends.interface import Operand, Operation, Region
from mtool.compiler.backends.quantized import bias_of, is_depthwise, rows_of
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array, Quant
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Pad
from mtool.compiler.operators.reduce import Axes
from mtool.compiler.operators.window import CONV, Convolution, Pool, Window

_VERSION = 3  # of the schema
_CONSTANT_ALIGNMENT = 16  # of constants
_TYPES = {
    DType.INT8: tflite.TensorType.INT8,
    DType.UINT8: tflite.TensorType.UINT8,
    DType.INT16: tflite.TensorType.INT16,
    DType.INT32: tflite.TensorType.INT32,
    DType.INT64: tflite.TensorType.INT64,
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: its name, shape, element type, grid and, of a constant, its elements."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    quant: Quant | None = None
    data: Array | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator.

    code: its name in the schema's BuiltinOperator.
    version: the least that knows its element types.
    inputs, outputs: the numbers of its tensors.
    table: the name of its options' table; "": it has none.
    options: their fields, as the schema's functions spell them; those that are not there are 0.
    """

    code: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str = ""
    options: Mapping[str, int | float] = field(default_factory=dict)


def written(
    name: str, tensors: Sequence[Tensor], operators: Sequence[Operator], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """Return a TFLite model with one subgraph; inputs and outputs are numbers of tensors."""
    b = flatbuffers.Builder(1024)
    buffers = [_buffer(b, None)]
    made = []
    for tensor in tensors:
        if tensor.data is not None:
            buffers.append(_buffer(b, tensor.data))
        made.append(_tensor(b, tensor, len(buffers) - 1 if tensor.data is not None else 0))
    kinds = list(dict.fromkeys((one.code, one.version) for one in operators))
    codes = [_code(b, code, version) for code, version in kinds]
    calls = [_operator(b, one, kinds.index((one.code, one.version))) for one in operators]
    graph = {"Name": b.CreateString(name), "Tensors": _offsets(b, made), "Inputs": _numbers(b, inputs)}
    graph |= {"Outputs": _numbers(b, outputs), "Operators": _offsets(b, calls)}
    order = ("Tensors", "Inputs", "Outputs", "Operators", "Name")
    graphs = _offsets(b, [_table(b, "SubGraph", **{field: graph[field] for field in order})])
    code_list, buffer_list = _offsets(b, codes), _offsets(b, buffers)
    root = _table(b, "Model", Version=_VERSION, OperatorCodes=code_list, Subgraphs=graphs, Buffers=buffer_list)
    b.Finish(root, b"TFL3")
    return bytes(b.Output())


def _table(b: flatbuffers.Builder, kind: str, **fields: float) -> int:
    """Append a table of the schema with its fields in this order."""
    getattr(tflite, f"{kind}Start")(b)
    for name, value in fields.items():
        getattr(tflite, f"{kind}Add{name}")(b, value)
    return int(getattr(tflite, f"{kind}End")(b))


def _offsets(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, numbers: Sequence[int]) -> int:
    return int(b.CreateNumpyVector(np.asarray(numbers, np.int32)))


def _buffer(b: flatbuffers.Builder, data: Array | None) -> int:
    if data is None:
        return _table(b, "Buffer")
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    b.StartVector(1, raw.size, _CONSTANT_ALIGNMENT)
    b.head -= raw.size
    b.Bytes[b.head : b.head + raw.size] = raw.tobytes()
    return _table(b, "Buffer", Data=b.EndVector())


def _tensor(b: flatbuffers.Builder, tensor: Tensor, buffer: int) -> int:
    name, shape = b.CreateString(tensor.name), _numbers(b, tensor.shape)
    grid: dict[str, int] = {}
    if tensor.quant is not None:
        scale = b.CreateNumpyVector(np.asarray(tensor.quant.scale, np.float32))
        points = b.CreateNumpyVector(np.asarray(tensor.quant.zero_point, np.int64))
        fields = {"Scale": scale, "ZeroPoint": points, "QuantizedDimension": tensor.quant.axis or 0}
        grid = {"Quantization": _table(b, "QuantizationParameters", **fields)}
    return _table(b, "Tensor", Shape=shape, Type=_TYPES[tensor.dtype], Buffer=buffer, Name=name, **grid)


def _code(b: flatbuffers.Builder, code: str, version: int) -> int:
    number = getattr(tflite.BuiltinOperator, code)
    old = min(number, 127)
    return _table(b, "OperatorCode", DeprecatedBuiltinCode=old, BuiltinCode=number, Version=version)


def _operator(b: flatbuffers.Builder, operator: Operator, code: int) -> int:
    options: dict[str, int] = {}
    if operator.table:
        made = _table(b, operator.table, **operator.options)
        options["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, operator.table)
        options["BuiltinOptions"] = made
    inputs, outputs = _numbers(b, operator.inputs), _numbers(b, operator.outputs)
    return _table(b, "Operator", OpcodeIndex=code, Inputs=inputs, Outputs=outputs, **options)


def padding_of(attrs: Window, image: Sequence[int], result: Sequence[int]) -> str | None:
    """Return the kind of padding of a window over height and width: "VALID" or "SAME"; None: neither.

    Args:
        attrs: the window.
        image, result: the shapes of its input and output, with the channels last.
    """
    pads, shape = [*attrs.pads], [*result[1:3]]
    reach = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(attrs.kernel, attrs.dilations, strict=True)]
    sides = [*zip(image[1:3], reach, attrs.strides, strict=True)]
    if not any(pads) and shape == [(size - wide) // stride + 1 for size, wide, stride in sides]:
        return "VALID"
    same = [-(-size // stride) for size, _, stride in sides]
    totals = [
        max((count - 1) * stride + wide - size, 0) for count, (size, wide, stride) in zip(same, sides, strict=True)
    ]
    is_same = pads == [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
    return "SAME" if is_same and shape == same else None


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
        output = operation.output
        first, last = ((limit - output.zero_point) * output.scales[0] for limit in output.dtype.limits)
        low = None if low is not None and low <= first else low
        high = None if high is not None and high >= last else high
    return _ACTIVATIONS.get((low, high))


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
        given = operation.inputs[2] if len(operation.inputs) > 2 else None
        x_scale = np.float32(operation.operand(0).scales[0])
        scales = tuple(float(x_scale * np.float32(one)) for one in weights.scales)
        quant = Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
        name = f"{operation.output.tensor}/bias" if given is None else given.tensor
        return self.tensor(Tensor(name, (count,), DType.INT32, quant, bias_of(operation, count)))


def _fused(operation: Operation) -> dict[str, int]:
    return {"FusedActivationFunction": getattr(tflite.ActivationFunctionType, activation_of(operation) or "NONE")}


def _convolution(writer: _Writer, operation: Operation) -> None:
    attrs = Convolution.of(operation)
    x, weights = operation.operand(0), operation.operand(1)
    source, padding = writer.variable(x), padding_of(attrs, x.shape, operation.output.shape)
    if padding is None:  # any other stands before it, as an operator of its own
        padding, source = "VALID", _padded(writer, operation, attrs)
    depthwise = is_depthwise(operation)
    packed = weights.elements.transpose(*((1, 2, 3, 0) if depthwise else (0, 2, 3, 1)))
    filters = writer.constant(weights, np.ascontiguousarray(packed), 3 if depthwise else 0)
    bias = writer.bias(operation, weights, weights.shape[0])
    options = {
        "StrideH": attrs.strides[0],
        "StrideW": attrs.strides[1],
        "Padding": getattr(tflite.Padding, padding),
        "DilationHFactor": attrs.dilations[0],
        "DilationWFactor": attrs.dilations[1],
        **_fused(operation),
        **({"DepthMultiplier": weights.shape[0] // attrs.group} if depthwise else {}),
    }
    code, table = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    writer.call(code, 3, operation, (source, filters, bias), table, options)


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
    x, weights, rows = operation.operand(0), operation.operand(1), rows_of(operation)
    filters = writer.constant(weights, rows, 0)
    bias = writer.bias(operation, weights, len(rows))
    options = {**_fused(operation), "KeepNumDims": int(len(operation.output.shape) != 2)}
    writer.call("FULLY_CONNECTED", 4, operation, (writer.variable(x), filters, bias), "FullyConnectedOptions", options)


def _pool(writer: _Writer, operation: Operation) -> None:
    attrs = Pool.of(operation)
    x = operation.operand(0)
    padding = padding_of(attrs, x.shape, operation.output.shape)
    assert padding is not None
    options = {
        "StrideH": attrs.strides[0],
        "StrideW": attrs.strides[1],
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
    attrs = AlongAxis.of(operation)
    options = {"Axis": attrs.axis % len(operation.output.shape), **_fused(operation)}
    inputs = tuple(writer.variable(one) for one in operation.variables)
    writer.call("CONCATENATION", 2, operation, inputs, "ConcatenationOptions", options)


def _pad(writer: _Writer, operation: Operation) -> None:
    attrs, x = Pad.of(operation), operation.operand(0)
    behind = [
        size - one - before for size, one, before in zip(operation.output.shape, x.shape, attrs.before, strict=True)
    ]
    pads = writer.numbers_of(f"{operation.output.tensor}/pads", np.asarray([attrs.before, behind]).T)
    writer.call("PAD", 2, operation, (writer.variable(x), pads), "PadOptions")


def _mean(writer: _Writer, operation: Operation) -> None:
    attrs = Axes.of(operation)
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
