"""A backend that claims the operators a test selects, and computes its regions in NumPy instead of C."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import interpreter
import numpy as np

from mtool.compiler import passes
from mtool.compiler.backends import Backend, Context, Operation, Product, Region
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.partition import Partition, partition
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target

HOST = Target("host", frozenset())
Array = np.ndarray[Any, Any]


def backend(
    name: str,
    takes: Callable[[Operation], bool],
    limit: Callable[[Region], str] = lambda region: "",
    layout: str = "",
) -> tuple[Chosen, dict[str, Graph]]:
    """Return a backend that claims some operations, and where it puts the bodies of its regions, by their names."""
    bodies: dict[str, Graph] = {}

    class Mirror(Backend):
        def refusal(self, operation: Operation, context: Context) -> str:
            return "" if takes(operation) else "the test does not give it that"

        def claims(self, region: Region) -> str:
            return limit(region)

        def compile(self, region: Region, folder: Path) -> Product:
            assert region.body is not None
            bodies[region.name] = region.body
            return Product(body="    /* in NumPy */")

    Mirror.name, Mirror.layout = name, layout
    return Chosen(Mirror({})), bodies


def partitioned(graph: Graph, *backends: tuple[Chosen, dict[str, Graph]]) -> tuple[Partition, dict[str, Graph]]:
    """Return the partition of a graph, and the bodies of its regions."""
    made = partition(graph, graph, [chosen for chosen, _ in backends], Context(HOST))
    return made, {name: body for _, bodies in backends for name, body in bodies.items()}


def run(graph: Graph, feeds: dict[str, Array], bodies: dict[str, Graph]) -> list[Array]:
    """Return the outputs of a graph as the frontend or a partition leaves it."""
    lowered = passes.run(graph, HOST)
    values: dict[str, Array] = {**lowered.constants, **{value: np.asarray(feeds[value]) for value in lowered.inputs}}
    for node in lowered.nodes:
        read = [values[value] for value in node.inputs]
        made: Sequence[Array]
        if node.op == "external":
            body = bodies[node.name]
            made = run(body, dict(zip(body.inputs, read, strict=True)), {})
        else:
            made = interpreter.compute(node, lowered, read)
        values |= dict(zip(node.outputs, made, strict=True))
    return [values[value] for value in lowered.outputs]
