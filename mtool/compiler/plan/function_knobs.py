"""Knobs that every schedule has, for how its function is built: optimization level, memory of constants and code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from mtool.base.option_values import CODE, LEVEL, PACKED, WEIGHTS, Level
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Knob, Schedule
from mtool.compiler.kernels.target import Target


class Around:
    """A wrapper around a schedule; attributes that it lacks are the schedule's."""

    inner: Schedule

    def __getattr__(self, name: str) -> Any:
        """Return the schedule's attribute."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class BoundSchedule(Around, Schedule):
    """A schedule that is bound to one node, with the knobs of `inner`."""

    def knobs(self) -> Mapping[str, Knob]:
        """Return the schedule's knobs."""
        return self.inner.knobs()


LEVELS: tuple[Level, ...] = get_args(Level)
RAM = "ram"
KNOBS = {
    LEVEL: Knob(
        ("", *LEVELS), "the compiler's optimisation level of the operator; auto: that of the model's other files"
    ),
    WEIGHTS: Knob(
        ("", RAM, PACKED),
        "the memory of its constants, or packed if they have few bits; auto: that of the model's other constants",
    ),
    CODE: Knob(("", RAM), "the memory of its code; auto: that of the model's other code"),
}


@dataclass(eq=False)
class Built(Around):
    """A schedule with its own optimization level, or with its constants or code in RAM; all else is `inner`'s.

    Attributes:
        inner: the schedule.
        opt: the optimization level; "": that of the model's other files.
        weights: "ram", "packed" if `inner` unpacks them, or "": where the model's other constants lie.
        code: the same for its code.
    """

    inner: Schedule
    opt: Level | str = ""
    weights: str = ""
    code: str = ""

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the schedule's C with the build settings."""
        kernel = self.inner.emit(node, graph, target)
        return replace(kernel, level=self.opt, in_ram=self.weights == RAM, is_hot=self.code == RAM)

    def knobs(self) -> dict[str, Knob]:
        """Return the schedule's knobs and these."""
        return {**self.inner.knobs(), **KNOBS}


def built(schedule: Schedule, settings: Mapping[str, Any]) -> Schedule:
    """Return a schedule with these knobs set to valid values; unchanged if all have their defaults."""
    turned = {name: value for name, value in settings.items() if value}
    if not turned:
        return schedule
    whole: Any = schedule if isinstance(schedule, Built) else Built(schedule, weights=getattr(schedule, WEIGHTS, ""))
    result: Schedule = replace(whole, **turned)
    return result
