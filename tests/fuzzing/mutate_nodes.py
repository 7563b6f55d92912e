"""Mutations of an ONNX model's nodes: attributes, operators, order, inputs and outputs."""

import random
from pathlib import Path

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, helper

from tests.fuzzing.mutate_tensors import change_tensor
from tests.fuzzing.onnx_parts import NAMES, OPERATORS, REALS, a_graph, a_node, name, number


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


def change_operator(model: ModelProto, rng: random.Random, folder: Path) -> None:
    """Make a node another operator."""
    node = a_node(model, rng)
    if rng.random() < 0.1:
        node.domain = rng.choice(("com.microsoft", "ai.onnx.ml", "ai.onnx", "own", "mtool", rng.choice(NAMES)))
    else:
        node.op_type = rng.choice(OPERATORS)
        node.domain = ""


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
