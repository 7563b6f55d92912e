"""The budget of an import: a small file can describe unlimited work and memory.

`--limit NAME=N` sets a limit by its name. docs/limits.md has the table.
"""

from collections.abc import Mapping

from mtool.base import spelling
from mtool.base.errors import ModelError, UsageError

LIMITS: dict[str, tuple[int, str]] = {
    "file": (256 << 20, "bytes of the model's file"),
    "constants": (128 << 20, "bytes of constants, read or computed"),
    "work": (1 << 27, "elements computed from constants, and characters of new names"),
    "nodes": (20_000, "nodes that functions, loops and sequences expand to"),
    "rounds": (256, "rounds of one Loop or Scan that are written out"),
    "depth": (64, "nested graphs and functions"),
}
"""Every limit: its default, and what it counts."""


_LONGEST = 200  # characters of a node's name in a message


class Budget:
    """The amount used of each limit during one import."""

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        unknown = sorted(set(limits or {}) - set(LIMITS))
        if unknown:
            raise UsageError(
                f"unknown limit {', '.join(unknown)}",
                details=[f"limits: {', '.join(LIMITS)}"],
                hint=spelling.did_you_mean(unknown[0], LIMITS, otherwise="docs/limits.md has them all"),
            )
        self._limits = {name: default for name, (default, _) in LIMITS.items()} | dict(limits or {})
        self._spent = dict.fromkeys(LIMITS, 0)

    def spend(self, name: str, amount: int, where: str) -> None:
        """Count an amount that is needed for `where`, a node or tensor.

        Raises:
            ModelError: the sum exceeds the limit.
        """
        self._spent[name] += amount
        self.check(name, self._spent[name], where)

    def afford(self, name: str, amount: int, where: str) -> None:
        """Check that an amount is left, without spending it.

        Raises:
            ModelError: the sum exceeds the limit.
        """
        self.check(name, self._spent[name] + amount, where)

    def allows(self, name: str, total: int) -> bool:
        """Return whether a total is within a limit."""
        return total <= self._limits[name]

    def check(self, name: str, total: int, where: str) -> None:
        """Check a total against a limit.

        Raises:
            ModelError: it exceeds the limit.
        """
        limit = self._limits[name]
        if total > limit:
            raise ModelError(
                f"the model exceeds the limit {name!r} of {limit:,} {LIMITS[name][1]}",
                details=[
                    f"at {where if len(where) <= _LONGEST else where[:_LONGEST] + '…'}",
                    f"expected  {name} of at most {limit:,}",
                    f"found     {total:,}, or more",
                ],
                hint=f"raise the limit if this is intended: --limit {name}={_rounded(max(total, 2 * limit))}",
            )


def _rounded(number: int) -> int:
    """Round up to two significant digits."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return int(-(-number // unit) * unit)
