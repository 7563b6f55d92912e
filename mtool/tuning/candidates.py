"""Candidates: every schedule of a task with every setting of its knobs; settings with the same C count once."""

import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Schedule, schedule_text
from mtool.compiler.kernels.target import Target
from mtool.compiler.tuned.record import TaskRecord
from mtool.compiler.tuned.tasks import Task

# A learned cost model: a candidate's expected cost on a core, from measurements of others there.
#
# scripts/learn_costs.py trains it: ridge regression of the logarithm of cycles (or nanoseconds) per estimated
# instruction. The features depend only on a record: the schedule, its knobs, and how much is multiplied, read, written
# and kept in flash per estimated instruction. It orders a search; measurements decide which candidate is fastest.


CORES = Path(__file__).parent / "cores"
_TYPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")
_FLAT = ("conv2d", "dense")  # an output sums over the trailing dimensions of the second operand


@dataclass(frozen=True, slots=True)
class CostModel:
    """Weights of features, and the range of ratios seen for each schedule; ratios are natural logarithms.

    Attributes:
        mean: the mean of all ratios.
        weights: by feature name; a missing feature counts as 0.
        ranges: the smallest and the largest ratio of each schedule, without outliers.
    """

    mean: float
    weights: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]

    def cost(self, task: TaskRecord, candidate: str, estimate: float) -> float:
        """Return a candidate's expected cost, in the unit of the measurements."""
        values = features(task, candidate, estimate)
        value = self.mean + sum(self.weights.get(name, 0.0) * amount for name, amount in values.items())
        least, most = self.ranges.get(schedule_of(task, candidate), (value, value))
        return estimate * math.exp(min(max(value, least), most))

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the model from plain values."""
        return cls(data["mean"], data["weights"], {name: (low, high) for name, (low, high) in data["ranges"].items()})


@functools.cache
def shipped(cpu: str) -> CostModel | None:
    """Return the cost model shipped for a core; None: there is none."""
    path = CORES / f"{cpu}.json"
    return CostModel.of_json(json.loads(path.read_text())) if path.is_file() else None


def features(task: TaskRecord, candidate: str, estimate: float) -> dict[str, float]:
    """Return the features of a candidate by name."""
    instructions = max(estimate, 1.0)
    constants = [operand for operand in task.reads if operand.startswith("constant ")]
    read = sum(_bytes(operand) for operand in task.reads if operand not in constants)
    outputs = _shape(task.writes[0]) if task.writes else ()
    depth = math.prod(_shape(constants[0])[1:]) if constants and task.op in _FLAT else 1
    macs = math.prod(outputs) * depth / instructions
    name, _, settings = candidate.partition(":")
    return {
        "one": 1.0,
        "macs": macs,
        "read": read / instructions,
        "written": sum(map(_bytes, task.writes)) / instructions,
        "constants": sum(map(_bytes, constants)) / instructions,
        schedule_of(task, candidate): 1.0,
        f"{name} macs": macs,
        **{f"{name}:{setting}": 1.0 for setting in settings.split(",") if setting},
    }


def schedule_of(task: TaskRecord, candidate: str) -> str:
    """Return the feature name of a candidate's schedule: its operator and the schedule."""
    return f"{task.op} {candidate.partition(':')[0]}"


def _shape(text: str) -> tuple[int, ...]:
    match = _TYPE.search(text)
    return tuple(int(size) for size in match[3].split(",") if size) if match else ()


def _bytes(text: str) -> float:
    match = _TYPE.search(text)
    return math.prod(_shape(text)) * (int(match[2] or 8) / 8 if match else 0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a task.

    Attributes:
        schedule: the schedule with its knobs set.
        text: its form for `--schedule`.
        estimate: the instructions that the cost model expects.
        constants: the bytes of each of its weights and tables, by hash: a firmware stores equal ones once.
        code_bytes: the length of its C, from which its code size is estimated.
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
    the candidates' expected costs by text, where more is known than the estimate.
    """

    task: Task
    candidates: tuple[Candidate, ...]
    reference: Candidate
    prior: Mapping[str, float] = field(default_factory=dict)

    def expected(self, candidate: Candidate) -> float:
        """Return a candidate's expected cost: from the prior, else the estimate in instructions."""
        return self.prior.get(candidate.text, candidate.estimate)

    @property
    def default(self) -> Candidate:
        """The cost model's choice."""
        return self.candidates[0]


def space_of(task: Task, target: Target) -> Space:
    """Return all candidates of a task on a target."""
    node, graph = task.step.node, task.graph
    candidates: dict[Hashable, Candidate] = {}
    for schedule in (task.step.schedule, *_settings(task, target)):
        kernel = schedule.emit(node, graph, target)
        cost = schedule.cost(node, graph, target)
        candidate = Candidate(schedule, schedule_text(schedule), cost, _constants(kernel), len(kernel.body))
        candidates.setdefault(_likeness(kernel, schedule, node, graph), candidate)
    default, *others = candidates.values()
    others.sort(key=lambda candidate: (candidate.estimate, candidate.text))
    portable = next(schedule for schedule in task.step.op.schedules if schedule.supports(node, graph, target))
    kernel = portable.emit(node, graph, target)
    reference = candidates[_likeness(kernel, portable, node, graph)]
    return Space(task, (default, *others), reference)


def with_prior(space: Space, model: CostModel) -> Space:
    """Return a space whose candidates have the expected costs of a learned model."""
    record = space.task.record
    return replace(
        space, prior={item.text: model.cost(record, item.text, max(item.estimate, 1.0)) for item in space.candidates}
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


def _constants(kernel: Kernel) -> dict[bytes, int]:
    return {
        hashlib.sha256(f"{data.dtype.str}{data.shape}".encode() + data.tobytes()).digest(): data.nbytes
        for data in kernel.constants.values()
    }


def _likeness(kernel: Kernel, schedule: Schedule, node: Node, graph: Graph) -> Hashable:
    """Return a key that is equal for settings with the same program: C, constants, scratch."""
    return kernel.arguments, kernel.body, tuple(sorted(_constants(kernel))), schedule.scratch_bytes(node, graph)
