"""Operator order: among the orders that the data allows, one with a small peak of live bytes."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mtool.base.frozen import frozen
from mtool.base.option_values import Io, Order
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import View
from mtool.compiler.plan.memory import live_bound, read_states_before_writes, storages
from mtool.compiler.plan.step import Step

BEAM = 24
MOST = 100_000  # steps of the search before it is narrowed to one order
FEW = 8  # nodes that are tried after that


def order_nodes(graph: Graph, chosen: Mapping[str, Step], io: Io, order: Order = "auto") -> tuple[Node, ...]:
    """Return the nodes in an order with a small peak: the original order, or a better one from a beam search.

    `order` "written" keeps the original order, except that states are read before they are written.
    """
    readers = graph.consumers()
    is_chain = all(len({node.name for node in nodes}) <= 1 for v, nodes in readers.items() if v not in graph.constants)
    orders = [graph.nodes] if order == "written" or is_chain else [graph.nodes, beam_search(graph)]
    if graph.states:
        orders = [read_states_before_writes(replace(graph, nodes=nodes)) for nodes in orders]

    def peak(nodes: tuple[Node, ...]) -> int:
        steps = [chosen[node.name] for node in nodes if not isinstance(node.attrs, View)]
        return live_bound(storages(graph, steps, io)[0])

    return min(orders, key=peak)


@frozen
class _Move:
    """A node as the search sees it; sets of nodes and of values are the bits of integers.

    rank: the position of its name among all names, as a tie-breaker.
    after: the nodes that have to come before it; before: the moves that wait for it, by number.
    ends: the values that may be dead after it: each as a bit, its bytes, and its readers.
    """

    node: Node
    bit: int
    rank: int
    after: int
    before: tuple[int, ...]
    makes: int
    outputs: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int, int], ...]


@frozen
class _State:
    """A partial order: its peak and its live bytes, its last node, the nodes done and those that may come next.

    `place` is its position among the orders of the beam, which are compared by the ranks of their nodes.
    """

    peak: int
    live_bytes: int
    place: int
    done: int
    live: int
    ready: int
    last: _Move | None
    before: "_State | None"


def beam_search(graph: Graph) -> tuple[Node, ...]:
    """Extend orders node by node, keeping those with the smallest peak so far, then the fewest live bytes.

    Ties are broken by the names in the order, so that the result is the same on every run. After `MOST` steps only one
    order is kept, and a few next nodes are tried: those that read the last result, and the first ones.
    """
    moves, start = _moves(graph)
    beam, tried = [start], 0
    for _ in moves:
        narrow = tried >= MOST
        width = 1 if narrow else BEAM
        grown: dict[int, tuple[int, int, int, int, int, int, int]] = {}  # by the set of finished nodes: one order each
        for number, state in enumerate(beam[:width]):
            for index in _few(state, moves) if narrow else _numbers(state.ready):
                move = moves[index]
                tried += 1
                done = state.done | move.bit
                peak, live_bytes, live = _after(state, done, move)
                best = grown.get(done)
                if best is None or (peak, live_bytes) < best[:2]:
                    grown[done] = (peak, live_bytes, state.place, move.rank, number, index, live)
        ranked = sorted((candidate, done) for done, candidate in grown.items())[:width]
        order = sorted(range(len(ranked)), key=lambda number: ranked[number][0][2:4])
        place = {number: rank for rank, number in enumerate(order)}
        beam = [
            _State(peak, live_bytes, place[new], done, live, _ready(beam[number], moves, index, done), moves[index],
                   beam[number])
            for new, ((peak, live_bytes, _, _, number, index, live), done) in enumerate(ranked)
        ]  # fmt: skip
    nodes = []
    state = beam[0]
    while state.before is not None and state.last is not None:
        nodes.append(state.last.node)
        state = state.before
    return tuple(reversed(nodes))


def _numbers(bits: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _few(state: _State, moves: Sequence[_Move]) -> list[int]:
    """Return a few possible moves: those that waited for the last one, then the first in the original order."""
    waited = state.last.before if state.last is not None else ()
    fresh = (number for number in waited if state.ready & moves[number].bit)
    return [*dict.fromkeys([*itertools.islice(fresh, FEW), *itertools.islice(_numbers(state.ready), FEW)])]


def _ready(state: _State, moves: Sequence[_Move], index: int, done: int) -> int:
    """Return the moves that can be made after one more, as bits."""
    ready = state.ready ^ moves[index].bit
    for number in moves[index].before:
        if not moves[number].after & ~done:
            ready |= moves[number].bit
    return ready


def _after(state: _State, done: int, move: _Move) -> tuple[int, int, int]:
    """Return the peak, the live bytes and the live values after one more node."""
    live, live_bytes = state.live | move.makes, state.live_bytes
    for bit, size in move.outputs:
        if not state.live & bit:
            live_bytes += size
    peak = state.peak if isinstance(move.node.attrs, View) else max(state.peak, live_bytes)
    for bit, size, readers in move.ends:
        if live & bit and not readers & ~done:
            live &= ~bit
            live_bytes -= size
    return peak, live_bytes, live


def _moves(graph: Graph) -> tuple[list[_Move], _State]:
    """Return every node as a move, in the original order, and the state before the first."""
    size = {value: kind.bytes for value, kind in graph.types.items() if value not in graph.constants}
    value_bit = {value: 1 << number for number, value in enumerate(size)}
    number_of = {node.name: number for number, node in enumerate(graph.nodes)}
    rank = {name: number for number, name in enumerate(sorted(number_of))}
    consumers, makers, outputs = graph.consumers(), graph.producers(), {*graph.outputs}
    readers = {value: {number_of[node.name] for node in consumers.get(value, ())} for value in size}
    bits = {value: _bits(numbers) for value, numbers in readers.items()}
    moves = []
    for number, node in enumerate(graph.nodes):
        needed = dict.fromkeys(value for value in node.inputs if value in size)
        results = dict.fromkeys(node.outputs)
        ends = [value for value in {**needed, **results} if value not in outputs]
        moves.append(
            _Move(
                node,
                1 << number,
                rank[node.name],
                _bits({number_of[makers[value].name] for value in needed if value in makers}),
                tuple(sorted({reader for value in results for reader in readers[value]})),
                sum(value_bit[value] for value in results),
                tuple((value_bit[value], size[value]) for value in results),
                tuple((value_bit[value], size[value], bits[value]) for value in ends),
            )
        )
    inputs = dict.fromkeys(graph.inputs)
    live = sum(value_bit[value] for value in inputs)
    ready = _bits({number for number, move in enumerate(moves) if not move.after})
    return moves, _State(0, sum(size[value] for value in inputs), 0, 0, live, ready, None, None)


def _bits(numbers: set[int]) -> int:
    mask = bytearray(max(numbers, default=-1) // 8 + 1)
    for number in numbers:
        mask[number // 8] |= 1 << number % 8
    return int.from_bytes(mask, "little")
