"""Arena layout: which values share storage, and where each storage lies.

Liveness is tracked for parts of a storage: rows of an image that have been read for the last time make room for
others. mtool.compiler.plan.first_fit finds the offsets.
"""

import graphlib
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mtool.base.frozen import frozen
from mtool.base.option_values import Io
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.expr import identity, load
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.plan.step import Step

# Storage of states: each state has one that persists between inferences and is read and written by each.
#
# The operator that computes a state's output writes it there if nothing reads the old value afterwards, or if it may
# overwrite what it reads. Otherwise the output has another storage and is copied at the end.
#
# Stream buffers (the last inputs of a causal convolution) are a special case, in two forms. `concat(state, new)`
# takes the state's storage, made larger, and the state's output is the move of its end to its beginning. Or the state
# is moved first, and the new part is appended: `concat(slice(state), new)`. In both, only the new part is copied, and
# the rest is moved in place.


@frozen
class _Uses:
    """The numbers of the steps that read and write each value; a value stands for all of its views."""

    root: Callable[[str], str]
    reads: Mapping[str, Sequence[int]]
    written: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, steps: Sequence[Step]) -> "_Uses":
        lies = aliases(graph)
        reads: dict[str, list[int]] = {}
        written: dict[str, int] = {}
        for number, step in enumerate(steps):
            for value in step.node.inputs:
                reads.setdefault(lies.root(value), []).append(number)
            written |= dict.fromkeys(step.node.outputs, number)
        return cls(lies.root, reads, written)

    def last_read(self, value: str) -> int:
        """Return the last step that reads a value; -1: none."""
        return self.reads[value][-1] if value in self.reads else -1


def values_in_state_storage(graph: Graph, steps: Sequence[Step]) -> dict[str, str]:
    """Return the values that are written into the storage of a state: value -> the state's input."""
    if not graph.states:
        return {}
    uses = _Uses.of(graph, steps)
    home: dict[str, str] = {}
    for _, value, output in graph.state_values:
        output = uses.root(output)
        buffer, moved = _stream_buffer(graph, steps, uses, value), _moved(graph, steps, uses, value, output)
        if moved:
            home |= {moved: value, output: value}
            continue
        for before in ([value, buffer], [value]) if buffer else ([value],):
            if all(_may_overwrite(graph, steps, uses, output, old) for old in before):
                home |= dict.fromkeys([output, *before[1:]], value)
                break
    return home


def _moved(graph: Graph, steps: Sequence[Step], uses: _Uses, value: str, output: str) -> str:
    """Return the value that a state's output appends to if it is the state itself, moved in place, or ""."""
    node = steps[uses.written[output]].node
    first = uses.root(node.inputs[0]) if isinstance(node.attrs, Concat) else ""
    if first not in uses.written or not _appends(node, graph) or [*uses.reads[first]] != [uses.written[output]]:
        return ""
    roots = {*map(uses.root, graph.outputs)}
    in_place = first not in roots and _may_overwrite(graph, steps, uses, first, value)
    return first if in_place and value in steps[uses.written[first]].node.inputs else ""


def _appends(node: Node, graph: Graph) -> bool:
    """Whether a concat's first input has the same layout inside the output as on its own."""
    return math.prod(graph.types[node.outputs[0]].shape[: Concat.of(node).axis]) == 1


def _stream_buffer(graph: Graph, steps: Sequence[Step], uses: _Uses, value: str) -> str:
    """Return the output of a state's last reader if that appends to the state, or ""."""
    number = uses.last_read(value)
    node = steps[number].node if number >= 0 else None
    if node is None or not isinstance(node.attrs, Concat) or uses.root(node.inputs[0]) != value:
        return ""
    roots = {uses.root(output) for output in graph.outputs}
    alone = uses.reads[value].count(number) == 1 and node.outputs[0] not in roots
    return node.outputs[0] if _appends(node, graph) and alone else ""


def _may_overwrite(graph: Graph, steps: Sequence[Step], uses: _Uses, output: str, old: str) -> bool:
    """Whether the step that writes `output` may do so where `old` lies."""
    number = uses.written[output]
    last = uses.last_read(old)
    if last != number:
        return last < number
    node = steps[number].node
    read = [place for place, value in enumerate(node.inputs) if uses.root(value) == old]
    over = node.outputs.index(output)
    pairs = steps[number].schedule.overwrites(node, graph)
    return {place for place, written in pairs if written == over} >= {*read}


def read_states_before_writes(graph: Graph) -> tuple[Node, ...]:
    """Return the nodes in an order in which states are written after they are read, where that is possible."""
    makers, readers = graph.producers(), graph.consumers()
    numbers = {node.name: number for number, node in enumerate(graph.nodes)}
    before = [{numbers[makers[value].name] for value in node.inputs if value in makers} for node in graph.nodes]
    for _, value, output in graph.state_values:
        writer = makers[output]
        while isinstance(writer.attrs, View):
            writer = makers[writer.inputs[0]]
        reading = _all_readers(value, readers)
        buffers = [node.outputs[0] for node in reading if isinstance(node.attrs, Concat)]
        both = [*reading, *(node for buffer in buffers for node in _all_readers(buffer, readers))]
        for nodes in (both, reading):
            reads = {numbers[node.name] for node in nodes} - {numbers[writer.name]}
            if numbers[writer.name] not in _reached(reads, before):
                before[numbers[writer.name]] |= reads
                break
    order = graphlib.TopologicalSorter(dict(enumerate(before)))
    order.prepare()
    ready, ordered = list[int](), list[Node]()
    while order.is_active():  # as close to the original order as possible
        for number in order.get_ready():
            heapq.heappush(ready, number)
        ordered.append(graph.nodes[heapq.heappop(ready)])
        order.done(numbers[ordered[-1].name])
    return tuple(ordered)


def _reached(starts: Collection[int], edges: Sequence[Collection[int]]) -> set[int]:
    """Return the numbers that are reachable through the edges, including the starts."""
    reached, waiting = {*starts}, [*starts]
    while waiting:
        new = {*edges[waiting.pop()]} - reached
        reached |= new
        waiting += new
    return reached


def _all_readers(value: str, readers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Return the nodes that read a value, or a view of it."""
    result, waiting = [], [value]
    while waiting:
        nodes = readers.get(waiting.pop(), ())
        result += [node for node in nodes if not isinstance(node.attrs, View)]
        waiting += [node.outputs[0] for node in nodes if isinstance(node.attrs, View)]
    return result


def copy_states(
    graph: Graph, steps: Sequence[Step], choose: Callable[[Node, Graph], Step], stem: str = "keep"
) -> tuple[Graph, tuple[Step, ...]]:
    """Append to stream buffers in place, and copy each state whose output can't be written into its storage.

    Args:
        graph: the graph, with its nodes in execution order.
        steps: the steps of all nodes except views.
        choose: returns the step of a new node.
        stem: the stem of the names of new nodes.
    """
    storage, uses = values_in_state_storage(graph, steps), _Uses.of(graph, steps)
    appending = {}
    for step in steps:
        if isinstance(step.node.attrs, Concat):
            first = uses.root(step.node.inputs[0])
            if storage.get(step.node.outputs[0]) == storage.get(first, first):
                appending[step.node.name] = replace(step.node, attrs=replace(step.node.attrs, appends=True))
    new_steps = [replace(step, node=appending.get(step.node.name, step.node)) for step in steps]
    nodes, outputs = [appending.get(node.name, node) for node in graph.nodes], list(graph.outputs)
    types, sources = dict(graph.types), dict(graph.sources)
    graph = replace(graph, nodes=tuple(nodes))
    for number, (_, value, output) in enumerate(graph.state_values, len(graph.caller_outputs)):
        if uses.root(output) in storage:
            continue
        kind = types[value]
        copy = f"{output}.kept"
        while copy in types:
            copy += "_"
        types[copy] = kind
        if output in sources:
            sources[copy] = sources[output]
        outputs[number] = copy
        element = load(0, kind.dtype, identity(len(kind.shape)))
        node = Node("loop", f"{stem}_{len(new_steps)}", (output,), (copy,), Loop(expr=element, label="keep"))
        nodes.append(node)
        graph = replace(graph, nodes=tuple(nodes), outputs=tuple(outputs), types=types, sources=sources)
        new_steps.append(choose(node, graph))
    return graph, tuple(new_steps)


ALIGNMENT = 4  # bytes; 8-byte element types get 8


@frozen
class Part:
    """A range of a storage, in bytes from its start, and the steps at which it is live as the bits of `live`.

    Bit 0 is before the first step, bit n + 1 is step n.
    """

    offset: int
    bytes: int
    live: int

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield each run of bits of `live`: its first, and the one after its last."""
        live, at = self.live, 0
        while live:
            skip = (live & -live).bit_length() - 1
            live >>= skip
            run = (~live & (live + 1)).bit_length() - 1
            live >>= run
            yield at + skip, at + skip + run
            at += skip + run


@dataclass(slots=True)
class Storage:
    """A piece of the arena: its size, its parts with their lifetimes, and its values."""

    bytes: int
    parts: tuple[Part, ...] = ()
    values: list[str] = field(default_factory=list)
    alignment: int = ALIGNMENT

    @classmethod
    def whole(cls, size: int, first: int, last: int, values: Iterable[str] = ()) -> "Storage":
        """Return a storage that is live as a whole from step `first` (-1: before the first) to step `last`."""
        return cls(size, (Part(0, size, _span(first, last)),), [*values])

    @property
    def live(self) -> int:
        """The steps at which any of it is live, as bits."""
        live = 0
        for part in self.parts:
            live |= part.live
        return live

    @property
    def first(self) -> int:
        """The first step at which any of it is live; -1: before all."""
        return (self.live & -self.live).bit_length() - 2

    @property
    def last(self) -> int:
        """The last step at which any of it is live."""
        return self.live.bit_length() - 2


def _span(first: int, last: int) -> int:
    return (1 << (last + 2)) - (1 << (first + 1))


class Aliases(dict[str, tuple[str, int]]):
    """The location of values: the value or line buffer that contains each, and the byte offset in it."""

    def __missing__(self, value: str) -> tuple[str, int]:
        return value, 0

    def root(self, value: str) -> str:
        """Return the value or line buffer that contains a value: the value itself if it is not an alias."""
        return self[value][0]


def aliases(graph: Graph) -> Aliases:
    """Return the values that lie in another value or in a line buffer, with the byte offset."""

    def lies_in() -> Aliases:
        result = Aliases(graph.line_buffers)
        for node in graph.nodes:
            value, source = node.outputs[0], node.inputs[0] if node.inputs else ""
            if isinstance(node.attrs, View) and value not in result:
                root, offset = result[source]
                result[value] = root, offset + node.attrs.first * graph.types[value].dtype.size
        return result

    return graph.once("aliases", lies_in)


@frozen
class _Access:
    """A range of bytes that a step reads or writes."""

    step: int
    begin: int
    end: int
    writes: bool


class Storages(NamedTuple):
    """The storages of a graph.

    Attributes:
        pieces: all of them.
        owners: for each value, the number of its storage, and the offset there.
        scratch: for each step, the number of its scratch's storage.
    """

    pieces: list[Storage]
    owners: dict[str, tuple[int, int]]
    scratch: list[int | None]


class _Storages:
    """Assigns each value a storage and records every access to it."""

    def __init__(self, graph: Graph, steps: Sequence[Step], io: Io, *, grow: bool) -> None:
        self.graph, self.steps, self.grow = graph, steps, grow
        self.lies = aliases(graph)
        self.root = self.lies.root
        self.home = values_in_state_storage(graph, steps)
        self.owner: dict[str, int] = {}  # of roots
        self.pieces: list[Storage] = []
        self.accesses: list[list[_Access]] = []
        self.outside = {*graph.constants}
        if io == "external":
            self.outside |= {*graph.caller_inputs} | {self.root(value) for value in graph.caller_outputs}
        if graph.stream is not None:
            self.outside.add(graph.stream.value)
        self.line_buffer_bytes: dict[str, int] = {}
        for value, (buffer, offset) in graph.line_buffers.items():
            behind = offset + graph.types[value].bytes
            self.line_buffer_bytes[buffer] = max(self.line_buffer_bytes.get(buffer, 0), behind)
        self.alignment: dict[str, int] = {}  # of roots whose elements need more than the default
        needed = [(value, kind.dtype.size) for value, kind in graph.types.items() if kind.dtype.size > ALIGNMENT]
        needed += [
            (value, step.node.attrs.tensor_alignment)
            for step in steps
            if isinstance(step.node.attrs, External)
            for value in (*step.node.inputs, *step.node.outputs)
        ]
        for value, size in needed:
            root = self.root(value)
            self.alignment[root] = max(self.alignment.get(root, ALIGNMENT), size)
        self.last: dict[str, int] = {}
        for number, step in enumerate(steps):
            for value in step.node.inputs:
                self.last[self.root(value)] = number
        states = (value for _, value, _ in graph.state_values)
        end = (*graph.outputs, *states, *self.home, *(size.value for size in graph.sizes))
        self.last |= {self.root(value): len(steps) for value in end}

    def add(self, root: str) -> None:
        size = self.line_buffer_bytes.get(root) or self.graph.types[root].bytes
        self.owner[root] = len(self.pieces)
        self.pieces.append(Storage(size, (), [root], self.alignment.get(root, ALIGNMENT)))
        self.accesses.append([])

    def access(self, step: int, value: str, *, writes: bool) -> None:
        root, offset = self.lies[value]
        if root in self.owner:
            end = offset + self.graph.types[value].bytes
            self.accesses[self.owner[root]].append(_Access(step, offset, end, writes))

    def write(self, number: int, output: str) -> None:
        """Find the storage of an output."""
        root = self.root(output)
        if root in self.outside or root in self.owner:
            return
        heir = self.home.get(output)
        if heir is None and root == output:
            heir = self.inherit(number, output)
        if heir is None:
            self.add(root)
            return
        piece = self.pieces[self.owner[heir]]
        self.owner[output] = self.owner[heir]
        piece.bytes = max(piece.bytes, self.graph.types[output].bytes)
        piece.alignment = max(piece.alignment, self.alignment.get(root, ALIGNMENT))
        piece.values.append(output)

    def scratch(self, number: int) -> int | None:
        """Return the storage of a step's scratch; steps that compute parts of one operator have the same."""
        size = self.steps[number].scratch_bytes
        if not size:
            return None
        key = f"scratch of {self.steps[number].node.title}"
        if key not in self.owner:
            self.owner[key] = len(self.pieces)
            self.pieces.append(Storage(0, (), [key]))
            self.accesses.append([])
        piece = self.pieces[self.owner[key]]
        piece.bytes = max(piece.bytes, size)
        piece.alignment = max(piece.alignment, self.steps[number].scratch_alignment)
        self.accesses[self.owner[key]].append(_Access(number, 0, size, writes=True))
        return self.owner[key]

    def inherit(self, number: int, output: str) -> str | None:
        """Return the value whose storage a step's output reuses: the largest allowed one that dies here."""
        step, types = self.steps[number], self.graph.types
        out, used = types[output], {self.owner.get(self.root(value)) for value in step.node.outputs}
        candidates = []
        for place, result in step.schedule.overwrites(step.node, self.graph):
            if step.node.outputs[result] != output:
                continue
            value, offset = self.lies[step.node.inputs[place]]
            if value not in self.owner or self.last.get(value) != number or offset or value in self.line_buffer_bytes:
                continue
            if self.owner[value] in used:  # by another output of the step
                continue
            if self.grow or types[value].bytes >= out.bytes:
                candidates.append(value)
        return max(candidates, key=lambda value: types[value].bytes, default=None)


def storages(graph: Graph, steps: Sequence[Step], io: Io, *, grow: bool = False) -> Storages:
    """Return the storages of steps in their order.

    An output reuses the storage of an input that dies at its step, where the schedule allows it; with `grow` also
    that of a smaller input, which is then enlarged from the start. A state has one storage all the time, which its
    output reuses too where nothing reads the old value any more.
    """
    builder = _Storages(graph, steps, io, grow=grow)
    for value in graph.inputs:
        if value not in builder.outside:
            builder.add(value)
            builder.access(-1, value, writes=True)
    scratch_of: list[int | None] = []
    for number, step in enumerate(steps):
        for output in step.node.outputs:
            builder.write(number, output)
        for value in step.node.inputs:
            builder.access(number, value, writes=False)
        for output in step.node.outputs:
            builder.access(number, output, writes=True)
        scratch_of.append(builder.scratch(number))
    for value in graph.outputs:
        builder.access(len(steps), value, writes=False)
    lifelong = {builder.owner[value] for _, value, _ in graph.state_values}
    lifelong |= {builder.owner[size.value] for size in graph.sizes if size.value in builder.owner}
    for number, (piece, accesses) in enumerate(zip(builder.pieces, builder.accesses, strict=True)):
        if number in lifelong:
            piece.parts = (Part(0, piece.bytes, _span(-1, len(steps))),)
        elif accesses:
            piece.parts = _live_parts(accesses)
    owners = {}
    for value in graph.types:
        root, offset = builder.lies[value]
        if root in builder.owner:
            owners[value] = builder.owner[root], offset
    return Storages(builder.pieces, owners, scratch_of)


def without_states(
    graph: Graph, pieces: Sequence[Storage], owners: Mapping[str, tuple[int, int]], states: Collection[int]
) -> dict[str, tuple[int, int]]:
    """Place states outside the arena where possible: where the state is all that its storage ever holds.

    Args:
        graph: the graph that is planned.
        pieces: the storages; those of such states become empty.
        owners: the storage of each value, and its offset there.
        states: the numbers of the states.

    Returns:
        For each value that is then outside the arena, the number of its state, and the byte offset there.
    """
    places: dict[str, tuple[int, int]] = {}
    for number in states:
        _, value, _ = graph.state_values[number]
        kind, owner = graph.types[value], owners[value][0]
        piece = pieces[owner]
        if piece.bytes == kind.bytes and piece.alignment <= max(kind.dtype.size, ALIGNMENT):
            piece.bytes, piece.parts = 0, ()
            places |= {value: (number, offset) for value, (other, offset) in owners.items() if other == owner}
    return places


def _live_parts(accesses: Sequence[_Access]) -> tuple[Part, ...]:
    """Return the ranges of a storage with their lifetimes: from a write to the last read before the next write."""
    edges = sorted({edge for access in accesses for edge in (access.begin, access.end)})
    parts: list[Part] = []
    for begin, end in itertools.pairwise(edges):
        live, since = 0, -1
        for access in accesses:  # in the order of steps, reads before writes
            if access.begin > begin or access.end < end:
                continue
            if access.writes:
                since = access.step
            live |= _span(since, access.step)
        if parts and parts[-1].live == live:
            parts[-1] = Part(parts[-1].offset, end - parts[-1].offset, live)
        elif live:
            parts.append(Part(begin, end - begin, live))
    return tuple(parts)


def live_bound(pieces: Sequence[Storage]) -> int:
    """Return the most bytes that are live at one time: no layout can be smaller."""
    changes: dict[int, int] = {}
    for piece in pieces:
        for part in piece.parts:
            size = aligned(part.bytes) if len(piece.parts) == 1 else part.bytes
            for first, end in part.spans():
                changes[first] = changes.get(first, 0) + size
                changes[end] = changes.get(end, 0) - size
    most = total = 0
    for at in sorted(changes):
        total += changes[at]
        most = max(most, total)
    return most


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """Return the smallest multiple of an alignment that is not less than a size."""
    return (size + alignment - 1) // alignment * alignment


def offsets_of(owners: Mapping[str, tuple[int, int]], placed: Mapping[int, int]) -> dict[str, int]:
    """Return the arena offset of each value, in bytes."""
    return {value: placed[number] + offset for value, (number, offset) in owners.items() if number in placed}
