"""Tuning: measure schedules on a board, and remember the fastest. Who names a log alone does not load the compiler."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.tuning.tuning import Tuned, tune

__all__ = ["Tuned", "tune"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mtool.tuning' has no attribute {name!r}")
    from mtool.tuning import tuning

    return getattr(tuning, name)
