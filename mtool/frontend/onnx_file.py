"""Read an ONNX file safely: parse, check, external data, symbolic dimensions, inputs that are made constants."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from mtool.errors import ModelError, UsageError
from mtool.frontend.given import NOTHING, Given
from mtool.frontend.importer import import_graph
from mtool.frontend.states import bind_states
from mtool.frontend.strings import check_strings
from mtool.identifiers import model_name
from mtool.ir import Graph
from mtool.ir.types import Array
from mtool.text import argument

MIN_OPSET = 1
FLATBUFFER = b"TFL3"  # the file identifier of TFLite models, at byte 4


def load(path: Path, given: Given = NOTHING) -> Graph:
    """Read an ONNX model (of any opset) and return its graph.

    Args:
        path: the model file.
        given: what is said of the model beside it.

    Raises:
        UsageError: the file is missing, or what is given names nothing of the model.
        NeedsValues: an operator has to know the values of inputs of the model; the error names them.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    return graph_of(read(path), path.name, path.stem, given)


def from_proto(model: onnx.ModelProto, name: str, given: Given = NOTHING) -> Graph:
    """Return the graph of a model in memory (its data inside, none external); as `load` otherwise."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _check(copy, name)
    return graph_of(copy, name, name, given)


def graph_of(model: onnx.ModelProto, title: str, stem: str, given: Given) -> Graph:
    """Return the graph of a checked model, which is changed; `title` is for messages, `stem` gives its C name.

    Raises:
        UsageError: what is given names nothing of the model.
        ModelError: it has an unbound dimension, or operators that can't be compiled (all of them are listed).
    """
    _fix_inputs(model, given.constants, title)
    initial = _initial_values(model, {value for _, value in given.states})
    _bind_dims(model, given.dims, title)
    return bind_states(import_graph(model, model_name(stem), given.maxima), given.states, initial, title)


def _initial_values(model: onnx.ModelProto, inputs: Collection[str]) -> dict[str, Array]:
    """Take the initialisers of these inputs out of the model and return them."""
    inputs = {value.name for value in model.graph.input if value.name in inputs}
    found = [tensor for tensor in model.graph.initializer if tensor.name in inputs]
    for tensor in found:
        model.graph.initializer.remove(tensor)
    return {tensor.name: np.asarray(onnx.numpy_helper.to_array(tensor)) for tensor in found}


def _fix_inputs(model: onnx.ModelProto, constants: Mapping[str, Array], title: str) -> None:
    """Turn inputs into initialisers."""
    inputs = {value.name: value for value in model.graph.input}
    unknown = sorted(set(constants) - set(inputs))
    if unknown:
        raise UsageError(f"{title} has no input named {', '.join(unknown)}")
    for name, data in constants.items():
        elem_type = inputs[name].type.tensor_type.elem_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(elem_type)
        model.graph.input.remove(inputs[name])
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data).astype(dtype), name))


def read_bound(path: Path, given: Given) -> onnx.ModelProto:
    """Read an ONNX model whose symbolic dimensions have their values and whose given inputs are initialisers.

    Raises:
        UsageError: the file is missing, or what is given names nothing of the model.
        ModelError: the file is not a model, is malformed or has an unbound dimension.
    """
    model = read(path)
    _fix_inputs(model, given.constants, path.name)
    _bind_dims(model, given.dims, path.name)
    return model


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a model file, 64 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(path: Path) -> onnx.ModelProto:
    """Parse and check a model file, with the external data that lies in its own folder."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="give the path of an .onnx file")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError:
        if is_flatbuffer(path):
            raise ModelError(
                f"{path.name} is a TFLite model; this needs an ONNX model",
                hint="check, compile, build, flash, run, verify, bench and report take either",
            ) from None
        raise ModelError(
            f"{path.name} is not an ONNX model, or is cut short",
            details=[f"{path.stat().st_size:,} bytes that are not an ONNX protobuf"],
            hint="export it again, or compare its size with the original's",
        ) from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path.name} holds no model", details=["it parses as ONNX, but its graph is empty"])
    _load_external_data(model, path)
    _check(model, path.name)
    return model


def is_flatbuffer(path: Path) -> bool:
    """Whether a file begins as TFLite models do."""
    try:
        with path.open("rb") as file:
            return file.read(8)[4:] == FLATBUFFER
    except OSError:
        return False


def _check(model: onnx.ModelProto, title: str) -> None:
    check_strings(model, title)
    try:
        with _typed_outputs(model.graph):
            onnx.checker.check_model(model, full_check=False)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as invalid:
        lines = [line for line in str(invalid).strip().splitlines() if line.strip()]
        raise ModelError(f"{title} breaks the ONNX rules", details=lines[:4]) from None
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is not None and opset < MIN_OPSET:
        raise ModelError(
            f"{title} has opset {opset}; mtool reads opset {MIN_OPSET} and newer",
            hint="convert it with onnx.version_converter",
        )


@contextmanager
def _typed_outputs(graph: onnx.GraphProto) -> Iterator[None]:
    """Give outputs without a type one for the checker, which wants that; the importer infers the true one."""
    placeholder = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ())
    untyped = [value for value in graph.output if not _is_typed(value.type)]
    before = [(value, onnx.TypeProto.FromString(value.type.SerializeToString())) for value in untyped]
    for value in untyped:
        value.type.CopyFrom(placeholder)
    try:
        yield
    finally:
        for value, kind in before:
            value.type.CopyFrom(kind)


def _is_typed(kind: onnx.TypeProto) -> bool:
    """Whether a type says what it is; for a tensor, which elements it has and its rank."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    folder = path.parent.resolve()
    for tensor in onnx.external_data_helper._get_all_tensors(model):
        if not onnx.external_data_helper.uses_external_data(tensor):
            continue
        location = onnx.external_data_helper.ExternalDataInfo(tensor).location
        target = (folder / location).resolve()
        if not target.is_relative_to(folder):
            raise ModelError(
                f"{path.name} wants to read a file outside its folder",
                details=[f"tensor {tensor.name!r}: {location}"],
                hint="external data is read only from the model's own folder",
            )
        if not target.is_file():
            raise ModelError(f"{path.name} lacks its external data", details=[f"tensor {tensor.name!r}: {location}"])
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as failed:
            raise ModelError(
                f"external data of {path.name} can't be read", details=[f"tensor {tensor.name!r}: {failed}"]
            ) from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _bind_dims(model: onnx.ModelProto, dims: Mapping[str, int], title: str) -> None:
    """Give every dimension of every input its number."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    unbound, used = [], set()
    for value in model.graph.input:
        if value.name in initialised:
            continue
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"input {value.name!r} of {title} is not a tensor")
        for number, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                continue
            name = dim.dim_param or f"{value.name}_{number}"
            if name in dims:
                used.add(name)
                dim.Clear()
                dim.dim_value = dims[name]
            else:
                unbound.append((name, f"input {value.name!r}, dimension {number}: {name}"))
    if unbound:
        names = list(dict.fromkeys(name for name, _ in unbound))
        raise ModelError(
            f"{title} has {'a dimension' if len(names) == 1 else 'dimensions'} without a value",
            details=[text for _, text in unbound],
            hint="give " + " ".join(f"--dim {argument(name)}=1" for name in names),
        )
    unknown = sorted(set(dims) - used)
    if unknown:
        raise UsageError(f"{title} has no symbolic dimension named {', '.join(unknown)}")
