"""The ranges that constant indices and lengths among a node's inputs have to lie in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.operators.onnx_node import OnnxNode


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The range of values that an input of a node may have; `low` and `high` are broadcast to it.

    size: of the dimensions that it is of, for messages.
    """

    index: int
    low: Array
    high: Array
    size: Array


IndexRanges = Callable[[OnnxNode], IndexRange]
"""IndexError or ValueError: it can't be told."""


def index_of(index: int, size: Any, *, from_end: bool = True) -> IndexRange:
    """Return the range of an index into dimensions of a size; `from_end`: it may be negative."""
    sizes = np.asarray(size, np.int64)
    return IndexRange(index, -sizes if from_end else np.zeros_like(sizes), sizes - 1, sizes)


def length_of(index: int, size: int) -> IndexRange:
    """Return the range of a length along a dimension."""
    return IndexRange(index, np.array(0), np.array(size), np.array(size))


def index_along(node: OnnxNode) -> IndexRange:
    """Return the range of the second input as indices along `axis` of the first."""
    return index_of(1, node.shapes[0][node.attrs.get("axis", 0)])
