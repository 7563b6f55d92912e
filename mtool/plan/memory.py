"""Arena layout: which values share storage, and where each storage lies.

Offsets are found by first fit over several orders of the storages and a seeded local search, until
the lower bound (the most bytes that live at one time) is reached or the search ends.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtool.ir import Graph
from mtool.plan.states import homes

if TYPE_CHECKING:
    from mtool.plan.plan import Io, Step

ALIGNMENT = 4  # bytes; every element type but the 8-byte ones, which get 8
SEARCH_ROUNDS = 400


@dataclass(slots=True)
class Storage:
    """A piece of the arena: its bytes, the steps from `first` to `last` during which it is live, its values."""

    bytes: int
    first: int
    last: int
    values: list[str] = field(default_factory=list)
    alignment: int = ALIGNMENT

    def meets(self, other: "Storage") -> bool:
        """Whether both are live at one time."""
        return self.first <= other.last and other.first <= self.last


def last_uses(graph: Graph, steps: Sequence["Step"]) -> tuple[dict[str, str], dict[str, int]]:
    """Return the root of each value through views, and the last step that reads each root."""
    root: dict[str, str] = {}
    for node in graph.nodes:
        if node.op == "view":
            root[node.outputs[0]] = root.get(node.inputs[0], node.inputs[0])
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for value in step.node.inputs:
            last[root.get(value, value)] = number
    for value in (*graph.outputs, *(value for _, value, _ in graph.kept)):
        last[root.get(value, value)] = len(steps)
    return root, last


def storages(
    graph: Graph, steps: Sequence["Step"], io: "Io", *, grow: bool = False
) -> tuple[list[Storage], dict[str, int], list[int | None]]:
    """Return the storages, the storage number of each value, and of each step's scratch.

    An output takes the storage of an input that dies at its step, where the schedule allows it; with `grow` also
    that of a smaller one, which then is as large from its beginning. A state has one storage all the time, which
    its output takes too where nothing reads the old value any more (mtool.plan.states).
    """
    root, last = last_uses(graph, steps)
    home = homes(graph, steps)
    pieces: list[Storage] = []
    owner: dict[str, int] = {}
    outside = {*graph.constants}
    if io == "external":
        outside |= {*graph.given} | {root.get(value, value) for value in graph.returned}

    def add(value: str, first: int) -> None:
        kind = graph.types[value]
        owner[value] = len(pieces)
        pieces.append(
            Storage(kind.bytes, first, max(last.get(value, first), first), [value], max(kind.dtype.size, ALIGNMENT))
        )

    for value in graph.inputs:
        if value not in outside:
            add(value, -1)
    scratch_of: list[int | None] = []
    for number, step in enumerate(steps):
        node = step.node
        for output in node.outputs:
            if output in outside:
                continue
            heir = home.get(output)
            if heir is None and output == node.outputs[0]:
                heir = _inherit(graph, step, number, root, last, owner, grow)
            if heir is None:
                add(output, number)
            else:
                piece = pieces[owner[heir]]
                owner[output] = owner[heir]
                piece.bytes = max(piece.bytes, graph.types[output].bytes)
                piece.last = max(last.get(output, number), number, piece.last if output in home else 0)
                piece.values.append(output)
        scratch = step.schedule.scratch_bytes(node, graph)
        scratch_of.append(len(pieces) if scratch else None)
        if scratch:
            pieces.append(Storage(scratch, number, number, [f"scratch of {node.name}"]))
    for node in graph.nodes:
        if node.op == "view" and root[node.outputs[0]] in owner:
            owner[node.outputs[0]] = owner[root[node.outputs[0]]]
    return pieces, owner, scratch_of


def _inherit(
    graph: Graph,
    step: "Step",
    number: int,
    root: dict[str, str],
    last: dict[str, int],
    owner: dict[str, int],
    grow: bool,
) -> str | None:
    """Return the value whose storage the step's output takes: the largest that it may and that dies here."""
    node = step.node
    out = graph.types[node.outputs[0]]
    found = []
    for place in step.schedule.in_place(node, graph):
        value = root.get(node.inputs[place], node.inputs[place])
        fits = grow or graph.types[value].bytes >= out.bytes
        if fits and value in owner and last.get(value) == number:
            found.append(value)
    return max(found, key=lambda value: graph.types[value].bytes, default=None)


def live_bound(pieces: Sequence[Storage]) -> int:
    """Return the most bytes that are live at one time: no layout can be smaller."""
    times = {piece.first for piece in pieces}
    return max((sum(_aligned(p.bytes) for p in pieces if p.first <= t <= p.last) for t in times), default=0)


def _aligned(size: int, alignment: int = ALIGNMENT) -> int:
    return (size + alignment - 1) // alignment * alignment


def lay_out(pieces: Sequence[Storage]) -> tuple[dict[int, int], int]:
    """Return an offset for each storage, in bytes, and the arena's size."""
    bound = live_bound(pieces)
    numbers = range(len(pieces))
    orders = [
        sorted(numbers, key=lambda n: (-pieces[n].bytes, pieces[n].first)),
        sorted(numbers, key=lambda n: (pieces[n].first, -pieces[n].bytes)),
        sorted(numbers, key=lambda n: (pieces[n].first - pieces[n].last, -pieces[n].bytes)),
        sorted(numbers, key=lambda n: (-pieces[n].bytes * (pieces[n].last - pieces[n].first + 1), n)),
    ]
    best, size = min((_first_fit(pieces, order) for order in orders), key=lambda found: found[1])
    order = min(orders, key=lambda order: _first_fit(pieces, order)[1])
    chance = random.Random(0)
    for _ in range(SEARCH_ROUNDS if len(pieces) > 2 else 0):
        if size <= bound:
            break
        trial = list(order)
        i, j = chance.randrange(len(trial)), chance.randrange(len(trial))
        trial.insert(j, trial.pop(i))
        placed, total = _first_fit(pieces, trial)
        if total <= size:
            best, size, order = placed, total, trial
    return best, size


def _first_fit(pieces: Sequence[Storage], order: Sequence[int]) -> tuple[dict[int, int], int]:
    placed: dict[int, int] = {}
    total = 0
    for number in order:
        piece = pieces[number]
        taken = sorted((placed[n], placed[n] + pieces[n].bytes) for n in placed if pieces[n].meets(piece))
        offset = 0
        for begin, end in taken:
            if offset + piece.bytes <= begin:
                break
            offset = max(offset, _aligned(end, piece.alignment))
        placed[number] = offset
        total = max(total, offset + piece.bytes)
    return placed, _aligned(total)
