"""Partitioning of a network: backends get their regions, and what they compile stands in the graph as a call."""

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph of a network.

    path: the control nodes around it and which of their graphs it is, "" of the whole: "loop_3/body/".
    view: the graph where integers are rounded as in ONNX.
    graph: the same, rounded as it is to be computed.
    operations: those of the view; their names begin with the path.
    """

    path: str
    view: Graph
    graph: Graph
    operations: tuple[Operation, ...]


def scope_of(view: Graph, graph: Graph, path: str, *, is_channels_last: bool) -> Scope:
    """Return a graph as a scope, laid out as backends want it."""
    if is_channels_last:
        is_same = view is graph
        view = put_channels_last(view)
        graph = view if is_same else put_channels_last(graph)
    operations = tuple(replace(one, name=f"{path}{one.name}") for one in operations_of(view))
    return Scope(path, view, graph, operations)


def inner_scopes(scope: Scope, claimed: Collection[str], *, is_channels_last: bool) -> Iterator[Scope]:
    """Yield the scopes of the graphs of a scope's control nodes, but for those that are claimed, by their paths."""
    exact = {node.name: node.attrs for node in scope.graph.nodes}
    for node in scope.view.nodes:
        attrs, other = node.attrs, exact.get(node.name)
        if not isinstance(attrs, Control) or not isinstance(other, Control) or f"{scope.path}{node.name}" in claimed:
            continue
        for name, view, graph in zip(attrs.names, attrs.bodies, other.bodies, strict=True):
            path = f"{scope.path}{node.name}/{name}/"
            yield scope_of(view, graph, path, is_channels_last=is_channels_last)


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
        BackendError: the graph computes the region of other values than cross its border.
    """
    inputs = tuple(one.value for one in region.inputs)
    outputs = tuple(one.value for one in region.outputs)
    needed, nodes = {*outputs}, []
    for node in reversed(graph.nodes):
        if needed & {*node.outputs} and not {*node.outputs} <= {*inputs}:
            nodes.append(node)
            needed.update(value for value in node.inputs if value and value not in inputs)
    made = {value for node in nodes for value in node.outputs}
    missing = sorted(needed - made - graph.constants.keys())
    if missing:
        raise BackendError(
            f"{region.name} also needs {missing[0]}",
            details=[f"its inputs are {', '.join(inputs)}"],
        )
    values = needed | made | {*inputs}
    return replace(
        graph,
        name=region.name,
        inputs=inputs,
        outputs=outputs,
        output_names=outputs,
        nodes=tuple(reversed(nodes)),
        types={value: kind for value, kind in graph.types.items() if value in values},
        constants={value: data for value, data in graph.constants.items() if value in values},
        quant={value: quant for value, quant in graph.quant.items() if value in values},
        sources={value: source for value, source in graph.sources.items() if value in values},
        counts={},
        states=(),
    )


MayJoin = Callable[[Sequence[int]], bool]
"""Whether operations, by their numbers in order, may be one region."""


class Groups:
    """Operations in groups that grow, such that the groups can always be computed one after another.

    Args:
        operations: in an order in which they can be computed.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        made = {one.value: number for number, operation in enumerate(operations) for one in operation.outputs}
        self.members: dict[int, tuple[int, ...]] = {number: (number,) for number in range(len(operations))}
        self._group: list[int] = [*range(len(operations))]
        self._after: dict[int, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)
        for number, operation in enumerate(operations):
            for value in {one.value for one in operation.variables} & made.keys():
                self._after[made[value]].add(number)
                self._before[number].add(made[value])

    def group_of(self, operation: int) -> int:
        """Return the group of an operation."""
        return self._group[operation]

    def before(self, group: int) -> set[int]:
        """Return the groups whose results a group reads."""
        return self._before[group]

    def can_join(self, one: int, other: int) -> bool:
        """Return whether no third group waits for one of two groups while the other waits for it."""
        return not (self._waits_through(one, other) or self._waits_through(other, one))

    def _waits_through(self, first: int, last: int) -> bool:
        """Whether there is a way from a group to another by a third."""
        waiting = [one for one in self._after[first] if one != last]
        seen = {*waiting}
        while waiting:
            group = waiting.pop()
            for after in self._after[group]:
                if after == last:
                    return True
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        return False

    def join(self, one: int, other: int) -> int:
        """Make one group of two, and return it."""
        self.members[one] = tuple(sorted((*self.members[one], *self.members.pop(other))))
        for number in self.members[one]:
            self._group[number] = one
        for forward, backward in ((self._after, self._before), (self._before, self._after)):
            for neighbour in forward.pop(other, set()):
                backward[neighbour].discard(other)
                if neighbour != one:
                    forward[one].add(neighbour)
                    backward[neighbour].add(one)
        return one


def grown(
    operations: Sequence[Operation], claimed: Mapping[int, str], grows: Iterable[str], may_join: MayJoin
) -> list[tuple[int, ...]]:
    """Return the regions of claimed operations, as large as they can be, each as the numbers of its operations.

    Args:
        operations: in an order in which they can be computed.
        claimed: the backend of each operation that has one, by number.
        grows: the backends whose regions may have several operations.
        may_join: whether a backend takes these operations as one region.
    """
    groups, growing = Groups(operations), {*grows}
    for number in range(len(operations)):
        backend = claimed.get(number)
        if backend not in growing:
            continue
        own = groups.group_of(number)
        tried: set[int] = set()
        while True:
            near = (one for one in sorted(groups.before(own)) if one not in tried)
            other = next((one for one in near if claimed.get(groups.members[one][0]) == backend), None)
            if other is None:
                break
            tried.add(other)
            joined = sorted((*groups.members[own], *groups.members[other]))
            if groups.can_join(own, other) and may_join(joined):
                own = groups.join(other, own)
    return sorted(members for members in groups.members.values() if members[0] in claimed)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A region that may be: the partitioner of its graph, its backend, the numbers of its operations there."""

    of: "Partitioner"
    backend: Backend
    members: tuple[int, ...]

    @property
    def macs(self) -> int:
        """Its multiply-accumulates."""
        return sum(self.of.scope.operations[one].macs for one in self.members)


class Partitioner:
    """The claims of backends on the operations of one graph.

    Args:
        scope: the graph.
        model: the network's name, the beginning of all its C names.
        chosen: the backends, in order of preference.
        context: what they compile for.
        cost_in_c: estimates the instructions of a graph that is compiled to C; None: every region is worth it.
    """

    def __init__(
        self,
        scope: Scope,
        model: str,
        chosen: Sequence[Chosen],
        context: Context,
        cost_in_c: Callable[[Graph], float] | None,
    ) -> None:
        self.scope, self.model, self.context, self.cost_in_c = scope, model, context, cost_in_c
        self.chosen = {one.backend.name: one for one in chosen}
        self.refusals: list[list[tuple[str, str]]] = [[] for _ in scope.operations]
        self.readers: dict[str, set[int]] = {}
        for number, operation in enumerate(scope.operations):
            for operand in operation.variables:
                self.readers.setdefault(operand.value, set()).add(number)
        self.claimed = self._claimed()

    def _claimed(self) -> dict[int, str]:
        """Return the backend of each operation that one can compute by itself, the first in order of preference."""
        found: dict[int, str] = {}
        for number, operation in enumerate(self.scope.operations):
            for name, one in self.chosen.items():
                why = one.skips(operation) or self._apart(operation)
                why = why or refusal_of(one.backend, operation, self.context)
                why = why or claims_of(one.backend, self.region("", [number]))
                if not why:
                    found[number] = name
                    break
                self.refusals[number].append((name, why))
        return found

    def _apart(self, operation: Operation) -> str:
        """Return why an operation can't be cut out of what is computed; "": it can."""
        tensors = (*operation.variables, *operation.outputs)
        other = next((one.tensor for one in tensors if not self._is_computed(one)), None)
        return "" if other is None else f"{other} is not there as it is computed with this rounding"

    def _is_computed(self, operand: Operand) -> bool:
        """Whether a tensor of the view is what goes by its name in the graph that is computed.

        There, names within an operator of the file may stand for other numbers of 32 bits; what is stored is the same.
        """
        value, graph, view = operand.value, self.scope.graph, self.scope.view
        if graph is view or graph.types.get(value) != operand.type:
            return graph is view
        is_inside = operand.dtype.size >= 4 and value not in (*graph.inputs, *graph.outputs)
        return not is_inside or graph.sources.get(value) == view.sources.get(value) is not None

    def candidates(self) -> list[Candidate]:
        """Return the largest regions that the backends take."""
        return self._grown(self.claimed)

    def candidates_in(self, backend: Backend, members: Iterable[int]) -> list[Candidate]:
        """Return the largest regions that a backend takes of some operations."""
        return self._grown(dict.fromkeys(members, backend.name))

    def _grown(self, claimed: dict[int, str]) -> list[Candidate]:
        def may_join(members: Sequence[int]) -> bool:
            return not claims_of(self.chosen[claimed[members[0]]].backend, self.region("", members))

        grows = [name for name, one in self.chosen.items() if one.backend.whole_regions]
        found = grown(self.scope.operations, claimed, grows, may_join)
        return [Candidate(self, self.chosen[claimed[members[0]]].backend, members) for members in found]

    def limit(self, candidate: Candidate, count: int) -> str:
        """Return why a backend, which has so many regions already, does not get one more; "": it does."""
        region = self.region("", candidate.members)
        inputs = () if self.scope.path else self.scope.graph.inputs
        why = self.chosen[candidate.backend.name].limits(region, count, inputs)
        return why or self._loss(candidate.backend, region)

    def _loss(self, backend: Backend, region: Region) -> str:
        """Return why a region does not pay; "": it does."""
        cost = cost_of(backend, region)
        if cost is None or self.cost_in_c is None:
            return ""
        ours = self.cost_in_c(body_of(self.scope.graph, replace(region, name=f"{backend.name}_region")))
        return "" if cost < ours else f"it does not pay: about {cost:,.0f} instructions there, {ours:,.0f} in C"

    def region(self, name: str, members: Sequence[int]) -> Region:
        """Return operations as a region."""
        inside, operations = {*members}, [self.scope.operations[number] for number in members]
        made = {one.value: one for operation in operations for one in operation.outputs}
        read: dict[str, Operand] = {}
        for operation in operations:
            for operand in operation.variables:
                if operand.value not in made:
                    read.setdefault(operand.value, operand)
        ends = self.scope.view.outputs
        outputs = [one for value, one in made.items() if value in ends or self.readers.get(value, set()) - inside]
        return Region(name, self.model, tuple(operations), tuple(read.values()), tuple(outputs), self.context)


def in_order(partitioners: Sequence[Partitioner]) -> list[Candidate]:
    """Return the regions that are worth it, by the limits of the user's, in the order of graphs and operations."""
    candidates = [one for parts in partitioners for one in parts.candidates()]
    counts: dict[str, int] = {}
    kept = []
    for number, candidate in sorted(enumerate(candidates), key=lambda one: -one[1].macs):
        name = candidate.backend.name
        why = candidate.of.limit(candidate, counts.get(name, 0))
        if why:
            for member in candidate.members:
                candidate.of.refusals[member].append((name, why))
            continue
        counts[name] = counts.get(name, 0) + 1
        kept.append((number, candidate))
    return [candidate for _, candidate in sorted(kept, key=lambda one: one[0])]


MOST_SPLITS = 32
"""How often a region is split where its backend's compiler refuses operations."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who computes an operation, and why the others do not.

    operation: as backends see it.
    region: the name of its region; "": it is compiled to C.
    backend: the backend's name; "": C.
    refusals: why each backend that was asked before does not, by name.
    """

    operation: Operation
    region: str
    backend: str
    refusals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """The regions of a network: a graph in which they are calls, and who computes which operation."""

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
    """Give the regions of a network that backends claim to them.

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
    for parts in divided.partitioners:
        own = [(part.backend.name, part.region, product) for part, product in compiled if part.of is parts]
        graphs[parts.scope.path] = replace_regions(parts.scope.graph, own)
    regions = tuple(part.region for part, _ in compiled)
    claims = replace(divided, parts=tuple(part for part, _ in compiled)).claims({one.name for one in regions})
    return Partition(put_together("", graphs), claims, regions)


@dataclass(frozen=True, slots=True)
class Division:
    """The regions of a network before their backends compile them.

    partitioners: of the whole network, and of the graphs inside of its branches and loops.
    parts: the regions.
    """

    partitioners: tuple[Partitioner, ...]
    parts: tuple["Part", ...]

    @property
    def regions(self) -> tuple[tuple[Backend, Region], ...]:
        """The regions, each with its backend."""
        return tuple((part.backend, part.region) for part in self.parts)

    def claims(self, made: Iterable[str]) -> tuple[Claim, ...]:
        """Return who computes what, if of the regions those of these names are computed by their backends."""
        kept = {*made}
        pairs = [(backend, region) for backend, region in self.regions if region.name in kept]
        of = {one.name: (region.name, backend.name) for backend, region in pairs for one in region.operations}
        return tuple(
            Claim(one, *of.get(one.name, ("", "")), tuple(refusals))
            for parts in self.partitioners
            for one, refusals in zip(parts.scope.operations, parts.refusals, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A region with its backend, the partitioner of the graph that it stands in, and its operations' numbers there."""

    of: Partitioner
    backend: Backend
    members: tuple[int, ...]
    region: Region


def divide(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Division:
    """Return the regions that backends claim, by the arguments of `partition`; none is compiled."""
    is_last = any(one.backend.layout == "NHWC" for one in chosen)
    scopes = [scope_of(view, graph, "", is_channels_last=is_last)]
    partitioners: list[Partitioner] = []
    for scope in scopes:  # which grows
        parts = Partitioner(scope, graph.name, chosen, context, cost_in_c)
        partitioners.append(parts)
        claimed = {scope.operations[number].name for number in parts.claimed}
        scopes += inner_scopes(scope, claimed, is_channels_last=is_last)
    operations = [one for parts in partitioners for one in parts.scope.operations]
    for one in chosen:
        one.tell_unknown(operations)
    taken = {node.name for parts in partitioners for node in parts.scope.graph.nodes}
    made = []
    for number, candidate in enumerate(in_order(partitioners)):
        made.append(_part(candidate, f"{candidate.backend.name}_{number}", taken))
    return Division(tuple(partitioners), tuple(made))


def _part(candidate: Candidate, stem: str, taken: set[str]) -> Part:
    while stem in taken:
        stem += "_"
    taken.add(stem)
    region = candidate.of.region(stem, candidate.members)
    whole = replace(region, body=body_of(candidate.of.scope.graph, region))
    return Part(candidate.of, candidate.backend, candidate.members, whole)


def _compiled(divided: Division, part: Part, *, falls_back: bool) -> list[tuple[Part, Product]]:
    """Return what a region's backend makes of it, or of those that are left where it refuses operations."""
    taken = {other.region.name for other in divided.parts}
    waiting, found, splits = [part], [], 0
    while waiting:
        one = waiting.pop(0)
        try:
            found.append((one, compiled_by(one.backend, one.region)))
        except OperationsRefused as refused:
            numbers = {number: refused.reasons.get(one.of.scope.operations[number].name) for number in one.members}
            splits += 1
            if splits > MOST_SPLITS or not any(numbers.values()):
                _fall_back(refused, one.region, falls_back=falls_back)
                continue
            for number, why in numbers.items():
                if why:
                    one.of.refusals[number].append((one.backend.name, why))
            kept = [number for number, why in numbers.items() if not why]
            log.warning("%s is split: %s", one.region.name, refused.what)
            candidates = one.of.candidates_in(one.backend, kept)
            waiting += [_part(other, f"{one.region.name}_{n}", taken) for n, other in enumerate(candidates)]
        except BackendError as failed:
            _fall_back(failed, one.region, falls_back=falls_back)
    return found


def _fall_back(failed: BackendError, region: Region, *, falls_back: bool) -> None:
    if not falls_back:
        raise failed
    log.warning("%s is left to C: %s", region.name, failed.what)
