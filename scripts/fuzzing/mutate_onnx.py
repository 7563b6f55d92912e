"""Mutations of ONNX models that know what a model is made of."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

Mutation = Callable[[ModelProto, random.Random, Path], None]

NUMBERS = (-(2**63), -(2**31) - 1, -(2**31), -1000, -7, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 255, 1000,
           65536, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)  # fmt: skip
SMALL = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3.4e38, -3.4e38, 1e30, -1e-6, 89.0, 1e-3, 255.0,
         float("nan"), float("inf"), float("-inf"))  # fmt: skip
NAMES = ("", " ", "x", "y", "*/", "/* ", "a\nb", "??/", "\\", '"', "%s%n", "int", "class", "NULL", "main", "mt_model",
         "1a", "a.b", "a/b", "a_b", "a-b", "../x", "é", "\x1b[2J", "\u202e", "x" * 300, "{{7*7}}", "${x}", "stdint",
         "arena", "weights", "inputs", "0", "a\0b")  # fmt: skip
ELEMS = (*range(27), 99, -1)


def graphs(model: ModelProto) -> list[GraphProto]:
    """Return the graph and all graphs inside its nodes."""
    found, queue = [], [model.graph]
    while queue:
        graph = queue.pop()
        found.append(graph)
        for node in graph.node:
            for attr in node.attribute:
                queue += [attr.g] if attr.type == AttributeProto.GRAPH else attr.graphs
    return found


def a_graph(model: ModelProto, rng: random.Random) -> GraphProto:
    """Choose a graph, mostly the outermost."""
    found = graphs(model)
    return found[0] if rng.random() < 0.5 else rng.choice(found)


def a_node(model: ModelProto, rng: random.Random) -> NodeProto:
    """Choose a node of any graph or function.

    Raises:
        IndexError: there is none.
    """
    nodes = list(a_graph(model, rng).node)
    if model.functions and rng.random() < 0.3:
        nodes = list(rng.choice(model.functions).node)
    return rng.choice(nodes)


def values(graph: GraphProto) -> list[str]:
    """Return the names of all values of a graph."""
    names = [value.name for value in (*graph.input, *graph.initializer)]
    return names + [value for node in graph.node for value in node.output]


def number(rng: random.Random) -> int:
    """Draw an integer, mostly a plausible one."""
    return rng.choice(SMALL if rng.random() < 0.6 else NUMBERS)


def name(graph: GraphProto, rng: random.Random) -> str:
    """Draw a name: one that is in use, or a hostile one."""
    return rng.choice(values(graph) or [""]) if rng.random() < 0.5 else rng.choice(NAMES)


# Attributes.


def change_attribute(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Give an attribute another value of its type."""
    attr = rng.choice(a_node(model, rng).attribute)
    kind = attr.type
    if kind == AttributeProto.INT:
        attr.i = number(rng)
    elif kind == AttributeProto.FLOAT:
        attr.f = rng.choice(REALS)
    elif kind == AttributeProto.STRING:
        words = ("linear", "reflect", "NOTSET", "SAME_LOWER", "VALID", "border", "min", "bij,bjk->bik", "...i->i")
        attr.s = rng.choice([*NAMES, *words, attr.s.decode(errors="replace").lower()]).encode()
        if rng.random() < 0.1:
            attr.s = b"\xff\xfe"
    elif kind in (AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS):
        change_list(attr.ints or attr.floats or attr.strings, kind, rng)
    elif kind == AttributeProto.TENSOR:
        change_tensor(attr.t, rng, folder)
    else:
        attr.type = rng.randint(0, 15)


def change_list(items: list, kind: int, rng: random.Random) -> None:
    """Change, add or remove an item of an attribute's list."""
    item: object = number(rng) if kind == AttributeProto.INTS else rng.choice(REALS)
    if kind == AttributeProto.STRINGS:
        item = rng.choice(NAMES).encode()
    if items and rng.random() < 0.6:
        items[rng.randrange(len(items))] = item
    elif items and rng.random() < 0.5:
        del items[rng.randrange(len(items)) :]
    else:
        items.extend([item] * rng.choice((1, 1, 2, 9)))


def drop_attribute(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Remove an attribute."""
    node = a_node(model, rng)
    del node.attribute[rng.randrange(len(node.attribute))]


def add_attribute(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Add an attribute of the operator's schema, or one of a wrong name or type."""
    node = a_node(model, rng)
    known: list[str] = []
    if onnx.defs.has(node.op_type, node.domain):
        known = list(onnx.defs.get_schema(node.op_type, node.domain).attributes)
    label = rng.choice(known) if known and rng.random() < 0.9 else rng.choice(["axis", "axes", "to", "value", *NAMES])
    options = (number(rng), [number(rng) for _ in range(rng.randint(1, 4))], rng.choice(REALS), rng.choice(NAMES))
    made = helper.make_attribute(label, rng.choice(options))
    if rng.random() < 0.1:
        made.ref_attr_name = rng.choice(NAMES)
    node.attribute.append(made)


def retype_attribute(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Say that an attribute is of another type, or name it otherwise."""
    attr = rng.choice(a_node(model, rng).attribute)
    if rng.random() < 0.6:
        attr.type = rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 99))
    else:
        attr.name = rng.choice(["axis", "body", "else_branch", *NAMES])


# Nodes.


def change_operator(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Make a node another operator."""
    node = a_node(model, rng)
    if rng.random() < 0.1:
        node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "ai.onnx", "own", "mtool", rng.choice(NAMES)))
    else:
        node.op_type = rng.choice(OPERATORS)
        node.domain = ""


OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


def remove_node(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Remove a node, or what a graph returns."""
    graph = a_graph(model, rng)
    del graph.node[rng.randrange(len(graph.node))]


def copy_node(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Repeat a node, with fresh outputs or with the same."""
    graph = a_graph(model, rng)
    made = NodeProto.FromString(rng.choice(graph.node).SerializeToString())
    if rng.random() < 0.8:
        for place, value in enumerate(made.output):
            made.output[place] = f"{value}_again" if value else ""
        if made.output and rng.random() < 0.8:
            graph.output.add().name = made.output[0]
    if rng.random() < 0.5:
        made.name = rng.choice(NAMES)
    graph.node.insert(rng.randint(0, len(graph.node)), made) if rng.random() < 0.3 else graph.node.append(made)


def swap_nodes(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Let two nodes change places."""
    nodes = a_graph(model, rng).node
    one, two = rng.randrange(len(nodes)), rng.randrange(len(nodes))
    first, second = nodes[one].SerializeToString(), nodes[two].SerializeToString()
    nodes[one].ParseFromString(second)
    nodes[two].ParseFromString(first)


def rename_node(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Give a node or a graph a hostile name."""
    a_node(model, rng).name = rng.choice(NAMES)
    if rng.random() < 0.2:
        model.graph.name = rng.choice(NAMES)


def rewire_input(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Let a node read another value: of before, of behind (a cycle), of nowhere."""
    graph = a_graph(model, rng)
    node = rng.choice(graph.node)
    if node.input and rng.random() < 0.8:
        node.input[rng.randrange(len(node.input))] = name(graph, rng)
    elif node.input and rng.random() < 0.5:
        del node.input[rng.randrange(len(node.input)) :]
    else:
        node.input.extend([name(graph, rng)] * rng.choice((1, 1, 2, 40)))


def rename_output(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Let a node write a value of another name, perhaps one that is taken; add or drop an output."""
    graph = a_graph(model, rng)
    node = rng.choice(graph.node)
    if node.output and rng.random() < 0.6:
        node.output[rng.randrange(len(node.output))] = name(graph, rng)
    elif node.output and rng.random() < 0.5:
        del node.output[rng.randrange(len(node.output)) :]
    else:
        node.output.append(name(graph, rng))


def rename_value(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Rename a value everywhere in its graph, which leaves the model valid if the new name is free."""
    graph = a_graph(model, rng)
    old, new = rng.choice(values(graph)), rng.choice(NAMES)
    for node in graph.node:
        for side in (node.input, node.output):
            for place, value in enumerate(side):
                if value == old:
                    side[place] = new
    for item in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        if item.name == old:
            item.name = new


# Types of inputs, outputs and values.


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


# Constants.


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
    except (KeyError, ValueError, TypeError):
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


# The whole model.


def change_versions(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Change the opset, the version of the format, or a domain."""
    roll = rng.random()
    if roll < 0.7 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice((*range(1, 28), 0, -1, 99, 2**40))
    elif roll < 0.8:
        model.ir_version = rng.choice((0, 1, 3, 7, 13, 99, -1))
    elif roll < 0.9:
        model.opset_import.add(domain=rng.choice(("", "ai.onnx", "own", "com.microsoft")), version=number(rng))
    else:
        del model.opset_import[rng.randrange(len(model.opset_import)) :]


def quantise_value(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put QuantizeLinear and DequantizeLinear on what a node reads."""
    graph = a_graph(model, rng)
    places = [(node, place) for node in graph.node for place, value in enumerate(node.input) if value]
    node, place = rng.choice(places)
    value, tag = node.input[place], f"q{rng.randrange(10**6)}"
    count = rng.choice((0, 0, 0, 0, 1, 2, 3, 4))
    scale = np.array([rng.choice((0.01, 0.05, 0.1, 1.0, *REALS)) for _ in range(count or 1)], np.float32)
    dtype = rng.choice((np.int8, np.uint8, np.int16, np.uint16, np.int32))
    zero = np.array([rng.choice((0, 0, 3, 100, 127)) for _ in range(count or 1)], dtype)
    shape = (count,) if count else ()
    attrs = {"axis": rng.choice((0, 1, -1, 2))} if rng.random() < 0.5 else {}
    if rng.random() < 0.1:
        attrs["block_size"] = rng.choice((1, 2, 3, -1, 2**40))
    graph.initializer.append(numpy_helper.from_array(scale.reshape(shape), f"{tag}s"))
    graph.initializer.append(numpy_helper.from_array(zero.reshape(shape), f"{tag}z"))
    nodes = [
        helper.make_node("QuantizeLinear", [value, f"{tag}s", f"{tag}z"], [f"{tag}q"], **attrs),
        helper.make_node("DequantizeLinear", [f"{tag}q", f"{tag}s", f"{tag}z"], [f"{tag}d"], **attrs),
    ]
    node.input[place] = f"{tag}d"
    at = next(number for number, other in enumerate(graph.node) if other is node or other == node)
    for made in reversed(nodes):
        graph.node.insert(at, made)


def insert_operator(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put an operator of one input in front of a node."""
    graph = a_graph(model, rng)
    at = rng.randrange(len(graph.node))
    node = graph.node[at]
    place = rng.randrange(len(node.input))
    tag = f"i{rng.randrange(10**6)}"
    choices: Sequence[tuple[str, dict[str, object]]] = (
        ("Relu", {}), ("Transpose", {}), ("Softmax", {"axis": rng.choice((0, 1, -1))}), ("Identity", {}),
        ("Cast", {"to": rng.choice(ELEMS)}), ("Flatten", {"axis": rng.choice(SMALL)}), ("Neg", {}), ("Softplus", {}),
        ("Transpose", {"perm": rng.choice(([1, 0], [0, 2, 1], [0, 2, 3, 1], [0, 1]))}), ("Shape", {}), ("Abs", {}),
        ("GlobalAveragePool", {}), ("ReduceMax", {"keepdims": 0}), ("CumSum", {}), ("ArgMax", {"axis": 0}),
    )  # fmt: skip
    kind, attrs = rng.choice(choices)
    if kind == "Cast" and attrs["to"] == -1:
        attrs = {"to": 1}
    graph.node.insert(at, helper.make_node(kind, [node.input[place]], [tag], **attrs))
    graph.node[at + 1].input[place] = tag


def grow(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Append a chain that squares, repeats or copies a value, to make little describe much."""
    graph = model.graph
    value = rng.choice(values(graph))
    chain = rng.choice(("square", "concat", "relu", "tile", "expand", "range"))
    if chain in ("tile", "expand", "range"):
        sizes = np.array([rng.choice((2, 1000, 2**20, 2**31, 2**40)) for _ in range(rng.randint(1, 3))], np.int64)
        graph.initializer.append(numpy_helper.from_array(sizes, "grow"))
        op = {"tile": "Tile", "expand": "Expand", "range": "ConstantOfShape"}[chain]
        graph.node.append(helper.make_node(op, ["grow"] if chain == "range" else [value, "grow"], ["grown"]))
        value = "grown"
    else:
        for step in range(rng.choice((3, 12, 30, 200) if chain != "concat" else (3, 12, 30))):
            op = {"square": "Mul", "concat": "Concat", "relu": "Relu"}[chain]
            attrs = {"axis": 0} if chain == "concat" else {}
            inputs = [value] if chain == "relu" else [value, value]
            graph.node.append(helper.make_node(op, inputs, [f"grow{step}"], **attrs))
            value = f"grow{step}"
    graph.output.add().name = value


def wrap(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Put a node into the branches of an If, the body of a Loop or of a Scan, or into a function."""
    graph = a_graph(model, rng)
    at = rng.randrange(len(graph.node))
    node = NodeProto.FromString(graph.node[at].SerializeToString())
    tag = f"w{rng.randrange(10**6)}"
    outputs = [value for value in node.output if value]
    kind = rng.choice(("If", "Loop", "Scan", "function"))
    if kind == "function":
        inner = NodeProto.FromString(node.SerializeToString())
        if rng.random() < 0.2:
            inner.op_type, inner.domain = tag, "own"  # calls itself
        formal = list(dict.fromkeys(value for value in node.input if value))
        calls = [inner] * rng.choice((1, 1, 2))
        made = helper.make_function("own", tag, formal, outputs, calls, list(model.opset_import))
        model.functions.append(made)
        if not any(entry.domain == "own" for entry in model.opset_import):
            model.opset_import.add(domain="own", version=1)
        call = helper.make_node(tag, formal, outputs, domain="own")
    else:
        types = {value.name: value for value in (*graph.value_info, *graph.output)}
        results = [types.get(value) or onnx.ValueInfoProto(name=value) for value in outputs]
        constants = [numpy_helper.from_array(np.array(rng.choice((True, False))), f"{tag}c")]
        constants += [numpy_helper.from_array(np.array(rng.choice((0, 1, 2, 100, 10**6, -1)), np.int64), f"{tag}n")]
        graph.initializer.extend(constants)
        if kind == "If":
            attrs = {f"{b}_branch": helper.make_graph([node], b, [], results) for b in ("then", "else")}
            call = helper.make_node("If", [f"{tag}c"], outputs, **attrs)
        else:
            went = helper.make_node("Identity", [f"{tag}i"], [f"{tag}o"])
            put = [helper.make_tensor_value_info(f"{tag}t", 7, []), helper.make_tensor_value_info(f"{tag}i", 9, [])]
            done = [helper.make_tensor_value_info(f"{tag}o", 9, [])]
            body = helper.make_graph([node, went], "body", put, [*done, *results])
            call = helper.make_node(kind, [f"{tag}n", f"{tag}c"], outputs, body=body)
    graph.node[at].CopyFrom(call)


def flip_bytes(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Damage the file itself."""
    data = bytearray(model.SerializeToString())
    for _ in range(rng.choice((1, 1, 3, 10))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    (folder / "raw").write_bytes(bytes(data))


MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    (change_attribute, 14), (drop_attribute, 3), (add_attribute, 7), (retype_attribute, 2), (change_operator, 7),
    (remove_node, 2), (copy_node, 4), (swap_nodes, 2), (rename_node, 3), (rewire_input, 9), (rename_output, 4),
    (rename_value, 4), (change_type, 10), (resize_everywhere, 6), (change_interface, 6), (change_constant, 14),
    (constant_or_input, 6), (make_sparse, 1), (change_versions, 4), (quantise_value, 7), (insert_operator, 9),
    (grow, 3), (wrap, 6), (flip_bytes, 1),
)  # fmt: skip


def mutate(seed: ModelProto, rng: random.Random, folder: Path) -> bytes:
    """Return the file of a mutant of a model; files that it reads are written into `folder`."""
    model = ModelProto()
    model.CopyFrom(seed)
    kinds, weights = zip(*MUTATIONS, strict=True)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        try:
            rng.choices(kinds, weights)[0](model, rng, folder)
        except (
            IndexError,
            ValueError,
            TypeError,
            KeyError,
            OverflowError,
            StopIteration,
            UnicodeError,
            NotImplementedError,
        ):
            continue  # there was nothing to change, or protobuf can't hold it
    raw = folder / "raw"
    return raw.read_bytes() if raw.is_file() else model.SerializeToString()
