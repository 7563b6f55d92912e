"""The address of a value: an offset in the arena, or in an input or output that the caller keeps."""

from dataclasses import dataclass
from typing import Literal

from mtool.compiler.plan import Plan
from mtool.compiler.plan.memory import aliases


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a value: in the `index`-th pool of the arena, input, output or state, and how far from its start.

    An arena in one piece has the index 0. Only the body of a loop has states that do not lie in the arena.
    """

    memory: Literal["arena", "inputs", "outputs", "states"]
    index: int
    offset: int


def address_of(plan: Plan, value: str) -> Address:
    """Return the address of a value that is no constant."""
    if value in plan.offsets:
        return Address("arena", *plan.place(plan.offsets[value]))
    if value in plan.in_states:
        return Address("states", *plan.in_states[value])
    graph = plan.graph
    lies = aliases(graph)
    root, offset = lies.get(value, (value, 0))
    if root in graph.inputs:
        return Address("inputs", graph.inputs.index(root), offset)
    for index, output in enumerate(graph.outputs):
        if lies.get(output, (output, 0))[0] == root:
            return Address("outputs", index, offset)
    raise AssertionError(f"{value} lies nowhere")
