"""Why a model has no form for all sizes, as an error that names the operator or the tensor."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.base.errors import ModelError
from mtool.base.escaping import argument
from mtool.base.formulas import Point
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.parametric import DifferError


@dataclass(frozen=True, slots=True)
class Refusals:
    """The errors for a model of some run-time sizes."""

    file: str
    names: tuple[str, ...]

    def error(self, reason: str, details: Sequence[str]) -> ModelError:
        """Return the error for a model that has no form for all sizes."""
        return ModelError(
            f"{self.file} can't be compiled for sizes known at run time ({', '.join(self.names)}): {reason}",
            details=details,
            hint="give such a dimension a size: " + " ".join(f"--dim {argument(name)}=N" for name in self.names),
        )

    def text_of(self, point: Point) -> str:
        """Return the values of the sizes as text."""
        return ", ".join(f"{name} = {size}" for name, size in zip(self.names, point, strict=True))

    def other_structure(self, graphs: Sequence[Graph], points: Sequence[Point], found: DifferError) -> ModelError:
        """Return the error for graphs that are not of one structure: which operator is not the same."""
        first = graphs[0]
        for graph, point in zip(graphs[1:], points[1:], strict=True):
            for node, other in zip(first.nodes, graph.nodes, strict=False):
                if outline(node) != outline(other):
                    return self.error(
                        "its operators are not the same at all sizes",
                        [
                            f"{self.text_of(points[0])}: {node.op} {node.name}",
                            f"{self.text_of(point)}: {other.op} {other.name}",
                        ],
                    )
        return self.error("an operator depends on its sizes in a way that no formula tells", [str(found)])


def outline(node: Node) -> tuple[object, ...]:
    """Return what of an operator has to be the same at all sizes."""
    return node.op, node.inputs, node.outputs, type(node.attrs)


def operator_of(graph: Graph, where: str) -> list[str]:
    """Return the operator that a difference is in, as far as that can be told from where it was found."""
    number = re.match(r"nodes\[(\d+)\]", where)
    readers = [
        node
        for index, node in enumerate(graph.nodes)
        if (number and index == int(number[1]))
        or any(where.startswith((f"constants {value}:", f"types {value}.")) for value in node.inputs)
    ]
    return [f"operator {', '.join(node.origins[:3]) or node.name}" for node in readers[:1]]
