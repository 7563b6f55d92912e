"""A front end under construction: its nodes, inputs and states, and what the model behind it expects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
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

    def behind(self, name: str, value: str, overlap: int, new: int, row: Sequence[int], first: Any) -> str:
        """Return the last `overlap` rows of earlier calls and the `new` rows of `value`; keep the last ones.

        Args:
            name: of the state.
            value: the new rows.
            overlap: the number of rows that are kept.
            new: the number of new rows.
            row: the shape of a row.
            first: the value of the elements before the first call.
        """
        if not overlap:
            return value
        state = self.state(name, np.full((overlap, *row), first))
        joined = self.write("Concat", state.name, value, axis=0)
        state.keep(self.write("Slice", joined, [new], [new + overlap], [0]))
        return joined

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
                f"the input {target} has no scale",
                hint="filters of samples come first: decimate:by=2 log_mel"
                if target.dtype == np.int16
                else "give a model whose input is float32, or quantized as by `mtool quantize --integer-io`",
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
    """A kind of front end; the fields of its dataclass are its parameters, with the range of each in its metadata."""

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name; one whose default is another's value has that value."""

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target.

        Raises:
            UsageError: it can't compute that target.
        """

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""


MOST = float(np.finfo(np.float32).max)


def within(default: Any, least: float | str, most: float | str = MOST, *, but: float | str | None = None) -> Any:
    """Return a field for a parameter from `least` to `most`, each a number or one of the kind's `values`; not `but`."""
    return field(default=default, metadata={"least": least, "most": most, "but": but})


def check(kind: Kind, settings: Mapping[str, Any], name: str) -> None:
    """Check the parameters of a kind against their ranges: those that are given, and the defaults beside them.

    Raises:
        UsageError: one is outside.
    """
    values = {**kind.values(), **settings}
    bounded = [parameter for parameter in fields(kind) if parameter.metadata and parameter.name in values]  # type: ignore[arg-type]
    for parameter in sorted(bounded, key=lambda parameter: parameter.name not in settings):
        value = values[parameter.name]
        least, most, but = (values.get(limit, limit) for limit in (parameter.metadata[key] for key in _KEYS))
        if not least <= value <= most or value == but:
            sources = {key: f" ({limit})" for key, limit in parameter.metadata.items() if isinstance(limit, str)}
            lower, upper = f"{least:.10g}{sources.get('least', '')}", f"{most:.10g}{sources.get('most', '')}"
            text = f"{lower} or more" if most == MOST else f"{lower} to {upper}"
            if least == -MOST:
                text = "a finite number" if but is None else f"a finite number, not {but:.10g}"
            elif but == most:
                text = f"{lower} or more, below {upper}"
            elif but == least:
                text = f"more than {lower}, up to {upper}"
            raise UsageError(f"front end {name}: {parameter.name} is {value}; expected {text}")


_KEYS = ("least", "most", "but")
LONGEST = 1 << 16
"""The most samples of a window."""
