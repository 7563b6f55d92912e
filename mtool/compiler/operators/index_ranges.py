"""The ranges that constant indices and lengths among a node's inputs have to lie in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The range of values that an input of a node may have; `low` and `high` are broadcast to it.

    size: of the dimensions that it is of, for messages.
    """

    index: int
    low: Array
    high: Array
    size: Array


IndexRanges = Callable[[Sequence[Shape], Mapping[str, Any]], IndexRange]
"""From the shapes of the inputs and the attributes; IndexError or ValueError: it can't be told."""


def index_of(index: int, size: Any, *, from_end: bool = True) -> IndexRange:
    """Return the range of an index into dimensions of a size; `from_end`: it may be negative."""
    sizes = np.asarray(size, np.int64)
    return IndexRange(index, -sizes if from_end else np.zeros_like(sizes), sizes - 1, sizes)


def length_of(index: int, size: int) -> IndexRange:
    """Return the range of a length along a dimension."""
    return IndexRange(index, np.array(0), np.array(size), np.array(size))


def index_along(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> IndexRange:
    """Return the range of the second input as indices along `axis` of the first."""
    return index_of(1, shapes[0][attrs.get("axis", 0)])
