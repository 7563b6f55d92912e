"""What folding a node of constants costs, in elements that NumPy computes at once, and how large its result may be."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported

PYTHON = 1000  # elements of NumPy that take as long as one that Python computes


@dataclass(frozen=True, slots=True)
class Folded:
    """A node whose inputs are constants, `values`; made: elements of its outputs, or the most that there may be."""

    attrs: Mapping[str, Any]
    values: Sequence[Array]
    made: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of its inputs."""
        return [value.shape for value in self.values]

    @property
    def every(self) -> int:
        """The elements of its inputs and outputs."""
        return sum(value.size for value in self.values) + self.made


def _vectorized(node: Folded) -> int:
    return node.every


def _by_element(node: Folded) -> int:
    return 32 * node.every


def _product(node: Folded) -> int:
    return node.every + node.made * max(node.shapes[0], default=1)


def _convolution(node: Folded) -> int:
    return 16 * node.every + node.made * math.prod(node.shapes[1][1:])


def _windows(node: Folded) -> int:
    window = node.attrs.get("kernel_shape") or node.shapes[1 if len(node.values) > 1 else 0][2:]
    return node.every * (PYTHON + math.prod(max(size, 1) for size in window))


def slow(node: Folded) -> int:
    """Return the cost of what Python computes, perhaps each element with each other one."""
    return max(node.every * PYTHON, node.every * node.every)


def _broadcast(values: Sequence[Array]) -> int:
    try:
        together = math.prod(np.broadcast_shapes(*(value.shape for value in values)))
    except ValueError:
        together = 0
    return max(together, max((value.size * max(value.ndim, 1) for value in values), default=0), 1)


def unknown_size(values: Sequence[Array]) -> int:
    """Refuse an operator an input of which says that the output is larger than the inputs together.

    Raises:
        Unsupported: always.
    """
    raise Unsupported("how large its output is can't be told")


@dataclass(frozen=True, slots=True)
class Folding:
    """Constant folding of an operator, by onnx's reference evaluator.

    cost: in elements that NumPy computes at once.
    size: the most elements that a node can make whose outputs' types inference can't tell.
    when: "never": it is random; "later": it stays a node, and its value is computed where an operator needs that
        which does not only move elements.
    of_nothing: whether the reference evaluator computes what has inputs without elements; defined: whether the device
        may, where that fails, by the attributes.
    is_right: whether it computes it rightly.
    """

    cost: Callable[[Folded], int] = slow
    size: Callable[[Sequence[Array]], int] = _broadcast
    when: Literal["now", "later", "never"] = "now"
    of_nothing: bool = True
    defined: Callable[[Mapping[str, Any]], bool] = lambda attrs: False
    is_right: bool = True

    def growing(self) -> "Folding":
        """Return that of an operator an input of which says how large the output is."""
        return replace(self, size=unknown_size)


SLOW = Folding()
VECTORIZED = Folding(_vectorized)
"""Operators whose reference is a few NumPy calls: a few nanoseconds an element."""
BY_ELEMENT = Folding(_by_element)
PRODUCT = Folding(_product)
CONVOLUTION = Folding(_convolution, of_nothing=False)
WINDOWS = Folding(_windows)
