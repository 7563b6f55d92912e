"""Knobs of every schedule, which change how its function is built: the compiler's level, the memory of constants."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from mtool.base.option_values import LEVEL, WEIGHTS, Level
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Knob, Schedule
from mtool.compiler.kernels.target import Target


class _Around:
    """What stands around a schedule, and says what that says where it says nothing itself."""

    inner: Schedule

    def __getattr__(self, name: str) -> Any:
        """Return what the schedule says."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class BoundSchedule(_Around, Schedule):
    """A schedule for the node that it was made for, with the knobs of `inner`."""

    def knobs(self) -> Mapping[str, Knob]:
        """Those of the schedule."""
        return self.inner.knobs()


LEVELS: tuple[Level, ...] = get_args(Level)
RAM = "ram"
KNOBS = {
    LEVEL: Knob(
        ("", *LEVELS), "the compiler's optimisation level of the operator; auto: that of the model's other files"
    ),
    WEIGHTS: Knob(("", RAM), "the memory of its constants; auto: that of the model's other constants"),
}


@dataclass(eq=False)
class Built(_Around):
    """A schedule whose C is compiled at a level of its own, or whose constants lie in RAM; all else is `inner`'s.

    Attributes:
        inner: the schedule.
        opt: the level; "": that of the model's other files.
        weights: "ram", or "": where the model's other constants lie.
    """

    inner: Schedule
    opt: Level | str = ""
    weights: str = ""

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C of the schedule, with how it is built."""
        return replace(self.inner.emit(node, graph, target), level=self.opt, in_ram=self.weights == RAM)

    def knobs(self) -> dict[str, Knob]:
        """Those of the schedule, and these."""
        return {**self.inner.knobs(), **KNOBS}


def built(schedule: Schedule, settings: Mapping[str, Any]) -> Schedule:
    """Return a schedule with these knobs set to values that they have; as it is, if all are left alone."""
    turned = {name: value for name, value in settings.items() if value}
    made: Any = schedule
    if turned:
        made = replace(made, **turned) if isinstance(made, Built) else Built(schedule, **turned)
    found: Schedule = made
    return found
