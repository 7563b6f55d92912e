"""A front end under construction: its nodes, inputs and states, and what the model behind it expects."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import onnx

from mtool.base.errors import UsageError
from mtool.compiler.ir.types import Array
from mtool.preprocessing.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Target:
    """The tensor that a front end has to compute: a model's input, or the input of another front end.

    scale, zero_point: of a quantized tensor; scale 0: it is not quantized.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    scale: float = 0.0
    zero_point: int = 0

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(slots=True)
class Front:
    """Nodes in front of a model, with their functions and states.

    states: an output and an input for each, and its initial value.
    """

    write: Nodes
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    states: list[tuple[str, str, Array]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)

    def state(self, name: str, initial: Array) -> "State":
        """Add a state."""
        self._names.append(name)
        again = self._names.count(name)
        return State(self, f"{self.write.prefix}{name}{f'_{again}' if again > 1 else ''}", initial)

    def behind(self, name: str, value: str, kept: int, new: int, row: Sequence[int], first: Any) -> str:
        """Return the last `kept` rows of earlier calls, followed by the `new` rows of `value`, and keep the last ones.

        Args:
            name: of the state.
            value: the new rows.
            kept: the number of rows that are kept.
            new: the number of new rows.
            row: the shape of a row.
            first: the value of the elements before the first call.
        """
        if not kept:
            return value
        state = self.state(name, np.full((kept, *row), first))
        whole = self.write("Concat", state.name, value, axis=0)
        state.keep(self.write("Slice", whole, [new], [new + kept], [0]))
        return whole

    def stored(self, value: str, target: Target) -> tuple[str, Any]:
        """Return a float value in a target's type, and 0 in that type.

        Raises:
            UsageError: the target has a type of integers, but no scale.
        """
        kind = target.dtype.type
        if target.scale:
            zero = kind(target.zero_point)
            return self.write("QuantizeLinear", value, np.float32(target.scale), zero), zero
        if target.dtype != np.float32:
            raise UsageError(
                f"the input {target} of the model has no scale",
                hint="give a model whose input is float32, or quantized as by `mtool quantize --integer-io`",
            )
        return value, kind(0)


class State:
    """A value that is kept from call to call; `name` has the value of the call before."""

    def __init__(self, front: Front, name: str, initial: Array) -> None:
        self._front, self.name, self._initial = front, name, initial

    def keep(self, value: str) -> None:
        """Set the value for the next call."""
        self._front.states.append((value, self.name, self._initial))


class Kind(Protocol):
    """A kind of front end; the fields of its dataclass are its parameters."""

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target.

        Raises:
            UsageError: it can't compute that target.
        """

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
