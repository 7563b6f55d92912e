"""Schedules that the user selects by name, in place of the cost model's choice."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from mtool.base import checked, spelling
from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import CODE, LEVEL, PACKED, WEIGHTS

if TYPE_CHECKING:
    from mtool.compiler.ir import Graph, Node
    from mtool.compiler.kernels.schedule import KernelOp, Knob, Schedule
    from mtool.compiler.kernels.target import Target

PAGE = "docs/schedules.md lists every schedule and its knobs"


@frozen
class Choice:
    """A schedule for one node, by its name, with settings of its knobs.

    A knob that is not named keeps its default. A value may be given as text ("16", "auto"). Every
    schedule has the knobs `opt`, the compiler's optimisation level, and `weights`, the memory of its constants.
    """

    schedule: str
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one has the wrong type or is not allowed.
        """
        checked.fields(self, {})


Choices = Mapping[str, Choice]
"""Choices by node name, as in `mtool.json` and in the generated functions: pw_2."""


def chosen(choice: Choice, op: "KernelOp", node: "Node", graph: "Graph", target: "Target") -> "Schedule":
    """Return the chosen schedule, with its knobs set.

    Raises:
        UsageError: the schedule, the knob or its value is unknown, or the schedule can't compute the node on the
            target.
    """
    title = f"{node.name} ({op.label(node, graph)})"
    schedule = next((s for s in op.schedules if s.name == choice.schedule), None)
    if schedule is None:
        names = [s.name for s in op.schedules]
        raise UsageError(
            f"{title} has no schedule {choice.schedule}",
            details=[
                f"those that can compute it on {target.cpu}, with their knobs:",
                *(f"  {s.name}{_knobs_of(s)}" for s in op.schedules if s.supports(node, graph, target)),
            ],
            hint=_similar(choice.schedule, names),
        )
    of_build = {name: value for name, value in choice.knobs.items() if name in (LEVEL, WEIGHTS, CODE)}
    settings = {name: value for name, value in choice.knobs.items() if name not in of_build}
    turned = _turned(schedule, settings, node.name)
    if not turned.supports(node, graph, target):
        raise UsageError(
            f"schedule {choice.schedule} can't compute {title} on {target.cpu}",
            details=[
                f"it supports: {(getattr(schedule, 'fits', schedule.supports).__doc__ or '').strip().splitlines()[0]}",
                f"schedules that can compute it: {', '.join(_supporting(op, node, graph, target))}",
            ],
            hint=PAGE,
        )
    if not of_build:
        return turned
    from mtool.compiler.plan.function_knobs import KNOBS, RAM, built

    values = {name: _read(KNOBS[name], name, value, turned, node.name) for name, value in of_build.items()}
    if values.get(WEIGHTS) == RAM and target.flash_is_apart:
        raise UsageError(f"the constants of {title} can't be placed in RAM: on {target.cpu} they are read from flash")
    if values.get(WEIGHTS) == PACKED:
        from mtool.compiler.plan.unpacked import MOST_BITS, Unpacking

        unpacking: Any = None if target.flash_is_apart else Unpacking.of(turned, node, graph, target)
        if unpacking is None:
            raise UsageError(
                f"the constants of {title} can't be packed",
                details=[
                    f"expected integers of at most {MOST_BITS} bits, in words, with a core that reads flash as memory"
                ],
            )
        turned, values[WEIGHTS] = unpacking, ""
    return built(turned, values)


def check_names(choices: Choices, names: Iterable[str]) -> None:
    """Check that all nodes with a requested schedule exist.

    Raises:
        UsageError: one is not.
    """
    existing = dict.fromkeys(names)
    unknown = [name for name in choices if name not in existing]
    if unknown:
        raise UsageError(
            f"--schedule: unknown node {', '.join(unknown)}",
            details=[f"nodes: {', '.join(existing)}"],
            hint=_similar(unknown[0], existing),
        )


def _turned(schedule: "Schedule", settings: Mapping[str, Any], node: str) -> "Schedule":
    knobs, values = schedule.knobs(), {}
    for name, value in settings.items():
        if name not in knobs:
            from mtool.compiler.plan.function_knobs import KNOBS

            raise UsageError(
                f"{node}: unknown knob {name} of schedule {schedule.name}",
                details=["its knobs:", *(f"  {other}: {_values(knob)}" for other, knob in {**knobs, **KNOBS}.items())],
                hint=PAGE,
            )
        values[name] = _read(knobs[name], name, value, schedule, node)
    return replace(schedule, **values) if values else schedule  # type: ignore[type-var]


def _read(knob: "Knob", name: str, value: Any, schedule: "Schedule", node: str) -> Any:
    """Parse the value of a knob.

    Raises:
        UsageError: the value is not allowed.
    """
    read = knob.read(value)
    if read is None:
        raise UsageError(
            f"{node}: knob {name} of {schedule.name} can't be {value}",
            details=[f"allowed values: {_values(knob)}", f"{name}: {knob.meaning}"],
            hint=PAGE,
        )
    return read


def _values(knob: "Knob") -> str:
    return ", ".join(map(knob.written, knob.values))


def _knobs_of(schedule: "Schedule") -> str:
    return ": " * bool(schedule.knobs()) + ", ".join(schedule.knobs())


def _supporting(op: "KernelOp", node: "Node", graph: "Graph", target: "Target") -> list[str]:
    return [schedule.name for schedule in op.schedules if schedule.supports(node, graph, target)]


def _similar(name: str, names: Iterable[str]) -> str:
    return spelling.did_you_mean(name, names, otherwise=PAGE)
