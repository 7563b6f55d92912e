"""Mutations of an ONNX model's types, constants and interface."""

import random
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.fuzzing.onnx_parts import ELEMS, NAMES, REALS, SMALL, a_graph, name, number, values


def change_type(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Change the type of an input, an output or a value."""
    graph = a_graph(model, rng)
    value = rng.choice([*graph.input, *graph.input, *graph.output, *graph.value_info])
    kind, roll = value.type, rng.random()
    if roll < 0.6 and kind.tensor_type.shape.dim:
        change_shape(kind.tensor_type.shape, rng)
    elif roll < 0.75:
        kind.tensor_type.elem_type = rng.choice(ELEMS)
    elif roll < 0.85:
        kind.tensor_type.ClearField("shape")
    elif roll < 0.9:
        kind.sequence_type.elem_type.tensor_type.elem_type = 1
    elif roll < 0.95:
        kind.optional_type.elem_type.tensor_type.elem_type = 1
    else:
        kind.ClearField("tensor_type")


def change_shape(shape: onnx.TensorShapeProto, rng: random.Random) -> None:
    """Change, name, add or remove a dimension."""
    roll = rng.random()
    dim = rng.choice(shape.dim)
    if roll < 0.5:
        dim.dim_value = number(rng)
    elif roll < 0.6:
        dim.dim_value = rng.choice((0, 1))
    elif roll < 0.7:
        dim.dim_param = rng.choice(NAMES)
    elif roll < 0.75:
        dim.Clear()
    elif roll < 0.85:
        del shape.dim[rng.randrange(len(shape.dim)) :]
    else:
        shape.dim.add().dim_value = rng.choice(SMALL)


def resize_everywhere(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Replace one size by another in inputs, outputs and declared values alike, so that more models stay valid."""
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    dims = [dim for value in infos for dim in value.type.tensor_type.shape.dim if dim.HasField("dim_value")]
    old, new = rng.choice(dims).dim_value, rng.choice((0, 0, 1, 2, 3, 5, 8, 17))
    for dim in dims:
        if dim.dim_value == old:
            dim.dim_value = new


def change_interface(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Add, remove or repeat inputs and outputs."""
    graph = a_graph(model, rng)
    side = rng.choice((graph.input, graph.output, graph.output, graph.value_info))
    roll = rng.random()
    if side and roll < 0.3:
        del side[rng.randrange(len(side))]
    elif side and roll < 0.5:
        side.add().CopyFrom(rng.choice(side))
    elif roll < 0.8:
        graph.output.add().name = rng.choice(values(graph))
    else:
        side.append(helper.make_tensor_value_info(name(graph, rng), rng.randint(1, 12), [number(rng)]))


def change_constant(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Change an initialiser."""
    change_tensor(rng.choice(a_graph(model, rng).initializer), rng, folder)


def change_tensor(tensor: TensorProto, rng: random.Random, folder: Path) -> None:
    """Change values, type, sizes, length or place of a tensor's data."""
    roll = rng.random()
    if roll < 0.45:
        change_data(tensor, rng)
    elif roll < 0.55:
        tensor.data_type = rng.choice(ELEMS)
    elif roll < 0.7 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = number(rng)
    elif roll < 0.75:
        tensor.dims.append(rng.choice(SMALL))
    elif roll < 0.85:
        tensor.raw_data = rng.choice((tensor.raw_data[:-1], tensor.raw_data + b"\1", b"", tensor.raw_data * 2))
    elif roll < 0.88:
        tensor.float_data.extend([1.0, 2.0])
    elif roll < 0.9:
        tensor.ClearField("raw_data")
        tensor.string_data.extend([b"\xff", b"a"])
    elif roll < 0.95:
        make_external(tensor, rng, folder)
    else:
        tensor.name = rng.choice(NAMES)


def change_data(tensor: TensorProto, rng: random.Random) -> None:
    """Put extreme numbers among a tensor's values."""
    try:
        data = numpy_helper.to_array(tensor).copy()
    except (KeyError, ValueError, TypeError, onnx.checker.ValidationError):  # it is external, say
        return
    if not data.size or data.dtype.kind not in "fiub":
        return
    count = rng.choice((1, 1, data.size))
    places = [rng.randrange(data.size) for _ in range(count)] if count == 1 else range(data.size)
    with np.errstate(all="ignore"):
        for place in places:
            new = rng.choice(REALS) if data.dtype.kind == "f" else number(rng)
            data.reshape(-1)[place] = np.asarray(new).astype(data.dtype)
    label = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(data, label))


def make_external(tensor: TensorProto, rng: random.Random, folder: Path) -> None:
    """Move a tensor's data into a file beside the model, with what may be wrong about that."""
    (folder / "data.bin").write_bytes(tensor.raw_data or b"\0" * 64)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    whole = ("0", "4", "-1", "-9223372036854775808", "99999999999", "1e3", "x", "", "٣", "9" * 40)
    places = (
        "data.bin",
        "../data.bin",
        "/etc/passwd",
        "",
        ".",
        "a\0b",
        "none.bin",
        "/dev/zero",
        "data.bin/",
        "x" * 5000,
    )
    entries = {"location": "data.bin" if rng.random() < 0.4 else rng.choice(places)}
    if rng.random() < 0.5:
        entries["offset"] = rng.choice(whole)
    if rng.random() < 0.5:
        entries["length"] = rng.choice(whole)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def constant_or_input(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Make an initialiser an input, or an input an initialiser."""
    graph = model.graph
    if graph.initializer and rng.random() < 0.5:
        place = rng.randrange(len(graph.initializer))
        tensor = graph.initializer[place]
        graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        if rng.random() < 0.7:
            del graph.initializer[place]
        return
    value = graph.input[rng.randrange(len(graph.input))]
    kind = value.type.tensor_type
    sizes = [dim.dim_value for dim in kind.shape.dim]
    if 0 <= int(np.prod(sizes)) < 10_000 and min(sizes, default=0) >= 0:
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        data = np.random.default_rng(rng.randrange(1000)).normal(0, 2, sizes).astype(dtype)
        graph.initializer.append(numpy_helper.from_array(data, value.name))
        if rng.random() < 0.7:
            graph.input.remove(value)


def make_sparse(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Turn an initialiser into a sparse one."""
    graph = model.graph
    tensor = graph.initializer[rng.randrange(len(graph.initializer))]
    indices = np.array([rng.choice((0, 1, 2, -1, 2**40))], np.int64)
    made = onnx.SparseTensorProto(dims=list(tensor.dims) or [4])
    made.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), tensor.name))
    made.indices.CopyFrom(numpy_helper.from_array(indices, "indices"))
    graph.initializer.remove(tensor)
    graph.sparse_initializer.append(made)
