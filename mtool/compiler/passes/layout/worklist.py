"""The worklist of the layout rules: all rules at all nodes first, then those around each change."""

import heapq
from collections.abc import Iterator, Sequence

from mtool.compiler.ir import Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.passes.layout.rule import Change, Rule


class Worklist:
    """The nodes that each rule has yet to be tried at.

    The first rule that fits is applied, at the first node where it does. A rule looks no further than two nodes up
    and down from its own, so that after a change only those around it are tried again.
    """

    def __init__(self, graph: Editor, rules: Sequence[Rule]) -> None:
        self._graph = graph
        entries = [(graph.position(node), node.name) for node in graph.in_order()]
        self._open = [(rule, [*entries], {*entries}) for rule in rules]

    def next(self) -> tuple[Node, Change] | None:
        """Return a node and what is done to it; None: no rule fits any more."""
        for rule, heap, queued in self._open:
            while heap:
                entry = heapq.heappop(heap)
                queued.discard(entry)
                node = self._graph.named(entry[1])
                if node is None or self._graph.position(node) != entry[0]:
                    continue
                change = rule(self._graph, node)
                if change is not None:
                    return node, change
        return None

    def note_change(self) -> None:
        """Try all rules again around the last change."""
        for entry in {(self._graph.position(node), node.name) for node in self._near()}:
            for _, heap, queued in self._open:
                if entry not in queued:
                    queued.add(entry)
                    heapq.heappush(heap, entry)

    def _near(self) -> Iterator[Node]:
        graph = self._graph
        changed = [*graph.removed, *graph.added]
        yield from (node for node in graph.added if graph.has(node))
        for value in dict.fromkeys(value for node in changed for value in node.outputs):
            for reader in graph.readers(value):
                yield reader
                if isinstance(reader.attrs, View):
                    yield from graph.readers(reader.outputs[0], "dense")
        for value in dict.fromkeys(value for node in changed for value in node.inputs):
            if (alone := graph.only_reader(value)) is not None:
                yield alone
            maker = graph.makers.get(value)
            if maker is not None:
                yield maker
                above = graph.maker(maker.inputs[0], "loop") if isinstance(maker.attrs, Transpose) else None
                if above is not None:
                    yield above
