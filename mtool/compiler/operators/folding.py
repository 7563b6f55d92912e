"""The cost of folding a node, in elements that NumPy computes in one call, and the largest size of its result."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported

PYTHON = 1000  # elements that NumPy computes in the time of one element in Python


@frozen
class Folded:
    """A node whose inputs are the constants `values`; elements: the number of elements of its outputs, or a limit."""

    attrs: Mapping[str, Any]
    values: Sequence[Array]
    elements: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of its inputs."""
        return [value.shape for value in self.values]

    @property
    def every(self) -> int:
        """The number of elements of its inputs and outputs."""
        return sum(value.size for value in self.values) + self.elements


def _vectorized(node: Folded) -> int:
    return node.every


def _by_element(node: Folded) -> int:
    return 32 * node.every


def _product(node: Folded) -> int:
    return node.every + node.elements * max(node.shapes[0], default=1)


def _convolution(node: Folded) -> int:
    return 16 * node.every + node.elements * math.prod(node.shapes[1][1:])


def _windows(node: Folded) -> int:
    window = node.attrs.get("kernel_shape") or node.shapes[1 if len(node.values) > 1 else 0][2:]
    return node.every * (PYTHON + math.prod(max(size, 1) for size in window))


def slow(node: Folded) -> int:
    """Return the cost of a Python implementation, which may combine each element with each other one."""
    return max(node.every * PYTHON, node.every * node.every)


def _broadcast(values: Sequence[Array]) -> int:
    try:
        together = math.prod(np.broadcast_shapes(*(value.shape for value in values)))
    except ValueError:
        together = 0
    return max(together, max((value.size * max(value.ndim, 1) for value in values), default=0), 1)


def unknown_size(values: Sequence[Array]) -> int:
    """Refuse an operator whose output may be larger than its inputs together.

    Raises:
        Unsupported: always.
    """
    raise Unsupported("the size of its output can't be determined")


@frozen
class Folding:
    """Constant folding of an operator, by onnx's reference evaluator.

    cost: in elements that NumPy computes at once.
    size: the largest number of output elements, for outputs whose types inference can't determine.
    when: "now"; "never": it is random; "later": it stays a node, and its value is computed for operators that do more
        than move elements.
    of_nothing: whether the reference evaluator supports inputs without elements; defined: whether the device does,
        where that fails, by the attributes.
    is_right: whether the reference evaluator is correct.
    """

    cost: Callable[[Folded], int] = slow
    size: Callable[[Sequence[Array]], int] = _broadcast
    when: Literal["now", "later", "never"] = "now"
    of_nothing: bool = True
    defined: Callable[[Mapping[str, Any]], bool] = lambda attrs: False
    is_right: bool = True

    def growing(self) -> "Folding":
        """Return the folding of an operator with an input that determines the size of the output."""
        return replace(self, size=unknown_size)


SLOW = Folding()
VECTORIZED = Folding(_vectorized)
"""Operators whose reference is a few NumPy calls: a few nanoseconds an element."""
BY_ELEMENT = Folding(_by_element)
PRODUCT = Folding(_product)
CONVOLUTION = Folding(_convolution, of_nothing=False)
WINDOWS = Folding(_windows)
