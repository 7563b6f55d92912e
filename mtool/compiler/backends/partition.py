"""Partitioning of a network: backends get their regions, which become calls in the graph."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from mtool.base.frozen import frozen
from mtool.compiler.backends.call import replace_regions
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.guard import claims_of, compiled_by, cost_of, refusal_of
from mtool.compiler.backends.interface import (
    Backend,
    BackendError,
    Context,
    Operand,
    Operation,
    OperationsRefused,
    Product,
    Region,
)
from mtool.compiler.backends.reading import operations_of, put_channels_last
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.graph import Rewriter


def put_together(path: str, graphs: Mapping[str, Graph]) -> Graph:
    """Return the graph of a path, whose control nodes have the graphs of the paths below it."""
    graph = graphs[path]
    if len(graphs) == 1:
        return graph
    nodes = []
    for node in graph.nodes:
        attrs = node.attrs
        paths = [f"{path}{node.name}/{name}/" for name in attrs.names] if isinstance(attrs, Control) else []
        if isinstance(attrs, Control) and all(one in graphs for one in paths):
            node = replace(node, attrs=attrs.with_bodies([put_together(one, graphs) for one in paths]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def aligned(view: Graph, graph: Graph) -> Graph:
    """Return a view with the names that a graph has for the last values of its states."""
    names = {given: last for _, given, last in graph.state_values}
    new = {last: names[given] for _, given, last in view.state_values if given in names}
    new = {old: name for old, name in new.items() if old != name and name not in view.types}
    if not new:
        return view

    def of(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new.get(value, value) for value in values)

    return replace(
        view,
        nodes=tuple(replace(node, inputs=of(node.inputs), outputs=of(node.outputs)) for node in view.nodes),
        outputs=of(view.outputs),
        types={new.get(value, value): kind for value, kind in view.types.items()},
        quant={new.get(value, value): quant for value, quant in view.quant.items()},
        sources={new.get(value, value): source for value, source in view.sources.items()},
    )


def body_of(graph: Graph, region: Region) -> Graph:
    """Return the nodes of a region as a graph, whose inputs and outputs are the region's.

    Raises:
        BackendError: the graph computes the region from values that do not cross its border.
    """
    inputs, outputs = (tuple(one.value for one in side) for side in (region.inputs, region.outputs))
    needed, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        if needed & {*node.outputs} and not {*node.outputs} <= {*inputs}:
            nodes.append(node)
            needed.update(value for value in node.inputs if value and value not in inputs)
    made = {value for node in nodes for value in node.outputs}
    missing = sorted(needed - made - graph.constants.keys())
    if missing:
        raise BackendError(f"{region.name} also needs {missing[0]}", details=[f"its inputs are {', '.join(inputs)}"])
    own = replace(graph, name=region.name, inputs=inputs, outputs=outputs, output_names=outputs, counts={}, states=())
    rewriter = Rewriter(own)
    rewriter.nodes = nodes[::-1]
    return rewriter.finish()


def grown(
    operations: Sequence[Operation],
    claimed: Mapping[int, str],
    grows: Collection[str],
    may_join: Callable[[Sequence[int]], bool],
) -> list[tuple[int, ...]]:
    """Return the largest possible regions of claimed operations, each as the numbers of its operations.

    The regions, and the operations outside of them, can always be computed one after another.

    Args:
        operations: in an order in which they can be computed.
        claimed: the backend of each operation that has one, by number.
        grows: the backends whose regions may have several operations.
        may_join: whether a backend accepts these operations as one region.
    """
    made = {one.value: number for number, operation in enumerate(operations) for one in operation.outputs}
    before = {
        number: {made[one.value] for one in operation.variables if one.value in made}
        for number, operation in enumerate(operations)
    }
    after: dict[int, set[int]] = {number: set() for number in before}
    for number, earlier in before.items():
        for one in earlier:
            after[one].add(number)
    members = {number: [number] for number in before}  # of each group, which has the number of one of them

    def waits_through(first: int, last: int) -> bool:
        """Return whether there is a way from a group to another by a third."""
        waiting = [*after[first] - {last}]
        seen = {*waiting}
        while waiting:
            group = waiting.pop()
            if last in after[group]:
                return True
            waiting += after[group] - seen
            seen |= after[group]
        return False

    for number in range(len(operations)):
        backend = claimed.get(number)
        if backend not in grows:
            continue
        own, tried = number, set[int]()
        while near := [one for one in before[own] - tried if claimed.get(one) == backend]:
            other = min(near)
            tried.add(other)
            joined = sorted(members[own] + members[other])
            if waits_through(own, other) or waits_through(other, own) or not may_join(joined):
                continue
            members[other] = joined
            del members[own]
            for forward, backward in ((after, before), (before, after)):
                for neighbour in forward.pop(own):
                    backward[neighbour].discard(own)
                    if neighbour != other:
                        forward[other].add(neighbour)
                        backward[neighbour].add(other)
            own = other
    return sorted(tuple(one) for one in members.values() if one[0] in claimed)


@frozen
class Part:
    """A region with its backend, the partitioner of its graph, and its operations' numbers there."""

    of: "Partitioner"
    backend: Backend
    members: tuple[int, ...]
    region: Region

    def named(self, stem: str, taken: set[str]) -> "Part":
        """Return the part with a free name and with the region's body."""
        while stem in taken:
            stem += "_"
        taken.add(stem)
        region = replace(self.region, name=stem)
        return replace(self, region=replace(region, body=body_of(self.of.graph, region)))


class Partitioner:
    """The claims of backends on the operations of one graph.

    Args:
        path: the control nodes around it and which of their graphs it is, "" of the whole: "loop_3/body/".
        view: the graph where integers are rounded as in ONNX.
        graph: the same, rounded as it is to be computed.
        model: the network's name, the beginning of all its C names.
        chosen: the backends, in order of preference.
        context: what they compile for.
        cost_in_c: estimates the instructions of a graph that is compiled to C; None: every region is worth it.

    Attributes:
        operations: those of the view; their names begin with the path.
        claimed: the backend of each operation that one can compute by itself, the first in order of preference.
        refusals: why the backends that come before do not compute it, by name.
    """

    def __init__(
        self,
        path: str,
        view: Graph,
        graph: Graph,
        model: str,
        chosen: Sequence[Chosen],
        context: Context,
        cost_in_c: Callable[[Graph], float] | None,
    ) -> None:
        self.path, self.view, self.graph = path, view, graph
        self.model, self.context, self.cost_in_c = model, context, cost_in_c
        if any(one.backend.layout == "NHWC" for one in chosen):
            self.view = put_channels_last(view)
            self.graph = self.view if view is graph else put_channels_last(graph)
        self.operations = tuple(replace(one, name=f"{path}{one.name}") for one in operations_of(self.view))
        self.chosen = {one.backend.name: one for one in chosen}
        self.refusals: list[list[tuple[str, str]]] = [[] for _ in self.operations]
        self.readers: dict[str, set[int]] = defaultdict(set)
        for number, operation in enumerate(self.operations):
            for operand in operation.variables:
                self.readers[operand.value].add(number)
        self.claimed: dict[int, str] = {}
        for number, operation in enumerate(self.operations):
            for name, one in self.chosen.items():
                why = one.skips(operation) or self._apart(operation)
                why = why or refusal_of(one.backend, operation, self.context)
                why = why or claims_of(one.backend, self._region([number]))
                if not why:
                    self.claimed[number] = name
                    break
                self.refusals[number].append((name, why))

    def inside(self) -> Iterator["Partitioner"]:
        """Yield the partitioners of the graphs in its control nodes, except for claimed nodes."""
        claimed = {self.operations[number].name for number in self.claimed}
        exact = {node.name: node.attrs for node in self.graph.nodes}
        for node in self.view.nodes:
            attrs, other = node.attrs, exact.get(node.name)
            if not isinstance(attrs, Control) or not isinstance(other, Control) or f"{self.path}{node.name}" in claimed:
                continue
            for name, view, graph in zip(attrs.names, attrs.bodies, other.bodies, strict=True):
                path = f"{self.path}{node.name}/{name}/"
                yield Partitioner(path, view, graph, self.model, [*self.chosen.values()], self.context, self.cost_in_c)

    def _apart(self, operation: Operation) -> str:
        """Return why an operation can't be cut out of the computed graph; "": it can."""
        tensors = (*operation.variables, *operation.outputs)
        other = next((one.tensor for one in tensors if not self._is_computed(one)), None)
        return "" if other is None else f"{other} does not exist with this rounding"

    def _is_computed(self, operand: Operand) -> bool:
        """Whether a tensor of the view is what goes by its name in the graph that is computed.

        There, names within an operator of the file may stand for other numbers of 32 bits; what is stored is the same.
        """
        value, graph, view = operand.value, self.graph, self.view
        if graph is view or graph.types.get(value) != operand.type:
            return graph is view
        is_inside = operand.dtype.size >= 4 and value not in (*graph.inputs, *graph.outputs)
        return not is_inside or graph.sources.get(value) == view.sources.get(value) is not None

    def parts(self, claimed: Mapping[int, str]) -> list[Part]:
        """Return the largest regions of claimed operations that backends accept."""

        def backend_of(members: Sequence[int]) -> Backend:
            return self.chosen[claimed[members[0]]].backend

        def may_join(members: Sequence[int]) -> bool:
            return not claims_of(backend_of(members), self._region(members))

        grows = {name for name, one in self.chosen.items() if one.backend.whole_regions}
        found = grown(self.operations, claimed, grows, may_join)
        return [Part(self, backend_of(members), members, self._region(members)) for members in found]

    def limit(self, part: Part, count: int) -> str:
        """Return why a backend with `count` regions does not get another one; "": it does."""
        inputs = () if self.path else self.graph.inputs
        why = self.chosen[part.backend.name].limits(part.region, count, inputs)
        cost = cost_of(part.backend, part.region) if not why and self.cost_in_c is not None else None
        if cost is None or self.cost_in_c is None:
            return why
        ours = self.cost_in_c(body_of(self.graph, replace(part.region, name=f"{part.backend.name}_region")))
        return "" if cost < ours else f"it does not pay: about {cost:,.0f} instructions there, {ours:,.0f} in C"

    def _region(self, members: Sequence[int]) -> Region:
        """Return operations as a region without a name."""
        inside, operations = {*members}, tuple(self.operations[number] for number in members)
        made = {one.value: one for operation in operations for one in operation.outputs}
        read: dict[str, Operand] = {}
        for one in (operand for operation in operations for operand in operation.variables):
            if one.value not in made:
                read.setdefault(one.value, one)
        ends = self.view.outputs
        outputs = tuple(one for value, one in made.items() if value in ends or self.readers[value] - inside)
        return Region("", self.model, operations, tuple(read.values()), outputs, self.context)


MOST_SPLITS = 32
"""How many times a region is split if its backend's compiler refuses operations."""
log = logging.getLogger(__name__)


@frozen
class Claim:
    """Which backend computes an operation, and why the others do not.

    operation: as backends see it.
    region: the name of its region; "": it is compiled to C.
    backend: the backend's name; "": C.
    refusals: why the backends that come before do not compute it, by name.
    """

    operation: Operation
    region: str
    backend: str
    refusals: tuple[tuple[str, str], ...]


@frozen
class Partition:
    """The regions of a network: a graph in which they are calls, and the claims on its operations."""

    graph: Graph
    claims: tuple[Claim, ...]
    regions: tuple[Region, ...]


def partition(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    falls_back: bool = False,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Partition:
    """Give backends the regions of a network that they claim.

    Args:
        view: the network as the frontend leaves it where integers are rounded as in ONNX.
        graph: the same network, rounded as it is to be computed; the same object if there is no difference.
        chosen: the backends, in order of preference.
        context: what they compile for.
        falls_back: a region that a backend fails to compile is left to C, with a warning.
        cost_in_c: estimates the instructions of a graph that is compiled to C; None: every region is worth it.

    Raises:
        BackendError: a backend failed.
    """
    divided = divide(view, graph, chosen, context, cost_in_c=cost_in_c)
    compiled = [one for part in divided.parts for one in _compiled(divided, part, falls_back=falls_back)]
    graphs = {}
    for one in divided.partitioners:
        own = [(part.backend.name, part.region, product) for part, product in compiled if part.of is one]
        graphs[one.path] = replace_regions(one.graph, own)
    made = replace(divided, parts=tuple(part for part, _ in compiled))
    return Partition(put_together("", graphs), made.claims(), tuple(part.region for part in made.parts))


@frozen
class Division:
    """The regions of a network before their backends compile them.

    partitioners: of the whole network, and of the graphs inside of its branches and loops.
    parts: the regions.
    """

    partitioners: tuple[Partitioner, ...]
    parts: tuple[Part, ...]

    @property
    def regions(self) -> tuple[tuple[Backend, Region], ...]:
        """The regions, each with its backend."""
        return tuple((part.backend, part.region) for part in self.parts)

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims, if the regions are computed by their backends."""
        of = {one.name: (region.name, backend.name) for backend, region in self.regions for one in region.operations}
        return tuple(
            Claim(operation, *of.get(operation.name, ("", "")), tuple(refusals))
            for one in self.partitioners
            for operation, refusals in zip(one.operations, one.refusals, strict=True)
        )


def divide(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Division:
    """Return the regions that backends claim, without compiling them; the arguments are those of `partition`."""
    partitioners = [Partitioner("", view, graph, graph.name, chosen, context, cost_in_c)]
    for partitioner in partitioners:  # which grow
        partitioners += partitioner.inside()
    operations = [operation for partitioner in partitioners for operation in partitioner.operations]
    for one in chosen:
        one.tell_unknown(operations)
    parts = [part for partitioner in partitioners for part in partitioner.parts(partitioner.claimed)]
    counts: Counter[str] = Counter()
    kept = set()
    for number, part in sorted(enumerate(parts), key=lambda each: -each[1].region.macs):
        why = part.of.limit(part, counts[part.backend.name])
        if why:
            for member in part.members:
                part.of.refusals[member].append((part.backend.name, why))
        else:
            counts[part.backend.name] += 1
            kept.add(number)
    taken = {node.name for partitioner in partitioners for node in partitioner.graph.nodes}
    made = [part for number, part in enumerate(parts) if number in kept]
    named = (part.named(f"{part.backend.name}_{number}", taken) for number, part in enumerate(made))
    return Division(tuple(partitioners), tuple(named))


def _compiled(divided: Division, part: Part, *, falls_back: bool) -> list[tuple[Part, Product]]:
    """Compile a region with its backend; if that refuses operations, compile the remaining regions."""
    taken = {other.region.name for other in divided.parts}
    waiting, found, splits = [part], [], 0
    while waiting:
        one = waiting.pop(0)
        try:
            found.append((one, compiled_by(one.backend, one.region)))
        except BackendError as refused:
            reasons = refused.reasons if isinstance(refused, OperationsRefused) else {}
            numbers = {number: reasons.get(one.of.operations[number].name) for number in one.members}
            splits += bool(reasons)
            if splits > MOST_SPLITS or not any(numbers.values()):
                if not falls_back:
                    raise
                log.warning("%s is left to C: %s", one.region.name, refused.what)
                continue
            for number, why in numbers.items():
                if why:
                    one.of.refusals[number].append((one.backend.name, why))
            kept = [number for number, why in numbers.items() if not why]
            log.warning("%s is split: %s", one.region.name, refused.what)
            rest = one.of.parts(dict.fromkeys(kept, one.backend.name))
            waiting += [other.named(f"{one.region.name}_{n}", taken) for n, other in enumerate(rest)]
    return found
