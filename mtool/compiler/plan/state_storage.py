"""Storage of states: each has one for the life of the firmware, which an inference reads and writes.

The operator that writes a state's output writes it there, if nothing reads the old value after it, or if it may write
over what it reads. Where that can't be, the output has another storage and is copied at the end.

Stream buffers (the last inputs of a causal convolution) are a special case, in two forms. `concat(state, new)` takes
the state's storage, made larger, and the state's output is the move of its end to its beginning. Or the state is moved
first, and the new is appended to that: `concat(slice(state), new)`. In both, only what is new is copied, and the rest
moved in place.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.expr import identity, load
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.plan.step import Step


@dataclass(frozen=True, slots=True)
class _Uses:
    """When values are read and written, by number of the step; values stand for all views of them."""

    root: Mapping[str, str]
    reads: Mapping[str, Sequence[int]]
    written: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, steps: Sequence[Step]) -> "_Uses":
        root: dict[str, str] = {}
        for node in graph.nodes:
            if isinstance(node.attrs, View):
                root[node.outputs[0]] = root.get(node.inputs[0], node.inputs[0])
        reads: dict[str, list[int]] = {}
        written: dict[str, int] = {}
        for number, step in enumerate(steps):
            for value in step.node.inputs:
                value = root.get(value, value)
                reads.setdefault(value, []).append(number)
            written |= dict.fromkeys(step.node.outputs, number)
        return cls(root, reads, written)

    def last_read(self, value: str) -> int:
        """Return the last step that reads a value; -1: none does."""
        return self.reads[value][-1] if value in self.reads else -1


def values_in_state_storage(graph: Graph, steps: Sequence[Step]) -> dict[str, str]:
    """Return the values that are written into the storage of a state: value -> the state's input."""
    if not graph.states:
        return {}
    uses = _Uses.of(graph, steps)
    found: dict[str, str] = {}
    for _, value, output in graph.state_values:
        output = uses.root.get(output, output)
        buffer, moved = _stream_buffer(graph, steps, uses, value), _moved(graph, steps, uses, value, output)
        if moved:
            found |= {moved: value, output: value}
            continue
        for before in ([value, buffer], [value]) if buffer else ([value],):
            if all(_may_overwrite(graph, steps, uses, output, old) for old in before):
                found |= dict.fromkeys([output, *before[1:]], value)
                break
    return found


def _moved(graph: Graph, steps: Sequence[Step], uses: _Uses, value: str, output: str) -> str:
    """Return what a state's output appends to, if that is the state itself, moved in place, or ""."""
    node = steps[uses.written[output]].node
    first = uses.root.get(node.inputs[0], node.inputs[0]) if isinstance(node.attrs, Concat) else ""
    if first not in uses.written or not _appends(node, graph) or [*uses.reads[first]] != [uses.written[output]]:
        return ""
    roots = {uses.root.get(one, one) for one in graph.outputs}
    in_place = first not in roots and _may_overwrite(graph, steps, uses, first, value)
    return first if in_place and value in steps[uses.written[first]].node.inputs else ""


def _appends(node: Node, graph: Graph) -> bool:
    """Whether a concat's first input lies in its output as it lies by itself."""
    return math.prod(graph.types[node.outputs[0]].shape[: Concat.of(node).axis]) == 1


def _stream_buffer(graph: Graph, steps: Sequence[Step], uses: _Uses, value: str) -> str:
    """Return what the last reader of a state makes of it by appending to it, or ""."""
    number = uses.last_read(value)
    node = steps[number].node if number >= 0 else None
    if node is None or not isinstance(node.attrs, Concat) or uses.root.get(node.inputs[0], node.inputs[0]) != value:
        return ""
    roots = {uses.root.get(output, output) for output in graph.outputs}
    alone = uses.reads[value].count(number) == 1 and node.outputs[0] not in roots
    return node.outputs[0] if _appends(node, graph) and alone else ""


def _may_overwrite(graph: Graph, steps: Sequence[Step], uses: _Uses, output: str, old: str) -> bool:
    """Whether the step that writes `output` may do so where `old` lies."""
    number = uses.written[output]
    last = uses.last_read(old)
    if last != number:
        return last < number
    node = steps[number].node
    read = [place for place, value in enumerate(node.inputs) if uses.root.get(value, value) == old]
    over = node.outputs.index(output)
    pairs = steps[number].schedule.overwrites(node, graph)
    return {place for place, written in pairs if written == over} >= {*read}


def _same_storage(storage: Mapping[str, str], first: str, step: Step) -> bool:
    return storage.get(step.node.outputs[0]) == storage.get(first, first)


def read_states_before_writes(graph: Graph) -> tuple[Node, ...]:
    """Return the nodes in an order in which states are written after they are read, where that is possible."""
    behind: dict[str, set[str]] = {
        node.name: set() for node in graph.nodes
    }  # node -> the nodes that have to come after it
    makers = graph.producers()
    for node in graph.nodes:
        for value in node.inputs:
            if value in makers:
                behind[makers[value].name].add(node.name)
    readers = graph.consumers()
    for _, value, output in graph.state_values:
        writer = makers[output]
        while isinstance(writer.attrs, View):
            writer = makers[writer.inputs[0]]
        reading = _all_readers(value, readers)
        buffers = [node.outputs[0] for node in reading if isinstance(node.attrs, Concat)]
        both = [*reading, *(node for buffer in buffers for node in _all_readers(buffer, readers))]
        later = _reached(writer.name, behind)
        for nodes in (both, reading):
            before = {node.name for node in nodes} - {writer.name}
            if not before & later:
                for name in before:
                    behind[name].add(writer.name)
                break
    return _sorted(graph.nodes, behind)


def _reached(start: str, behind: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes that have to come after one."""
    found, waiting = set[str](), [start]
    while waiting:
        new = behind[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _all_readers(value: str, readers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Return the nodes that read a value, or a view of it."""
    found, waiting = [], [value]
    while waiting:
        nodes = readers.get(waiting.pop(), ())
        found += [node for node in nodes if not isinstance(node.attrs, View)]
        waiting += [node.outputs[0] for node in nodes if isinstance(node.attrs, View)]
    return found


def _sorted(nodes: Sequence[Node], behind: Mapping[str, set[str]]) -> tuple[Node, ...]:
    """Return the nodes as near to their order as `behind` allows."""
    numbers = {node.name: number for number, node in enumerate(nodes)}
    missing = [0] * len(nodes)
    for names in behind.values():
        for name in names:
            missing[numbers[name]] += 1
    ready = [number for number in range(len(nodes)) if not missing[number]]
    ordered = []
    while ready:
        ordered.append(nodes[heapq.heappop(ready)])
        for name in behind[ordered[-1].name]:
            missing[numbers[name]] -= 1
            if not missing[numbers[name]]:
                heapq.heappush(ready, numbers[name])
    assert len(ordered) == len(nodes), "the nodes wait for each other"
    return tuple(ordered)


def copy_states(
    graph: Graph, steps: Sequence[Step], choose: Callable[[Node, Graph], Step], stem: str = "keep"
) -> tuple[Graph, tuple[Step, ...]]:
    """Append to stream buffers in place, and copy each state whose output can't be written into its storage.

    Args:
        graph: with its nodes in their order.
        steps: of all nodes but views.
        choose: gives the step of a new node.
        stem: of the names of new nodes.
    """
    storage, uses = values_in_state_storage(graph, steps), _Uses.of(graph, steps)
    appending = {
        step.node.name: replace(step.node, attrs=replace(step.node.attrs, appends=True))
        for step in steps
        if isinstance(step.node.attrs, Concat)
        and _same_storage(storage, uses.root.get(step.node.inputs[0], step.node.inputs[0]), step)
    }
    made = [replace(step, node=appending.get(step.node.name, step.node)) for step in steps]
    nodes, outputs = [appending.get(node.name, node) for node in graph.nodes], list(graph.outputs)
    types, sources = dict(graph.types), dict(graph.sources)
    graph = replace(graph, nodes=tuple(nodes))
    for number, (_, value, output) in enumerate(graph.state_values, len(graph.caller_outputs)):
        if uses.root.get(output, output) in storage:
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
        node = Node("loop", f"{stem}_{len(made)}", (output,), (copy,), Loop(expr=element, label="keep"))
        nodes.append(node)
        graph = replace(graph, nodes=tuple(nodes), outputs=tuple(outputs), types=types, sources=sources)
        made.append(choose(node, graph))
    return graph, tuple(made)
