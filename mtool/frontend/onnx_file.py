"""Read an ONNX file safely: parse, check, external data, symbolic dimensions."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from mtool.errors import ModelError, UsageError
from mtool.frontend.importer import import_graph
from mtool.ir import Graph

MIN_OPSET = 7


def load(path: Path, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an ONNX model (opset 7 or newer) and return its graph.

    Args:
        path: the model file.
        dims: values for symbolic dimensions, by name.

    Raises:
        UsageError: the file is missing, or `dims` names no dimension of the model.
        ModelError: the file is not a model, is malformed, has an unbound dimension, or holds
            operators that can't be compiled (all of them are listed).
    """
    model = read(path)
    _bind_dims(model, dims or {}, path)
    return import_graph(model, _c_name(path.stem))


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
        raise ModelError(
            f"{path.name} is not an ONNX model, or is cut short",
            details=[f"{path.stat().st_size:,} bytes that are not an ONNX protobuf"],
            hint="export it again, or compare its size with the original's",
        ) from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path.name} holds no model", details=["it parses as ONNX, but its graph is empty"])
    _load_external_data(model, path)
    try:
        onnx.checker.check_model(model, full_check=False)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as invalid:
        lines = [line for line in str(invalid).strip().splitlines() if line.strip()]
        raise ModelError(f"{path.name} breaks the ONNX rules", details=lines[:4]) from None
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if opset is not None and opset < MIN_OPSET:
        raise ModelError(
            f"{path.name} has opset {opset}; mtool reads opset {MIN_OPSET} and newer",
            hint="convert it with onnx.version_converter",
        )
    return model


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


def _bind_dims(model: onnx.ModelProto, dims: Mapping[str, int], path: Path) -> None:
    """Give every dimension of every input its number."""
    initialised = {tensor.name for tensor in model.graph.initializer}
    unbound, used = [], set()
    for value in model.graph.input:
        if value.name in initialised:
            continue
        if not value.type.HasField("tensor_type"):
            raise ModelError(f"input {value.name!r} of {path.name} is not a tensor")
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
            f"{path.name} has {'a dimension' if len(names) == 1 else 'dimensions'} without a value",
            details=[text for _, text in unbound],
            hint="give " + " ".join(f"--dim {name}=1" for name in names),
        )
    unknown = sorted(set(dims) - used)
    if unknown:
        raise UsageError(f"{path.name} has no symbolic dimension named {', '.join(unknown)}")


def _c_name(stem: str) -> str:
    """Return a C identifier for a model."""
    name = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in stem).strip("_").lower()
    return name if name and not name[0].isdigit() else f"model_{name}".rstrip("_")
