"""One thing that a board needs: whether it is here, what was found, and what to type if it is not."""

import functools
from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "missing", "absent"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is looked for.

    Attributes:
        name: what it is called.
        found: what is there, a version or a path; "" if nothing is.
        needed: what it is needed for, or which of it would do.
        install: what to type, or where it comes from; "" if it is there.
        required: the board can't be used without it.
    """

    name: str
    found: str
    needed: str
    install: str = ""
    required: bool = False

    @property
    def state(self) -> State:
        """Tell whether it is there; "absent": it is not, and nothing of what was asked for needs it."""
        return "ok" if not self.install else "missing" if self.required else "absent"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        there = None if self.install and not self.found else self.found
        return {**asdict(self), "version": there, "purpose": self.needed, "state": self.state}


required = functools.partial(Item, required=True)
"""An item that the board can't be used without."""
