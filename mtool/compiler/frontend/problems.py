"""Why one node can't be compiled; the importer collects these and reports them all at once."""

from mtool.compiler.operators.problems import (
    OWN,
    REFUSED,
    NotComputed,
    TooLarge,
    Unsupported,
    ValueNeeded,
    disagreement,
)

__all__ = ["OWN", "REFUSED", "NotComputed", "TooLarge", "Unsupported", "ValueNeeded", "disagreement"]
