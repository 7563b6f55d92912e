"""Constants of one model at several sizes: what is the same is held once, and tables are their largest everywhere."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Graph, TensorType
from mtool.compiler.ir.node import Computation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.registry import SPECIFICATIONS


def sharing(graph: Graph, other: Graph) -> Graph:
    """Return a graph that holds no constant twice which another graph has."""

    def shared(name: str, data: Array) -> Array:
        there = other.constants.get(name)
        return there if there is not None and there.dtype == data.dtype and _is_same(there, data) else data

    return replace(graph, constants={name: shared(name, data) for name, data in graph.constants.items()})


def with_large_tables(graphs: Sequence[Graph]) -> list[Graph]:
    """Let constants that are read element by element be the largest everywhere, if each is the beginning of that."""
    first = graphs[0]
    readers: dict[str, list[bool]] = {}
    for node in first.nodes:
        operands = len(SPECIFICATIONS[node.op].own(node)) if node.op in SPECIFICATIONS else len(node.inputs)
        for index, value in enumerate(node.inputs):
            by_element = isinstance(node.attrs, Computation) and index >= operands
            readers.setdefault(value, []).append(by_element)
    chosen = list(graphs)
    for name, data in first.constants.items():
        tables = [graph.constants.get(name) for graph in graphs]
        if any(table is None or table.ndim != data.ndim for table in tables) or not all(readers.get(name, [False])):
            continue
        there = [table for table in tables if table is not None]
        longest = max(there, key=lambda table: table.size)
        if all(table.shape == data.shape for table in there) or not all(_begins(longest, table) for table in there):
            continue
        kind = TensorType(DType.of(longest.dtype), longest.shape)
        chosen = [
            replace(graph, constants={**graph.constants, name: longest}, types={**graph.types, name: kind})
            for graph in chosen
        ]
    return chosen


def _begins(longest: Array, table: Array) -> bool:
    return _is_same(longest[tuple(slice(size) for size in table.shape)], table)


def _is_same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=other.dtype.kind == "f")
