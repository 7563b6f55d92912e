"""Operator order: among the orders that the data allows, one with a small peak of live bytes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mtool.ir import Graph, Node
from mtool.plan.memory import live_bound, storages

if TYPE_CHECKING:
    from mtool.plan.plan import Io, Step

BEAM = 24


def order_nodes(graph: Graph, chosen: Mapping[str, "Step"], io: "Io") -> tuple[Node, ...]:
    """Return the nodes in an order of small peak: the given one, or a better one that a beam search finds."""
    given = graph.nodes
    if _is_chain(graph):
        return given
    searched = _beam_search(graph)
    return min((given, searched), key=lambda nodes: _peak(graph, nodes, chosen, io))


def _is_chain(graph: Graph) -> bool:
    readers = graph.consumers()
    return all(len({node.name for node in nodes}) <= 1 for v, nodes in readers.items() if v not in graph.constants)


def _peak(graph: Graph, nodes: tuple[Node, ...], chosen: Mapping[str, "Step"], io: "Io") -> int:
    steps = [chosen[node.name] for node in nodes if node.op != "view"]
    return live_bound(storages(graph, steps, io)[0])


def _beam_search(graph: Graph) -> tuple[Node, ...]:
    """Grow orders node by node, keeping those with the smallest peak so far, then the fewest live bytes."""
    variable = [value for value in graph.types if value not in graph.constants]
    size = {value: graph.types[value].bytes for value in variable}
    readers = {v: {n.name for n in nodes} for v, nodes in graph.consumers().items() if v in size}
    needs = {node.name: {v for v in node.inputs if v in size} for node in graph.nodes}
    by_name = {node.name: node for node in graph.nodes}
    start = frozenset(graph.inputs)
    beam: list[tuple[int, int, tuple[str, ...], frozenset[str]]] = [(0, 0, (), start)]
    for _ in graph.nodes:
        grown: dict[frozenset[str], tuple[int, int, tuple[str, ...], frozenset[str]]] = {}
        for peak, _, done, live in beam:
            finished = set(done)
            for name, node in by_name.items():
                if name in finished or not needs[name] <= live:
                    continue
                after = live | set(node.outputs)
                bytes_now = 0 if node.op == "view" else sum(size[value] for value in after)
                dead = {
                    value
                    for value in needs[name] | set(node.outputs)
                    if readers.get(value, set()) <= finished | {name} and value not in graph.outputs
                }
                kept = frozenset(after - dead)
                state = (max(peak, bytes_now), sum(size[value] for value in kept), (*done, name), kept)
                key = frozenset(state[2])
                if key not in grown or state[:2] < grown[key][:2]:
                    grown[key] = state
        beam = sorted(grown.values(), key=lambda state: state[:3])[:BEAM]
    return tuple(by_name[name] for name in beam[0][2])
