"""Schedules that a user asks for by name, in place of the cost model's choice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from mtool.base import checked, spelling
from mtool.base.errors import UsageError
from mtool.base.option_values import LEVEL, WEIGHTS, Level
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, Knob, Schedule
from mtool.compiler.kernels.target import Target

if TYPE_CHECKING:
    from mtool.compiler.ir import Graph, Node
    from mtool.compiler.kernels.schedule import KernelOp, Knob, Schedule
    from mtool.compiler.kernels.target import Target
from collections.abc import Collection

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import KernelOp, Schedule
from mtool.compiler.kernels.target import Target

# Schedules that were made for one node, and stand for another schedule there.


class BoundSchedule(BaseSchedule):
    """A schedule for the node that it was made for; what it does not say itself is what `inner` says."""

    inner: Schedule

    def __getattr__(self, name: str) -> Any:
        """Return a knob of the schedule."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """The node that it was made for."""
        return True

    def knobs(self) -> Mapping[str, Knob]:
        """Those of the schedule."""
        return self.inner.knobs()


# Knobs of every schedule, which change how its function is built: the compiler's level, the memory of constants.


LEVELS: tuple[Level, ...] = get_args(Level)
RAM = "ram"
KNOBS = {
    LEVEL: Knob(
        ("", *LEVELS), "the compiler's optimisation level of the operator; auto: that of the model's other files"
    ),
    WEIGHTS: Knob(("", RAM), "the memory of its constants; auto: that of the model's other constants"),
}


@dataclass(eq=False)
class Built(BoundSchedule):
    """A schedule whose C is compiled at a level of its own, or whose constants lie in RAM.

    Attributes:
        inner: the schedule.
        opt: the level; "": that of the model's other files.
        weights: "ram", or "": where the model's other constants lie.
    """

    inner: Schedule
    opt: Level | str = ""
    weights: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What the schedule supports."""
        return self.inner.supports(node, graph, target)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """That of the schedule."""
        return self.inner.scratch_bytes(node, graph)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """What the schedule may overwrite."""
        return self.inner.in_place(node, graph)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """What the schedule may overwrite."""
        return self.inner.overwrites(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """That of the schedule: what these knobs give is measured."""
        return self.inner.cost(node, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C of the schedule, with how it is built."""
        return replace(self.inner.emit(node, graph, target), level=self.opt, in_ram=self.weights == RAM)

    def knobs(self) -> dict[str, Knob]:
        """Those of the schedule, and these."""
        return {**self.inner.knobs(), **KNOBS}


def built(schedule: Schedule, settings: Mapping[str, Any]) -> Schedule:
    """Return a schedule with these knobs set to values that they have; as it is, if all are left alone."""
    turned = {name: value for name, value in settings.items() if value}
    if isinstance(schedule, Built):
        return replace(schedule, **turned)
    return Built(schedule, **turned) if turned else schedule


PAGE = "docs/schedules.md has every schedule and its knobs"


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule for one node, by its name, with settings of its knobs.

    A knob that is not named keeps its default. A value may be written as people write it ("16", "auto"). Every
    schedule has the knobs `opt`, the compiler's optimisation level, and `weights`, the memory of its constants.
    """

    schedule: str
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        checked.fields(self, {})


Choices = Mapping[str, Choice]
"""Choices by the nodes' names, which are those of `mtool.json` and of the generated functions: pw_2."""


def chosen(choice: Choice, op: "KernelOp", node: "Node", graph: "Graph", target: "Target") -> "Schedule":
    """Return the schedule of a choice, with its knobs set.

    Raises:
        UsageError: the operator has no such schedule, the schedule no such knob, the knob no such value, or the
            schedule can't compute the node on the target.
    """
    what = f"{node.name} ({op.label(node, graph)})"
    schedule = next((one for one in op.schedules if one.name == choice.schedule), None)
    if schedule is None:
        names = [one.name for one in op.schedules]
        raise UsageError(
            f"schedule {choice.schedule} is not one of {what}",
            details=[f"its schedules on this core: {', '.join(_supporting(op, node, graph, target))}"],
            hint=_similar(choice.schedule, names),
        )
    of_build = {name: value for name, value in choice.knobs.items() if name in (LEVEL, WEIGHTS)}
    settings = {name: value for name, value in choice.knobs.items() if name not in of_build}
    turned = _turned(schedule, settings, node.name)
    if not turned.supports(node, graph, target):
        raise UsageError(
            f"schedule {choice.schedule} can't compute {what} on {target.cpu}",
            details=[
                f"it takes: {(schedule.supports.__doc__ or '').strip().splitlines()[0]}",
                f"schedules that can: {', '.join(_supporting(op, node, graph, target))}",
            ],
            hint=PAGE,
        )
    if not of_build:
        return turned
    pass  # joined  # with the interface of schedules

    values = {name: _read(KNOBS[name], name, value, turned, node.name) for name, value in of_build.items()}
    if values.get(WEIGHTS) == RAM and target.flash_is_apart:
        raise UsageError(f"the constants of {what} can't lie in RAM: a {target.cpu} reads them from flash")
    return built(turned, values)


def check_schedules(choices: Choices) -> None:
    """Check that each schedule that is asked for is one of some operator, whatever the nodes.

    Raises:
        UsageError: one is not.
    """
    from mtool.compiler.kernels import registry  # whose schedules are many modules

    names = dict.fromkeys(schedule.name for op in registry.KERNELS.values() for schedule in op.schedules)
    for node, choice in choices.items():
        if choice.schedule not in names:
            raise UsageError(
                f"a schedule {choice.schedule} is asked for {node}: there is none of that name",
                details=[f"schedules: {', '.join(sorted(names))}"],
                hint=_similar(choice.schedule, names),
            )


def check_names(choices: Choices, names: Iterable[str]) -> None:
    """Check that all nodes that a schedule is asked for are there.

    Raises:
        UsageError: one is not.
    """
    there = dict.fromkeys(names)
    unknown = [name for name in choices if name not in there]
    if unknown:
        raise UsageError(
            f"a schedule is asked for {', '.join(unknown)}: there is no such node",
            details=[f"nodes: {', '.join(there)}"],
            hint=_similar(unknown[0], there),
        )


def _turned(schedule: "Schedule", settings: Mapping[str, Any], node: str) -> "Schedule":
    knobs, values = schedule.knobs(), {}
    for name, value in settings.items():
        if name not in knobs:
            raise UsageError(
                f"{node}: schedule {schedule.name} has no knob {name}",
                details=[f"its knobs: {', '.join([*knobs, LEVEL, WEIGHTS])}"],
                hint=PAGE,
            )
        values[name] = _read(knobs[name], name, value, schedule, node)
    return replace(schedule, **values) if values else schedule  # type: ignore[type-var]


def _read(knob: "Knob", name: str, value: Any, schedule: "Schedule", node: str) -> Any:
    """Return the value of a knob that is meant.

    Raises:
        UsageError: there is no such value.
    """
    read = knob.read(value)
    if read is None:
        raise UsageError(
            f"{node}: knob {name} of {schedule.name} can't be {value}",
            details=[f"its values: {', '.join(map(knob.written, knob.values))}", f"{name}: {knob.meaning}"],
            hint=PAGE,
        )
    return read


def _supporting(op: "KernelOp", node: "Node", graph: "Graph", target: "Target") -> list[str]:
    return [one.name for one in op.schedules if one.supports(node, graph, target)]


def _similar(name: str, names: Iterable[str]) -> str:
    return spelling.did_you_mean(name, names, otherwise=PAGE)


# One step of a plan: an operator, and the schedule that computes it.


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: its node, its kind, the schedule that computes it, the bytes of scratch that needs, aligned so."""

    node: Node
    op: KernelOp
    schedule: Schedule
    scratch_bytes: int
    scratch_alignment: int = 4


def choose_schedule(
    node: Node, graph: Graph, target: Target, choice: Choice | None = None, grown: Collection[str] | None = None
) -> Step:
    """Return the schedule that is asked for, or the cheapest that supports the node.

    Args:
        node: the node.
        graph: the graph that it stands in.
        target: the core.
        choice: what is asked for.
        grown: the operators that may have constants larger than their weights (plan.pools.for_time); None: all.

    Raises:
        UsageError: the one that is asked for is not there, or can't compute the node.
    """
    op = registry.KERNELS[node.op]
    if choice is not None:
        schedule = chosen(choice, op, node, graph, target)
    else:
        may_grow = grown is None or node.title in grown
        supporting = (schedule for schedule in op.schedules if schedule.supports(node, graph, target))
        fitting = [schedule for schedule in supporting if may_grow or not schedule.grown_bytes(node, graph)]
        cheapest = min(fitting, key=lambda schedule: schedule.cost(node, graph, target))
        schedule = cheapest.for_core(node, graph, target)
    alignment = node.attrs.alignment if isinstance(node.attrs, External) else 4
    return Step(node, op, schedule, schedule.scratch_bytes(node, graph), alignment)
