"""How far a search has come: what is shown while it runs, and what it ends with."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mtool.compiler.tuned.record import Measurement, Unit
from mtool.tuning.candidates import Space


@dataclass(slots=True)
class Row:
    """A task: how often the model has it, its candidates, and the fastest so far.

    `measured` has the last measurement of each candidate, by its text.
    """

    space: Space
    measured: dict[str, Measurement] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What a person calls the task: its first node, and what it computes."""
        more = len(self.space.task.nodes) - 1
        return f"{self.space.task.nodes[0]}{f' +{more}' if more else ''}  {self.space.task.record.label}"

    @property
    def failed(self) -> int:
        """How many candidates have no time."""
        return sum(one.status != "ok" for one in self.measured.values())

    @property
    def default(self) -> Measurement | None:
        """The measurement of the cost model's choice, if there is one."""
        found = self.measured.get(self.space.default.text)
        return found if found is not None and found.status == "ok" else None

    @property
    def best(self) -> Measurement | None:
        """The fastest measurement, if there is one; the cost model's choice, where none is faster."""
        right = [one for one in self.measured.values() if one.status == "ok" and one.times]
        first = self.space.default.text
        return min(right, key=lambda one: (one.median, one.candidate != first, one.candidate), default=None)


@dataclass(slots=True)
class Progress:
    """What a search has done.

    Attributes:
        rows: the tasks, by their keys.
        unit: what is measured.
        firmwares: how many were built.
        measured: how many candidates were measured, those of earlier runs apart.
        known: how many were known from the log.
        phase: what is being done.
        drift: the largest change of the baseline against its first measurement, as a ratio.
        seconds: how long a run may take; 0: until all is measured.
        listener: called after each change.
    """

    rows: dict[str, Row]
    unit: Unit
    firmwares: int = 0
    measured: int = 0
    known: int = 0
    phase: str = ""
    drift: float = 0.0
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)
    listener: "Callable[[Progress], None] | None" = None

    @classmethod
    def of(
        cls, spaces: Iterable[Space], unit: Unit, listener: "Callable[[Progress], None] | None" = None
    ) -> "Progress":
        """Return the progress of a search that begins."""
        return cls({space.task.record.key: Row(space) for space in spaces}, unit, listener=listener)

    @property
    def total(self) -> int:
        """All candidates."""
        return sum(len(row.space.candidates) for row in self.rows.values())

    @property
    def tried(self) -> int:
        """The candidates that were measured, now or earlier."""
        return sum(len(row.measured) for row in self.rows.values())

    @property
    def failed(self) -> int:
        """Those of them that have no time."""
        return sum(row.failed for row in self.rows.values())

    def take(self, record: Measurement) -> None:
        """Note a measurement."""
        self.rows[record.task.key].measured[record.candidate] = record
        self.changed()

    def says(self, phase: str) -> None:
        """Note what is being done now."""
        self.phase = phase
        self.changed()

    def changed(self) -> None:
        """Tell the listener."""
        if self.listener is not None:
            self.listener(self)
