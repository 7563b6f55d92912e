"""Read an ONNX file with its external data, and check it against the rules of ONNX."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from mtool.base.errors import ModelError
from mtool.compiler.frontend import external, tensors
from mtool.compiler.frontend.dimensions import open_negative_dimensions
from mtool.compiler.frontend.model_file import FLATBUFFER, check_is_file, names_locations
from mtool.compiler.frontend.separate import Separated, separate
from mtool.compiler.operators import operators
from mtool.compiler.operators.budget import LIMITS, Budget
from mtool.compiler.operators.problems import MICROSOFT
from mtool.compiler.operators.qonnx import DOMAINS

MIN_OPSET = 1


def read(path: Path, budget: Budget | None = None) -> onnx.ModelProto:
    """Parse and check a model file, with the external data that it uses from its own folder.

    Raises:
        UsageError: the file is missing.
        ModelError: the file is not a model, is malformed, or larger than the budget allows.
    """
    model = _unchecked(path, budget or Budget())
    check(model, path.name)
    return model


def read_separated(path: Path, budget: Budget) -> tuple[onnx.ModelProto, Separated]:
    """Read a model as `read` does, with its large initialisers as separate arrays, at most twice in memory.

    Raises:
        UsageError: the file is missing.
        ModelError: the file is not a model, is malformed, or larger than the budget allows.
    """
    whole = _unchecked(path, budget)
    _check_strings(whole, path.name)
    model, separated = separate(whole, budget)
    del whole
    check(model, path.name)
    return model, separated


def _unchecked(path: Path, budget: Budget) -> onnx.ModelProto:
    """Parse a model file and load its external data."""
    model = parsed(path, read_bytes(path, budget))
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path.name} does not contain a model", details=["it parses as ONNX, but its graph is empty"])
    _load_external_data(model, external.Folder(path), budget)
    return model


def read_bytes(path: Path, budget: Budget) -> bytes:
    """Read a model's file, after checking its size.

    Raises:
        UsageError: the file is missing.
        ModelError: it is empty, or larger than the budget allows.
    """
    check_is_file(path)
    with path.open("rb") as file:
        budget.check("file", os.fstat(file.fileno()).st_size, f"the file {path}")
        data = file.read()
    if not data:
        raise ModelError(f"{path.name} is empty", details=["0 bytes"], hint="export or download it again")
    return data


def parsed(path: Path, data: bytes) -> onnx.ModelProto:
    """Parse a model's bytes; nothing in it is checked.

    Raises:
        ModelError: they are not an ONNX model.
    """
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        if data[4:8] == FLATBUFFER:
            raise ModelError(
                f"{path.name} is a TFLite model; this command needs an ONNX model",
                hint="check, compile, build, flash, run, verify, bench and report take both formats",
            ) from None
        raise ModelError(
            f"{path.name} is not an ONNX model, or is truncated",
            details=[f"{len(data):,} bytes that are not an ONNX protobuf"],
            hint="export it again, or compare its size with the original file's",
        ) from None
    del model.training_info[:]
    repair(model)
    return model


def repair(model: onnx.ModelProto) -> None:
    """Correct what exporters write wrongly: dimensions of -1, QONNX's operators without an import of their domain."""
    open_negative_dimensions(model)
    used = {node.domain for graph in tensors.graphs(model) for node in graph.node}
    missing = used.intersection(DOMAINS) - {entry.domain for entry in model.opset_import}
    model.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in sorted(missing))


def external_tensors(model: onnx.ModelProto, folder: external.Folder) -> Iterator[onnx.TensorProto]:
    """Return the tensors with external data; initialisers that nothing reads are removed.

    Raises:
        ModelError: a location is outside the folder.
    """
    read_names = tensors.read_names(model)
    for graph in tensors.graphs(model):
        for index in reversed(range(len(graph.initializer))):
            tensor = graph.initializer[index]
            if external.is_external(tensor) and tensor.name not in read_names:
                folder.parts(tensor)
                del graph.initializer[index]
    return (tensor for tensor in tensors.every(model) if external.is_external(tensor))


def _load_external_data(model: onnx.ModelProto, folder: external.Folder, budget: Budget) -> None:
    total = 0
    for tensor in external_tensors(model, folder):
        extent = folder.extent(tensor)
        total += extent.length
        budget.afford("constants", total, f"tensor {tensor.name!r}, in {extent.location}")
        external.embed(tensor, b"".join(folder.blocks(tensor, extent)))


def check(model: onnx.ModelProto, title: str) -> None:
    """Check a model against the rules of ONNX.

    Raises:
        ModelError: it violates a rule, or its opset is too old, or newer than the installed onnx.
    """
    _check_strings(model, title)
    try:
        with _typed_outputs(model.graph), _foreign_nodes(model):
            onnx.checker.check_model(model, full_check=False)
    except (onnx.checker.ValidationError, UnicodeDecodeError) as invalid:
        lines = [line for line in str(invalid).strip().splitlines() if line.strip()]
        raise ModelError(f"{title} is not a valid ONNX model", details=lines[:4]) from None
    opset = opset_of(model)
    if opset is not None and opset < MIN_OPSET:
        raise ModelError(
            f"{title} has opset {opset}; mtool needs opset {MIN_OPSET} or newer",
            hint="convert the model with onnx.version_converter",
        )
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and opset > newest:
        raise ModelError(
            f"{title} has opset {opset}; the installed onnx {onnx.__version__} supports opsets up to {newest}",
            hint="run pip install --upgrade onnx, or convert the model with onnx.version_converter",
        )


def opset_of(model: onnx.ModelProto) -> int | None:
    """Return the version of ONNX's operators that a model uses; None: it uses none."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def with_opset(model: onnx.ModelProto, opset: int, title: str) -> onnx.ModelProto:
    """Return a model converted to another opset.

    Raises:
        ModelError: onnx can't convert it.
    """
    try:
        return onnx.version_converter.convert_version(model, opset)
    except Exception as refused:  # the converter's error classes share no other base
        raise ModelError(
            f"{title} can't be converted from opset {opset_of(model)} to {opset}",
            details=str(refused).splitlines()[:3],
        ) from None


@contextmanager
def _typed_outputs(graph: onnx.GraphProto) -> Iterator[None]:
    """Add a placeholder type, which the checker accepts, to outputs without one; the importer infers the real type."""
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


@contextmanager
def _foreign_nodes(model: onnx.ModelProto) -> Iterator[None]:
    """Move nodes that onnxruntime writes into ONNX's domain to its own, which the checker ignores."""
    nodes = [node for graph in tensors.graphs(model) for node in graph.node if not node.domain]
    foreign = [node for node in nodes if ("", node.op_type) in operators() and not onnx.defs.has(node.op_type)]
    imports = [onnx.helper.make_opsetid(MICROSOFT, 1)] * bool(foreign)
    model.opset_import.extend(imports)
    for node in foreign:
        node.domain = MICROSOFT
    try:
        yield
    finally:
        for node in foreign:
            node.domain = ""
        del model.opset_import[len(model.opset_import) - len(imports) :]


def _is_typed(kind: onnx.TypeProto) -> bool:
    """Whether a type is complete: for a tensor, it has an element type and a rank."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")


def reread(path: Path) -> onnx.ModelProto:
    """Read a model that has been compiled before: as `read`, without its limits.

    Raises:
        UsageError: the file is missing.
        ModelError: the file is not a model, or its external data is malformed or outside its folder.
    """
    return read(path, Budget(dict.fromkeys(LIMITS, 1 << 62)))


def runnable(path: Path) -> str | bytes:
    """Return a compiled model for onnxruntime: its path, or if it has external data, its bytes with that data inside.

    Raises:
        UsageError: the file is missing.
        ModelError: the file is not a model, or its external data is malformed or outside its folder.
    """
    return bytes(reread(path).SerializeToString()) if names_locations(path) else str(path)


def _check_strings(model: onnx.ModelProto, title: str) -> None:
    """Check every name, domain and description of a model.

    Raises:
        ModelError: one is not UTF-8; the message has the field.
    """
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        for field, value in _fields(message):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting += value if _is_repeated(value) else [value]
            elif field.type == FieldDescriptor.TYPE_STRING:
                for text in value if _is_repeated(value) else [value]:
                    if not isinstance(text, str):
                        raise ModelError(
                            f"{title} contains a name that is not UTF-8",
                            details=[f"{message.DESCRIPTOR.name}.{field.name}: {text[:60]!r}"],
                            hint="export it again with valid names",
                        )


def _fields(message: Any) -> list[tuple[FieldDescriptor, Any]]:
    """Return a message's fields; for a tensor, without its elements, which would be copied."""
    if not isinstance(message, onnx.TensorProto):
        return list(message.ListFields())
    fields = message.DESCRIPTOR.fields_by_name
    return [(fields[name], getattr(message, name)) for name in ("name", "doc_string", "external_data")]


def _is_repeated(value: object) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__len__")
