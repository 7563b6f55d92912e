"""Knobs: the parameters of a schedule that may be turned."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Knob:
    """A field of a schedule that may be turned: the values that it may have, its default first, and what it does.

    A default of "" or 0 leaves the choice to the schedule, for each node; people write it `auto`.
    """

    values: tuple[Any, ...]
    meaning: str

    @property
    def default(self) -> Any:
        """The value unless told."""
        return self.values[0]

    def written(self, value: Any) -> str:
        """Return a value as people write it."""
        return str(value) if value else AUTO

    def read(self, value: Any) -> Any:
        """Return the value that is meant by a value or by how it is written; None: there is no such value."""
        return next((own for own in self.values if value in (own, self.written(own))), None)


AUTO = "auto"


def knob(default: Any, *others: Any, meaning: str) -> Any:
    """Declare a field of a schedule (a frozen dataclass) that may be turned; `meaning` is one line for people."""
    return field(default=default, metadata={"knob": Knob((default, *others), meaning)})
