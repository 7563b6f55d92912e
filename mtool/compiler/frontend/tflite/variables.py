"""Variables, which a model keeps from call to call: they become states.

What reads a variable before anything has written it reads the value of the call before.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.ir.types import Array

Key = Hashable
"""What tells one variable from another."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A variable that outlives a call.

    input: what it was before, as an input of the network.
    tensor: of what type it is.
    last: the value that was last written.
    first: its value before the first call; None: the model gives none.
    key: what tells it from others.
    is_written: whether anything writes it.
    """

    input: str
    tensor: Tensor
    last: str
    first: Array | None
    key: Key
    is_written: bool = True


class Variables:
    """The variables of one model, in the order in which they are first read."""

    def __init__(self) -> None:
        self._first: dict[Key, Array] = {}
        self._inputs: dict[Key, tuple[str, Tensor]] = {}
        self._current: dict[Key, str] = {}
        self._written: dict[Key, Tensor] = {}

    def begin(self, key: Key, value: Array) -> None:
        """Give a variable its first value.

        Raises:
            Unsupported: it has been read or written already.
        """
        if key in self._inputs or key in self._written:
            raise Unsupported("it gives a variable its first value after that is used")
        self._first[key] = value

    def read(self, key: Key, kind: Tensor, name: Callable[[], str]) -> str:
        """Return the value that a variable has now; `name` calls the input, if it is that of the call before.

        Raises:
            Unsupported: the variable is of another type or shape.
        """
        if key in self._written:
            _check_like(self._written[key], kind)
        elif key not in self._inputs:
            first = self._first.get(key)
            if first is not None and (first.dtype != kind.dtype or first.shape != kind.shape):
                wanted = f"{kind.dtype}{list(kind.shape)}"
                raise Unsupported(f"its variable is {wanted}, and begins as {first.dtype}{list(first.shape)}")
            self._inputs[key] = name(), kind
            self._current[key] = self._inputs[key][0]
        else:
            _check_like(self._inputs[key][1], kind)
        return self._current[key]

    def write(self, key: Key, kind: Tensor, value: str) -> None:
        """Give a variable another value.

        Raises:
            Unsupported: the variable is of another type or shape.
        """
        if key in self._inputs:
            _check_like(self._inputs[key][1], kind)
        self._current[key], self._written[key] = value, kind

    def close(self, afford: Callable[[int], None]) -> tuple[list[Kept], dict[str, Array]]:
        """Return the variables that are states, and the values of those that nothing writes, by input.

        `afford` is asked for the bytes of what is made.
        """
        kept, fixed = [], {}
        for key, (name, tensor) in self._inputs.items():
            first = self._first.get(key)
            if key in self._written:
                kept.append(Kept(name, tensor, self._current[key], first, key))
                continue
            if first is None:
                afford(tensor.dtype.itemsize * math.prod(tensor.shape))
            fixed[name] = np.full(tensor.shape, tensor.zero, tensor.dtype) if first is None else first
        return kept, fixed

    def crossing(self, name: Callable[[str], str]) -> list[Kept]:
        """Return all variables of a subgraph, which those around it read and write through it; `name` makes names."""
        kinds = {key: kind for key, (_, kind) in self._inputs.items()} | self._written
        return [
            Kept(
                self._inputs[key][0] if key in self._inputs else name("variable"),
                kind,
                self._current[key],
                self._first.get(key),
                key,
                key in self._written,
            )
            for key, kind in kinds.items()
        ]


def _check_like(known: Tensor, kind: Tensor) -> None:
    if (known.dtype, known.shape) != (kind.dtype, kind.shape):
        raise Unsupported(
            f"its variable is {known.dtype}{list(known.shape)} in one place, {kind.dtype}{list(kind.shape)} in another"
        )
