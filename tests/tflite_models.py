"""Small TFLite models, written with the flatbuffer schema; and LiteRT, which runs them as the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[Any]

TYPES = {
    np.dtype(kind): getattr(tflite.TensorType, np.dtype(kind).name.upper())
    for kind in (np.float32, np.float16, np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_)
}


VERSIONS = {"BROADCAST_TO": 2}  # of operators that have no first one


@dataclass(frozen=True)
class T:
    """A tensor: a constant if it has data. `scale`, `zero`: its quantisation, several along `axis`."""

    name: str
    shape: Sequence[int]
    dtype: Any = np.float32
    scale: float | Sequence[float] | None = None
    zero: int = 0
    axis: int = 0
    data: Array | None = None


@dataclass(frozen=True)
class Op:
    """An operator by the schema's names: `Op("ADD", ["a", "b"], ["y"], "AddOptions", {...})`."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def model(tensors: Sequence[T], ops: Sequence[Op], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return the file of a model."""
    b = flatbuffers.Builder(1024)
    place = {tensor.name: number for number, tensor in enumerate(tensors)}

    def numbers(values: Sequence[int]) -> Any:
        return b.CreateNumpyVector(np.asarray(values, np.int32))

    def table(kind: str, fields: Mapping[str, Any]) -> Any:
        getattr(tflite, f"{kind}Start")(b)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(b, value)
        return getattr(tflite, f"{kind}End")(b)

    def vector(kind: str, name: str, items: Sequence[Any]) -> Any:
        getattr(tflite, f"{kind}Start{name}Vector")(b, len(items))
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    buffers = [table("Buffer", {})]
    made = []
    for tensor in tensors:
        buffer = 0
        if tensor.data is not None:
            raw = np.frombuffer(np.ascontiguousarray(tensor.data, tensor.dtype).tobytes(), np.uint8)
            data = b.CreateNumpyVector(raw)
            buffer = len(buffers)
            buffers.append(table("Buffer", {"Data": data}))
        fields = {"Shape": numbers(tensor.shape), "Name": b.CreateString(tensor.name)}
        if tensor.scale is not None:
            scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
            quant = {
                "Scale": b.CreateNumpyVector(scales),
                "ZeroPoint": b.CreateNumpyVector(np.full(scales.size, tensor.zero, np.int64)),
                "QuantizedDimension": tensor.axis,
            }
            fields["Quantization"] = table("QuantizationParameters", quant)
        made.append(table("Tensor", {**fields, "Type": TYPES[np.dtype(tensor.dtype)], "Buffer": buffer}))
    kinds = list(dict.fromkeys(op.kind for op in ops))
    codes = []
    for kind in kinds:
        number = getattr(tflite.BuiltinOperator, kind)
        code = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": VERSIONS.get(kind, 1)}
        codes.append(table("OperatorCode", code))
    operators = []
    for op in ops:
        fields = {"Inputs": numbers([place.get(n, -1) for n in op.inputs])}
        fields["Outputs"] = numbers([place[n] for n in op.outputs])
        if op.options:
            fields["BuiltinOptions"] = table(op.options, op.values)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, op.options)
        operators.append(table("Operator", {**fields, "OpcodeIndex": kinds.index(op.kind)}))
    graph = {
        "Tensors": vector("SubGraph", "Tensors", made),
        "Inputs": numbers([place[n] for n in inputs]),
        "Outputs": numbers([place[n] for n in outputs]),
        "Operators": vector("SubGraph", "Operators", operators),
    }
    root = {
        "Subgraphs": vector("Model", "Subgraphs", [table("SubGraph", graph)]),
        "OperatorCodes": vector("Model", "OperatorCodes", codes),
        "Buffers": vector("Model", "Buffers", buffers),
        "Version": 3,
    }
    b.Finish(table("Model", root), b"TFL3")
    return bytes(b.Output())


def litert(data: bytes, feeds: Mapping[str, Array], *, reference: bool = False) -> list[Array]:
    """Return the outputs by LiteRT: its reference kernels, or those that it takes by default (XNNPACK's)."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    how = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=how, num_threads=1)
    interpreter.allocate_tensors()
    for put in interpreter.get_input_details():
        interpreter.set_tensor(put["index"], feeds[put["name"]])
    interpreter.invoke()
    return [interpreter.get_tensor(put["index"]) for put in interpreter.get_output_details()]
