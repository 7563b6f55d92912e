"""Candidates: every schedule of a task with every setting of its knobs, those that give the same C once."""

import hashlib
import itertools
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Schedule, schedule_text
from mtool.compiler.kernels.target import Target
from mtool.compiler.tuned.tasks import Task
from mtool.tuning.learned import CostModel


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a task.

    Attributes:
        schedule: with its knobs set.
        text: as `--schedule` takes it.
        estimate: the instructions that the cost model expects.
        constants: the bytes of each of its weights and tables, by a hash of it: equal ones are one in a firmware.
        code_bytes: the length of its C, from which its code's size is guessed.
    """

    schedule: Schedule
    text: str
    estimate: float
    constants: Mapping[bytes, int]
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Space:
    """The candidates of a task: the cost model's choice first, the others by their estimates; and the reference.

    `reference` is the portable schedule that all others have to agree with; it is one of the candidates. `prior` has
    what candidates are expected to take, by their texts, where something is known beside the estimate.
    """

    task: Task
    candidates: tuple[Candidate, ...]
    reference: Candidate
    prior: Mapping[str, float] = field(default_factory=dict)

    def expected(self, candidate: Candidate) -> float:
        """Return what a candidate is expected to take: by the prior, or by the estimate in instructions."""
        return self.prior.get(candidate.text, candidate.estimate)

    @property
    def default(self) -> Candidate:
        """The cost model's choice."""
        return self.candidates[0]


def space_of(task: Task, target: Target) -> Space:
    """Return all candidates of a task on a target."""
    node, graph = task.step.node, task.graph
    found: dict[Hashable, Candidate] = {}
    for schedule in (task.step.schedule, *_settings(task, target)):
        kernel = schedule.emit(node, graph, target)
        found.setdefault(_likeness(kernel, schedule, node, graph), _candidate(schedule, kernel, node, graph, target))
    default, *others = found.values()
    others.sort(key=lambda one: (one.estimate, one.text))
    portable = next(one for one in task.step.op.schedules if one.supports(node, graph, target))
    kernel = portable.emit(node, graph, target)
    reference = found[_likeness(kernel, portable, node, graph)]
    return Space(task, (default, *others), reference)


def with_prior(space: Space, model: CostModel) -> Space:
    """Return a space whose candidates are expected to take what a learned model says."""
    record = space.task.record
    return replace(
        space, prior={one.text: model.cost(record, one.text, max(one.estimate, 1.0)) for one in space.candidates}
    )


def _settings(task: Task, target: Target) -> Iterator[Schedule]:
    """Yield every schedule that can compute a task with every setting of its knobs."""
    node, graph = task.step.node, task.graph
    for schedule in task.step.op.schedules:
        if not schedule.supports(node, graph, target):
            continue
        knobs = schedule.knobs()
        for values in itertools.product(*(knob.values for knob in knobs.values())):
            turned = replace(schedule, **dict(zip(knobs, values, strict=True))) if knobs else schedule  # type: ignore[type-var]
            if turned.supports(node, graph, target):
                yield turned


def _candidate(schedule: Schedule, kernel: Kernel, node: Node, graph: Graph, target: Target) -> Candidate:
    return Candidate(
        schedule, schedule_text(schedule), schedule.cost(node, graph, target), _constants(kernel), len(kernel.body)
    )


def _constants(kernel: Kernel) -> dict[bytes, int]:
    return {
        hashlib.sha256(f"{data.dtype.str}{data.shape}".encode() + data.tobytes()).digest(): data.nbytes
        for data in kernel.constants.values()
    }


def _likeness(kernel: Kernel, schedule: Schedule, node: Node, graph: Graph) -> Hashable:
    """Return a key that settings share if they are the same program: C, constants, scratch."""
    return kernel.arguments, kernel.body, tuple(sorted(_constants(kernel))), schedule.scratch_bytes(node, graph)
