"""Partitioning of a network: backends get their regions, and what they compile stands in the graph as a call."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mtool.compiler.backends.backend_guard import compiled_by
from mtool.compiler.backends.candidates import Candidate, Partitioner, in_order
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.extraction import body_of, replace_regions
from mtool.compiler.backends.interface import Backend, BackendError, Context, OperationsRefused, Product, Region
from mtool.compiler.backends.operation import Operation
from mtool.compiler.backends.scopes import inner_scopes, put_together, scope_of
from mtool.compiler.ir import Graph

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
