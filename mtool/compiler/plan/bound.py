"""Schedules that were made for one node, and stand for another schedule there."""

from collections.abc import Mapping
from typing import Any

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import BaseSchedule, Knob, Schedule
from mtool.compiler.kernels.target import Target


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
