"""A schedule for tests only: a correct one whose C is altered; the planner prefers it to all others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target


class Altered:
    """Computes one node, by its name, as `sound` does, in a body that `alter` makes of its own."""

    def __init__(self, name: str, sound: Schedule, node: str, alter: Callable[[str], str]) -> None:
        self.name, self.sound, self.node, self.alter = name, sound, node, alter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sound, name)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        return node.name == self.node and self.sound.supports(node, graph, target)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        return -1.0

    def for_core(self, node: Node, graph: Graph, target: Target) -> "Altered":
        return self  # and not the sound one

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        kernel = self.sound.emit(node, graph, target)
        return replace(kernel, body=self.alter(kernel.body))
