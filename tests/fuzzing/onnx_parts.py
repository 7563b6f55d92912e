"""The building blocks of ONNX mutations: graphs, nodes, values, extreme numbers, hostile names."""

import random

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

NUMBERS = (-(2**63), -(2**31) - 1, -(2**31), -1000, -7, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 255, 1000,
           65536, 2**24, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1)  # fmt: skip
SMALL = (-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8)
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3.4e38, -3.4e38, 1e30, -1e-6, 89.0, 1e-3, 255.0,
         float("nan"), float("inf"), float("-inf"))  # fmt: skip
NAMES = ("", " ", "x", "y", "*/", "/* ", "a\nb", "??/", "\\", '"', "%s%n", "int", "class", "NULL", "main", "mt_model",
         "1a", "a.b", "a/b", "a_b", "a-b", "../x", "é", "\x1b[2J", "\u202e", "x" * 300, "{{7*7}}", "${x}", "stdint",
         "arena", "weights", "inputs", "0", "a\0b")  # fmt: skip
ELEMS = (*range(27), 99, -1)
OPERATORS = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


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
