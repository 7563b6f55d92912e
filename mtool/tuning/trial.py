"""A trial: a model whose operators are the candidates of some tasks, and operators that check them.

Besides its candidates, every task has the reference, an operator that spoils the output before a candidate runs, and
one that counts the elements that differ from the reference's. All tasks share the arena: they run one after another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtool.compiler.ir import DType, Expr, Graph, Node, TensorType
from mtool.compiler.ir.expr import Reduction, axis, call, const, identity, load
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, Step
from mtool.compiler.plan.function_knobs import BoundSchedule
from mtool.compiler.plan.memory import Storage, aligned
from mtool.compiler.plan.step import choose_schedule
from mtool.tuning.candidates import Candidate, Space
from mtool.tuning.measuring import IDLE, Operators

# A schedule as in the model, so that a trial measures the C that the model would have.


@dataclass(eq=False)
class InModel(BoundSchedule):
    """A schedule that behaves as for its node in the model's own graph, wherever it is used.

    A schedule that chooses its tile size weighs a byte of code against the whole model's time; in a trial, which
    computes hundreds of times as much, it would choose another.
    """

    inner: Schedule
    node: Node
    graph: Graph

    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the scratch size in the model."""
        return self.inner.scratch_bytes(self.node, self.graph)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None: in a trial, nothing is computed in place."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Return the cost in the model."""
        return self.inner.cost(self.node, self.graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the kernel in the model."""
        return self.inner.emit(self.node, self.graph, target)


NAME = "trial"
_ALIGNMENT = 16  # the arena's
_FLOAT_TOLERANCE = 1e-4  # of the largest magnitude in the reference's output
_HALF_TOLERANCE = 1e-2


@dataclass(frozen=True, slots=True)
class Share:
    """The candidates of a task that one trial measures."""

    space: Space
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Names(Operators):
    """The operators of one task in a trial, and their candidates."""

    share: Share


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan of operators to measure, and their names by task."""

    plan: Plan
    tasks: tuple[Names, ...]


def arena_bytes(space: Space, candidate: Candidate) -> int:
    """Return the arena bytes that a candidate needs in a trial, where nothing is computed in place."""
    node, graph = space.task.step.node, space.task.graph
    reads = sum(aligned(graph.types[value].bytes, _ALIGNMENT) for value in _reads(node, graph))
    writes = sum(aligned(graph.types[value].bytes, _ALIGNMENT) for value in filter(None, node.outputs))
    return reads + 2 * writes + aligned(candidate.schedule.scratch_bytes(node, graph), _ALIGNMENT) + 4 * _ALIGNMENT


def trial_of(shares: Sequence[Share], target: Target) -> Trial:
    """Return the trial of some candidates."""
    builder = _Builder(target)
    builder.idle()
    names = tuple(builder.task(number, share) for number, share in enumerate(shares))
    return Trial(builder.plan(), names)


def _reads(node: Node, graph: Graph) -> list[str]:
    """Return the values that a node reads from the arena, each once."""
    return [value for value in dict.fromkeys(node.inputs) if value and value not in graph.constants]


class _Builder:
    """Builds a trial's operators in order, and lays out their inputs and outputs in the arena."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.graph = Graph(NAME, (), (), (), {}, {})
        self.steps: list[Step] = []
        self.scratch: list[int | None] = []
        self.offsets: dict[str, int] = {}
        self.storages: list[tuple[Storage, int]] = []
        self.end = 0
        self.arena_bytes = _ALIGNMENT
        self.inputs: list[str] = []

    def idle(self) -> None:
        """Add the operator that only stores a number."""
        self.end = 0
        self._value("idle_out", TensorType(DType.INT32, (1,)))
        self._loop(IDLE, (), "idle_out", const(0, DType.INT32))

    def task(self, number: int, share: Share) -> Names:
        """Add the operators of one task, whose layout begins at the arena's start."""
        self.end = 0
        node, graph = share.space.task.step.node, share.space.task.graph
        reads, writes = _reads(node, graph), [value for value in node.outputs if value]
        names = {value: f"t{number}_x{place}" for place, value in enumerate(reads)}
        constants = dict.fromkeys(value for value in node.inputs if value in graph.constants)
        names |= {value: f"t{number}_k{place}" for place, value in enumerate(constants)}
        self.graph = replace(
            self.graph,
            constants={**self.graph.constants, **{names[value]: graph.constants[value] for value in constants}},
        )
        self._types({names[value]: graph.types[value] for value in (*reads, *constants)})
        first = len(self.inputs)
        for value in reads:
            self._place(names[value], graph.types[value])
            self.inputs.append(names[value])
        kinds = [graph.types[value] for value in writes]
        right = [self._value(f"t{number}_ref{place}_out", kind) for place, kind in enumerate(kinds)]
        places = [self._reserve(kind) for kind in kinds]
        counts = [self._reserve(TensorType(DType.INT32, (1,))) for _ in kinds]
        scales = [self._reserve(TensorType(kind.dtype, (1,))) for kind in kinds]

        def add(name: str, candidate: Candidate, outputs: Sequence[str]) -> str:
            again = dict(zip(writes, outputs, strict=True))
            moved = replace(
                node,
                name=name,
                inputs=tuple(names.get(value, value) for value in node.inputs),
                outputs=tuple(again.get(value, value) for value in node.outputs),
                whole="",
                parts=1,
                origins=(),
            )
            schedule = InModel(candidate.schedule, node, graph)
            self._add(Step(moved, share.space.task.step.op, schedule, schedule.scratch_bytes(node, graph)))
            return name

        reference = add(f"t{number}_ref", share.space.reference, right)
        candidates = []
        results: list[str] = []
        for place, candidate in enumerate(share.candidates):
            name = f"t{number}_c{place}"
            results = [
                self._value(f"{name}_out{index}", kind, at)
                for index, (kind, at) in enumerate(zip(kinds, places, strict=True))
            ]
            candidates.append(add(name, candidate, results))
        spoil, compare, differences = [], [], []
        for index, kind in enumerate(kinds):
            stem = f"t{number}_{index}"
            spoil.append(self._spoil(f"{stem}_spoil", right[index], kind, places[index]))
            added, count = self._compare(stem, results[index], right[index], kind, counts[index], scales[index])
            compare += added
            differences.append(count)
        return Names(
            tuple(range(first, len(self.inputs))), tuple(graph.types[value] for value in reads), reference,
            tuple(candidates), tuple(spoil), tuple(compare), tuple(differences), sum(kind.count for kind in kinds),
            share,
        )  # fmt: skip

    def plan(self) -> Plan:
        """Return the plan of all added operators."""
        graph = replace(
            self.graph,
            inputs=tuple(self.inputs),
            outputs=("idle_out",),
            output_names=("idle",),
            nodes=tuple(step.node for step in self.steps),
        )
        return Plan(
            graph, self.target, "arena", tuple(self.steps), self.offsets, tuple(self.scratch), tuple(self.storages),
            self.arena_bytes, self.arena_bytes,
        )  # fmt: skip

    def _spoil(self, name: str, right: str, kind: TensorType, place: int) -> str:
        """Add the operator that writes a wrong number to each element of an output."""
        value = self._value(f"{name}_out", kind, place)
        element = load(0, kind.dtype, identity(len(kind.shape)))
        zero, one = const(0, kind.dtype), const(1, kind.dtype)
        is_zero = call("equal", element, zero, dtype=DType.BOOL)
        return self._loop(name, (right,), value, call("where", is_zero, one, zero, dtype=kind.dtype))

    def _compare(
        self, stem: str, actual: str, right: str, kind: TensorType, count_at: int, scale_at: int
    ) -> tuple[list[str], str]:
        """Add the operators that count the differing elements of an output; floats may differ by the tolerance."""
        rank, dtype = len(kind.shape), kind.dtype
        index = tuple(axis(1 + number) for number in range(rank))
        sizes = tuple((1 + number, size) for number, size in enumerate(kind.shape))
        added: list[str] = []
        a, b = load(0, dtype, index), load(1, dtype, index)
        operands: tuple[str, ...] = (actual, right)
        if dtype.is_float:
            scale = self._value(f"{stem}_scale_out", TensorType(dtype, (1,)), scale_at)
            largest = Expr("reduce", dtype, (call("abs", load(0, dtype, index)),), Reduction("maximum", sizes))
            added.append(self._loop(f"{stem}_scale", (right,), scale, largest))
            operands = (actual, right, scale)
            share = const(_HALF_TOLERANCE if dtype.size < 4 else _FLOAT_TOLERANCE, dtype)
            limit = call("mul", load(2, dtype, (const(0, DType.INT32),)), share)
            is_same = call("less_equal", call("abs", call("sub", a, b)), limit, dtype=DType.BOOL)
        else:
            is_same = call("equal", a, b, dtype=DType.BOOL)
        differs = call("where", is_same, const(0, DType.INT32), const(1, DType.INT32), dtype=DType.INT32)
        count = self._value(f"{stem}_count", TensorType(DType.INT32, (1,)), count_at)
        total = Expr("reduce", DType.INT32, (differs,), Reduction("add", sizes))
        added.append(self._loop(f"{stem}_compare", operands, count, total))
        return added, count

    def _loop(self, name: str, reads: tuple[str, ...], writes: str, expr: Expr) -> str:
        node = Node("loop", name, reads, (writes,), Loop(expr=expr))
        registry.SPECIFICATIONS["loop"].check(node, self.graph)
        self._add(choose_schedule(node, self.graph, self.target))
        return name

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        if step.scratch_bytes:
            at = aligned(self.end, _ALIGNMENT)
            self.storages.append((Storage.whole(step.scratch_bytes, len(self.steps) - 1, len(self.steps) - 1), at))
            self.arena_bytes = max(self.arena_bytes, aligned(at + step.scratch_bytes, _ALIGNMENT))
        self.scratch.append(aligned(self.end, _ALIGNMENT) if step.scratch_bytes else None)

    def _reserve(self, kind: TensorType) -> int:
        """Return the offset of a new region of the arena."""
        at = aligned(self.end, _ALIGNMENT)
        self.end = at + max(kind.bytes, 1)
        self.arena_bytes = max(self.arena_bytes, aligned(self.end, _ALIGNMENT))
        return at

    def _value(self, name: str, kind: TensorType, place: int | None = None) -> str:
        """Add a value, at `place` or in a new region of the arena."""
        self._types({name: kind})
        self._place(name, kind, place)
        return name

    def _place(self, name: str, kind: TensorType, place: int | None = None) -> None:
        at = self._reserve(kind) if place is None else place
        self.offsets[name] = at
        self.storages.append((Storage.whole(kind.bytes, -1, -1, [name]), at))

    def _types(self, kinds: dict[str, TensorType]) -> None:
        self.graph = replace(self.graph, types={**self.graph.types, **kinds})
