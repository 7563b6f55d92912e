"""Schedules that a user asks for by name, in place of the cost model's choice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mtool.base import checked, spelling
from mtool.base.errors import UsageError
from mtool.base.option_values import LEVEL, WEIGHTS

if TYPE_CHECKING:
    from mtool.compiler.ir import Graph, Node
    from mtool.compiler.kernels.schedule import KernelOp, Knob, Schedule
    from mtool.compiler.kernels.target import Target

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
                f"it takes: {(getattr(schedule, 'fits', schedule.supports).__doc__ or '').strip().splitlines()[0]}",
                f"schedules that can: {', '.join(_supporting(op, node, graph, target))}",
            ],
            hint=PAGE,
        )
    if not of_build:
        return turned
    from mtool.compiler.plan.function_knobs import KNOBS, RAM, built

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
