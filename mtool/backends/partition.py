"""Partitioning of a network: backends get their regions, and what they compile stands in the graph as a call."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mtool.backends.asking import claims_of, compiled_by, cost_of, refusal_of
from mtool.backends.chosen import Chosen
from mtool.backends.extraction import body_of, replace_regions
from mtool.backends.interface import Backend, BackendError, Context, Product, Region
from mtool.backends.layout import put_channels_last
from mtool.backends.operation import Operand, Operation
from mtool.backends.reading import operations_of
from mtool.backends.regions import grown
from mtool.ir import Graph

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
    compiled: list[tuple[Backend, Region, Product]] = []
    for backend, region in divided.regions:
        try:
            compiled.append((backend, region, compiled_by(backend, region)))
        except BackendError as failed:
            if not falls_back:
                raise
            log.warning("%s is left to C: %s", region.name, failed.what)
    regions = tuple(region for _, region, _ in compiled)
    by = [(backend.name, region, product) for backend, region, product in compiled]
    return Partition(replace_regions(divided.graph, by), divided.claims({one.name for one in regions}), regions)


@dataclass(frozen=True, slots=True)
class Division:
    """The regions of a network before their backends compile them.

    graph: the network, laid out as the backends want it.
    regions: each with its backend.
    operations, refusals: the operations, and why backends that were asked do not compute each.
    """

    graph: Graph
    regions: tuple[tuple[Backend, Region], ...]
    operations: tuple[Operation, ...]
    refusals: tuple[tuple[tuple[str, str], ...], ...]

    def claims(self, made: Iterable[str]) -> tuple[Claim, ...]:
        """Return who computes what, if of the regions those of these names are computed by their backends."""
        kept = {*made}
        pairs = [(backend, region) for backend, region in self.regions if region.name in kept]
        of = {one.name: (region.name, backend.name) for backend, region in pairs for one in region.operations}
        rows = zip(self.operations, self.refusals, strict=True)
        return tuple(Claim(one, *of.get(one.name, ("", "")), refusals) for one, refusals in rows)


def divide(
    view: Graph,
    graph: Graph,
    chosen: Sequence[Chosen],
    context: Context,
    *,
    cost_in_c: Callable[[Graph], float] | None = None,
) -> Division:
    """Return the regions that backends claim, by the arguments of `partition`; none is compiled."""
    if any(one.backend.layout == "NHWC" for one in chosen):
        is_same = view is graph
        view = put_channels_last(view)
        graph = view if is_same else put_channels_last(graph)
    operations = operations_of(view)
    of_region = None if cost_in_c is None else lambda region: cost_in_c(body_of(graph, region))
    parts = _Partitioner(view, graph, operations, chosen, context, of_region)
    found = parts.regions(parts.claimed())
    regions = tuple((backend, replace(region, body=body_of(graph, region))) for backend, region in found)
    return Division(graph, regions, tuple(operations), tuple(map(tuple, parts.refusals)))


class _Partitioner:
    def __init__(
        self,
        graph: Graph,
        computed: Graph,
        operations: Sequence[Operation],
        chosen: Sequence[Chosen],
        context: Context,
        cost_in_c: Callable[[Region], float] | None,
    ) -> None:
        self.graph, self.operations, self.context, self.cost_in_c = graph, operations, context, cost_in_c
        self.computed = computed
        self.chosen = {one.backend.name: one for one in chosen}
        self.refusals: list[list[tuple[str, str]]] = [[] for _ in operations]
        self.readers: dict[str, set[int]] = {}
        for number, operation in enumerate(operations):
            for operand in operation.variables:
                self.readers.setdefault(operand.value, set()).add(number)

    def claimed(self) -> dict[int, str]:
        """Return the backend of each operation that one can compute by itself, the first in order of preference."""
        for one in self.chosen.values():
            one.tell_unknown(self.operations)
        found: dict[int, str] = {}
        for number, operation in enumerate(self.operations):
            for name, one in self.chosen.items():
                why = one.skips(operation) or self.is_apart(operation)
                why = why or refusal_of(one.backend, operation, self.context)
                why = why or claims_of(one.backend, self.region("", [number]))
                if not why:
                    found[number] = name
                    break
                self.refusals[number].append((name, why))
        return found

    def is_apart(self, operation: Operation) -> str:
        """Return why an operation can't be cut out of what is computed; "": it can."""
        tensors = (*operation.variables, *operation.outputs)
        other = next((one.tensor for one in tensors if not self.is_computed(one)), None)
        return "" if other is None else f"{other} is not there as it is computed with this rounding"

    def is_computed(self, operand: Operand) -> bool:
        """Whether a tensor of the view is what goes by its name in the graph that is computed.

        There, names within an operator of the file may stand for other numbers of 32 bits; what is stored is the same.
        """
        value, graph = operand.value, self.computed
        if graph is self.graph or graph.types.get(value) != operand.type:
            return graph is self.graph
        is_inside = operand.dtype.size >= 4 and value not in (*graph.inputs, *graph.outputs)
        return not is_inside or graph.sources.get(value) == self.graph.sources.get(value) is not None

    def regions(self, claimed: dict[int, str]) -> list[tuple[Backend, Region]]:
        """Return the regions that are worth it, by the limits of the user's, and their backends."""

        def may_join(members: Sequence[int]) -> bool:
            return not claims_of(self.chosen[claimed[members[0]]].backend, self.region("", members))

        grows = [name for name, one in self.chosen.items() if one.backend.whole_regions]
        found: list[tuple[Backend, Region]] = []
        counts = dict.fromkeys(self.chosen, 0)
        candidates = grown(self.operations, claimed, grows, may_join)
        largest_first = sorted(candidates, key=lambda members: -sum(self.operations[one].macs for one in members))
        kept = []
        for members in largest_first:
            name = claimed[members[0]]
            one, region = self.chosen[name], self.region("", members)
            why = one.limits(region, counts[name], self.graph) or self.loss(one.backend, region)
            if why:
                for number in members:
                    self.refusals[number].append((name, why))
                continue
            counts[name] += 1
            kept.append(members)
        taken = {node.name for node in self.graph.nodes}
        for number, members in enumerate(sorted(kept)):
            name = claimed[members[0]]
            stem = f"{name}_{number}"
            while stem in taken:
                stem += "_"
            found.append((self.chosen[name].backend, self.region(stem, members)))
        return found

    def loss(self, backend: Backend, region: Region) -> str:
        """Return why a region does not pay; "": it does."""
        cost = cost_of(backend, region)
        if cost is None or self.cost_in_c is None:
            return ""
        ours = self.cost_in_c(replace(region, name=f"{backend.name}_region"))
        return "" if cost < ours else f"it does not pay: about {cost:,.0f} instructions there, {ours:,.0f} in C"

    def region(self, name: str, members: Sequence[int]) -> Region:
        """Return operations as a region."""
        inside, operations = {*members}, [self.operations[number] for number in members]
        made = {one.value: one for operation in operations for one in operation.outputs}
        read: dict[str, Operand] = {}
        for operation in operations:
            for operand in operation.variables:
                if operand.value not in made:
                    read.setdefault(operand.value, operand)
        outputs = [
            one for value, one in made.items() if value in self.graph.outputs or self.readers.get(value, set()) - inside
        ]
        return Region(name, self.graph.name, tuple(operations), tuple(read.values()), tuple(outputs), self.context)
