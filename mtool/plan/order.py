"""Operator order: among the orders that the data allows, one with a small peak of live bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtool.ir import Graph, Node
from mtool.plan.memory import live_bound, storages
from mtool.plan.states import in_turn

if TYPE_CHECKING:
    from mtool.plan.plan import Io, Step

BEAM = 24


def order_nodes(graph: Graph, chosen: Mapping[str, "Step"], io: "Io") -> tuple[Node, ...]:
    """Return the nodes in an order of small peak: the given one, or a better one that a beam search finds."""
    given = graph.nodes
    orders = [given] if _is_chain(graph) else [given, _beam_search(graph)]
    if graph.states:
        orders = [in_turn(replace(graph, nodes=nodes)) for nodes in orders]
    return min(orders, key=lambda nodes: _peak(graph, nodes, chosen, io))


def _is_chain(graph: Graph) -> bool:
    readers = graph.consumers()
    return all(len({node.name for node in nodes}) <= 1 for v, nodes in readers.items() if v not in graph.constants)


def _peak(graph: Graph, nodes: tuple[Node, ...], chosen: Mapping[str, "Step"], io: "Io") -> int:
    steps = [chosen[node.name] for node in nodes if node.op != "view"]
    return live_bound(storages(graph, steps, io)[0])


@dataclass(frozen=True, slots=True)
class _Move:
    """A node as the search sees it; sets of nodes and of values are the bits of integers.

    rank: the place of its name among all names, which settles what is equal otherwise.
    ends: the values that may be dead after it: each as a bit, its bytes, and the nodes that read it.
    """

    node: Node
    bit: int
    rank: int
    needs: int
    makes: int
    made: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _State:
    """An order as far as it has grown: its peak and its live bytes, the nodes in order, and both as sets."""

    peak: int
    live_bytes: int
    order: tuple[int, ...]
    done: int
    live: int


def _beam_search(graph: Graph) -> tuple[Node, ...]:
    """Grow orders node by node, keeping those with the smallest peak so far, then the fewest live bytes.

    What is equal in both goes by the names in the order, so that the result is the same on every run.
    """
    moves, start = _moves(graph)
    beam = [start]
    for _ in moves:
        places = {number: place for place, number in enumerate(sorted(range(len(beam)), key=lambda n: beam[n].order))}
        grown: dict[int, tuple[int, int, int, int, int, int]] = {}  # by the nodes that are done: one order of each set
        for number, state in enumerate(beam):
            for move in moves:
                if state.done & move.bit or move.needs & ~state.live:
                    continue
                done = state.done | move.bit
                peak, live_bytes, live = _after(state, done, move)
                best = grown.get(done)
                if best is None or (peak, live_bytes) < best[:2]:
                    grown[done] = (peak, live_bytes, places[number], move.rank, number, live)
        kept = sorted((candidate, done) for done, candidate in grown.items())[:BEAM]
        beam = [
            _State(peak, live_bytes, (*beam[number].order, rank), done, live)
            for (peak, live_bytes, _, rank, number, live), done in kept
        ]
    by_rank = {move.rank: move.node for move in moves}
    return tuple(by_rank[rank] for rank in beam[0].order)


def _after(state: _State, done: int, move: _Move) -> tuple[int, int, int]:
    """Return the peak, the live bytes and the live values after one more node."""
    live, live_bytes = state.live | move.makes, state.live_bytes
    for bit, size in move.made:
        if not state.live & bit:
            live_bytes += size
    peak = state.peak if move.node.op == "view" else max(state.peak, live_bytes)
    for bit, size, readers in move.ends:
        if live & bit and not readers & ~done:
            live &= ~bit
            live_bytes -= size
    return peak, live_bytes, live


def _moves(graph: Graph) -> tuple[list[_Move], _State]:
    """Return every node as a move, in the given order, and the state before the first."""
    size = {value: kind.bytes for value, kind in graph.types.items() if value not in graph.constants}
    value_bit = {value: 1 << number for number, value in enumerate(size)}
    node_bit = {node.name: 1 << number for number, node in enumerate(graph.nodes)}
    rank = {name: number for number, name in enumerate(sorted(node_bit))}
    consumers = graph.consumers()
    readers = {value: sum({node_bit[node.name] for node in consumers.get(value, ())}) for value in size}
    moves = []
    for node in graph.nodes:
        needed = dict.fromkeys(value for value in node.inputs if value in size)
        made = dict.fromkeys(node.outputs)
        ends = [value for value in {**needed, **made} if value not in graph.outputs]
        moves.append(
            _Move(
                node,
                node_bit[node.name],
                rank[node.name],
                sum(value_bit[value] for value in needed),
                sum(value_bit[value] for value in made),
                tuple((value_bit[value], size[value]) for value in made),
                tuple((value_bit[value], size[value], readers[value]) for value in ends),
            )
        )
    inputs = dict.fromkeys(graph.inputs)
    live = sum(value_bit[value] for value in inputs)
    return moves, _State(0, sum(size[value] for value in inputs), (), 0, live)
