"""What could be regions: operations of one graph that one backend claims, as many together as it takes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from mtool.compiler.backends.backend_guard import claims_of, cost_of, refusal_of
from mtool.compiler.backends.chosen import Chosen
from mtool.compiler.backends.extraction import body_of
from mtool.compiler.backends.interface import Backend, Context, Region
from mtool.compiler.backends.operation import Operand, Operation
from mtool.compiler.backends.regions import grown
from mtool.compiler.backends.scopes import Scope
from mtool.compiler.ir import Graph


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
