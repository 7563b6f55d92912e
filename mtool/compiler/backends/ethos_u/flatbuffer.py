"""TFLite files: tensors and operators as the bytes of a flatbuffer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import flatbuffers
import numpy as np
import tflite

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array, Quant

_VERSION = 3  # of the schema
_ALIGNMENT = 16  # of constants
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
    graph_name = b.CreateString(name)
    lists = [_offsets(b, made), _numbers(b, inputs), _numbers(b, outputs), _offsets(b, calls)]
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, lists[0])
    tflite.SubGraphAddInputs(b, lists[1])
    tflite.SubGraphAddOutputs(b, lists[2])
    tflite.SubGraphAddOperators(b, lists[3])
    tflite.SubGraphAddName(b, graph_name)
    graphs = _offsets(b, [tflite.SubGraphEnd(b)])
    code_list, buffer_list = _offsets(b, codes), _offsets(b, buffers)
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, _VERSION)
    tflite.ModelAddOperatorCodes(b, code_list)
    tflite.ModelAddSubgraphs(b, graphs)
    tflite.ModelAddBuffers(b, buffer_list)
    b.Finish(tflite.ModelEnd(b), b"TFL3")
    return bytes(b.Output())


def _offsets(b: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return int(b.EndVector())


def _numbers(b: flatbuffers.Builder, numbers: Sequence[int]) -> int:
    return int(b.CreateNumpyVector(np.asarray(numbers, np.int32)))


def _buffer(b: flatbuffers.Builder, data: Array | None) -> int:
    content = 0
    if data is not None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        b.StartVector(1, raw.size, _ALIGNMENT)
        b.head -= raw.size
        b.Bytes[b.head : b.head + raw.size] = raw.tobytes()
        content = b.EndVector()
    tflite.BufferStart(b)
    if data is not None:
        tflite.BufferAddData(b, content)
    return int(tflite.BufferEnd(b))


def _tensor(b: flatbuffers.Builder, tensor: Tensor, buffer: int) -> int:
    name, shape = b.CreateString(tensor.name), _numbers(b, tensor.shape)
    grid = 0
    if tensor.quant is not None:
        scale = b.CreateNumpyVector(np.asarray(tensor.quant.scale, np.float32))
        points = b.CreateNumpyVector(np.asarray(tensor.quant.zero_point, np.int64))
        tflite.QuantizationParametersStart(b)
        tflite.QuantizationParametersAddScale(b, scale)
        tflite.QuantizationParametersAddZeroPoint(b, points)
        tflite.QuantizationParametersAddQuantizedDimension(b, tensor.quant.axis or 0)
        grid = tflite.QuantizationParametersEnd(b)
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, _TYPES[tensor.dtype])
    tflite.TensorAddBuffer(b, buffer)
    tflite.TensorAddName(b, name)
    if grid:
        tflite.TensorAddQuantization(b, grid)
    return int(tflite.TensorEnd(b))


def _code(b: flatbuffers.Builder, code: str, version: int) -> int:
    number = getattr(tflite.BuiltinOperator, code)
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, min(number, 127))
    tflite.OperatorCodeAddBuiltinCode(b, number)
    tflite.OperatorCodeAddVersion(b, version)
    return int(tflite.OperatorCodeEnd(b))


def _operator(b: flatbuffers.Builder, operator: Operator, code: int) -> int:
    options = 0
    if operator.table:
        getattr(tflite, f"{operator.table}Start")(b)
        for name, value in operator.options.items():
            getattr(tflite, f"{operator.table}Add{name}")(b, value)
        options = getattr(tflite, f"{operator.table}End")(b)
    inputs, outputs = _numbers(b, operator.inputs), _numbers(b, operator.outputs)
    tflite.OperatorStart(b)
    tflite.OperatorAddOpcodeIndex(b, code)
    tflite.OperatorAddInputs(b, inputs)
    tflite.OperatorAddOutputs(b, outputs)
    if operator.table:
        tflite.OperatorAddBuiltinOptionsType(b, getattr(tflite.BuiltinOptions, operator.table))
        tflite.OperatorAddBuiltinOptions(b, options)
    return int(tflite.OperatorEnd(b))
