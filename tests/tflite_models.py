"""Small TFLite models, written with the flatbuffer schema; and LiteRT, the reference."""

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
    for kind in (np.float32, np.float16, np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint32, np.uint64, bool)
}
KINDS = {"INT2": 19, "UINT4": 20, **vars(tflite.TensorType)}


VERSIONS = {"BROADCAST_TO": 2}  # of operators that have no first one


@dataclass(frozen=True)
class Sparse:
    """A sparse encoding: for each level of `order` a size, or the segments and indices that are there."""

    order: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class T:
    """A tensor: a constant if it has data. `scale`, `zero`: its quantization, several along `axis`.

    `kind` is the schema's type where NumPy has none; `signature` is its shape with -1 for what is open; `sparse` says
    where the data lie; `details` is the number of its QuantizationDetails; `blocks` are the number of the tensor of
    scales, of zero points or -1, and a block's size.
    """

    name: str
    shape: Sequence[int]
    dtype: Any = np.float32
    scale: float | Sequence[float] | None = None
    zero: int = 0
    axis: int = 0
    data: Array | None = None
    kind: str = ""
    signature: Sequence[int] = ()
    sparse: Sparse | None = None
    variable: bool = False
    details: int = 0
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class Op:
    """An operator by the schema's names: `Op("ADD", ["a", "b"], ["y"], "AddOptions", {...})`.

    That of a custom operator is `CUSTOM name`, its options are `custom`. Values may be strings, bytes and arrays.
    """

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    options: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    intermediates: Sequence[str] = ()
    custom: bytes = b""


@dataclass(frozen=True)
class Graph:
    """A subgraph."""

    tensors: Sequence[T]
    ops: Sequence[Op]
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()


def model(
    tensors: Sequence[T],
    ops: Sequence[Op],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *others: Graph,
    metadata: Mapping[str, Array] | None = None,
    versions: Mapping[str, int] = VERSIONS,
) -> bytes:
    """Return the file of a model, with other subgraphs behind the first, metadata, and versions of operators."""
    b = flatbuffers.Builder(1024)

    def numbers(values: Sequence[int]) -> Any:
        return b.CreateNumpyVector(np.asarray(values, np.int32))

    def table(kind: str, fields: Mapping[str, Any]) -> Any:
        fields = {name: b.CreateString(v) if isinstance(v, str) else v for name, v in fields.items()}
        fields = {name: b.CreateByteVector(v) if isinstance(v, bytes) else v for name, v in fields.items()}
        fields = {name: b.CreateNumpyVector(v) if isinstance(v, np.ndarray) else v for name, v in fields.items()}
        getattr(tflite, f"{kind}Start")(b)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(b, value)
        return getattr(tflite, f"{kind}End")(b)

    def vector(kind: str, name: str, items: Sequence[Any]) -> Any:
        getattr(tflite, f"{kind}Start{name}Vector")(b, len(items))
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return b.EndVector()

    def sparsity(sparse: Sparse) -> Any:
        levels = []
        for level in sparse.levels:
            fields: dict[str, Any] = {"Format": 0, "DenseSize": level}
            if not isinstance(level, int):
                kind = tflite.SparseIndexVector.Int32Vector
                segments, indices = (table("Int32Vector", {"Values": numbers(values)}) for values in level)
                fields = {"Format": 1, "ArraySegmentsType": kind, "ArraySegments": segments}
                fields |= {"ArrayIndicesType": kind, "ArrayIndices": indices}
            levels.append(table("DimensionMetadata", fields))
        order, blocks = numbers(sparse.order), numbers(sparse.blocks)
        metadata = vector("SparsityParameters", "DimMetadata", levels)
        return table("SparsityParameters", {"TraversalOrder": order, "BlockMap": blocks, "DimMetadata": metadata})

    buffers = [table("Buffer", {})]
    graphs = [Graph(tensors, ops, inputs, outputs), *others]
    kinds = list(dict.fromkeys(op.kind for graph in graphs for op in graph.ops))
    codes = []
    for kind in kinds:
        number = getattr(tflite.BuiltinOperator, kind.split()[0])
        code = {
            "DeprecatedBuiltinCode": min(number, 127),
            "BuiltinCode": number,
            "Version": {**VERSIONS, **versions}.get(kind, 1),
        }
        if kind.startswith("CUSTOM "):
            code["CustomCode"] = kind.split()[1]
        codes.append(table("OperatorCode", code))

    def subgraph(graph: Graph) -> Any:
        place = {tensor.name: number for number, tensor in enumerate(graph.tensors)}
        made = []
        for tensor in graph.tensors:
            buffer = 0
            if tensor.data is not None:
                raw = np.frombuffer(np.ascontiguousarray(tensor.data, tensor.dtype).tobytes(), np.uint8)
                data = b.CreateNumpyVector(raw)
                buffer = len(buffers)
                buffers.append(table("Buffer", {"Data": data}))
            fields = {"Shape": numbers(tensor.shape), "Name": b.CreateString(tensor.name)}
            if tensor.signature:
                fields["ShapeSignature"] = numbers(tensor.signature)
            if tensor.sparse:
                fields["Sparsity"] = sparsity(tensor.sparse)
            if tensor.variable:
                fields["IsVariable"] = True
            if tensor.scale is not None:
                scales = np.atleast_1d(np.asarray(tensor.scale, np.float32))
                quant = {
                    "Scale": b.CreateNumpyVector(scales),
                    "ZeroPoint": b.CreateNumpyVector(np.full(scales.size, tensor.zero, np.int64)),
                    "QuantizedDimension": tensor.axis,
                }
                if tensor.details:
                    quant |= {"DetailsType": tensor.details, "Details": table("CustomQuantization", {})}
                fields["Quantization"] = table("QuantizationParameters", quant)
            if tensor.blocks:
                b.StartObject(len(tensor.blocks))
                for slot, value in enumerate(tensor.blocks):
                    b.PrependInt32Slot(slot, value, 0)
                quant = {"DetailsType": 2, "Details": b.EndObject()}
                fields["Quantization"] = table("QuantizationParameters", quant)
            type_ = KINDS[tensor.kind] if tensor.kind else TYPES[np.dtype(tensor.dtype)]
            made.append(table("Tensor", {**fields, "Type": type_, "Buffer": buffer}))
        operators = []
        for op in graph.ops:
            fields = {"Inputs": numbers([place.get(n, -1) for n in op.inputs])}
            fields["Outputs"] = numbers([place[n] for n in op.outputs])
            if op.intermediates:
                fields["Intermediates"] = numbers([place[n] for n in op.intermediates])
            if op.options:
                second = "" if hasattr(tflite.BuiltinOptions, op.options) else "2"
                types = tflite.BuiltinOptions2 if second else tflite.BuiltinOptions
                fields[f"BuiltinOptions{second}"] = table(op.options, op.values)
                fields[f"BuiltinOptions{second}Type"] = getattr(types, op.options)
            if op.custom:
                fields["CustomOptions"] = b.CreateByteVector(op.custom)
            operators.append(table("Operator", {**fields, "OpcodeIndex": kinds.index(op.kind)}))
        parts = {
            "Tensors": vector("SubGraph", "Tensors", made),
            "Inputs": numbers([place[n] for n in graph.inputs]),
            "Outputs": numbers([place[n] for n in graph.outputs]),
            "Operators": vector("SubGraph", "Operators", operators),
        }
        return table("SubGraph", parts)

    whole = [subgraph(graph) for graph in graphs]
    reported = []
    for name, data in (metadata or {}).items():
        buffers.append(table("Buffer", {"Data": np.frombuffer(data.tobytes(), np.uint8)}))
        reported.append(table("Metadata", {"Name": name, "Buffer": len(buffers) - 1}))
    root = {
        **({"Metadata": vector("Model", "Metadata", reported)} if reported else {}),
        "Subgraphs": vector("Model", "Subgraphs", whole),
        "OperatorCodes": vector("Model", "OperatorCodes", codes),
        "Buffers": vector("Model", "Buffers", buffers),
        "Version": 3,
    }
    b.Finish(table("Model", root), b"TFL3")
    return bytes(b.Output())


def litert(data: bytes, feeds: Mapping[str, Array], *, reference: bool = False) -> list[Array]:
    """Return the outputs by LiteRT: its reference kernels, or those that it takes by default (XNNPACK's)."""
    return litert_sequence(data, [feeds], reference=reference)[0]


def litert_sequence(
    data: bytes, sequence: Sequence[Mapping[str, Array]], *, reference: bool = False
) -> list[list[Array]]:
    """Return the outputs of each call of a sequence, between which variables are kept."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    how = OpResolverType.BUILTIN_REF if reference else OpResolverType.AUTO
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=how, num_threads=1)
    interpreter.allocate_tensors()
    found = []
    for feeds in sequence:
        for put in interpreter.get_input_details():
            interpreter.set_tensor(put["index"], feeds[put["name"]])
        interpreter.invoke()
        found.append([interpreter.get_tensor(put["index"]) for put in interpreter.get_output_details()])
    return found
