"""The contents of a .tflite file as plain dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: `scale` and `zero_point` are empty where it is not quantised; `axis` is that of several scales.

    `problem` is why it can't be used, or "". `open` are the dimensions whose size in the file stands for any. `place`
    is where it lies in memory, in bytes, if the file says that.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scale: Array
    zero_point: Array
    axis: int
    data: Array | None
    problem: str
    open: tuple[int, ...] = ()
    place: int | None = None

    @property
    def is_quantised(self) -> bool:
        """Whether its numbers are integers on a grid."""
        return bool(self.scale.size) and self.dtype.kind in "iu"

    @property
    def zero(self) -> int:
        """What 0 is stored as."""
        return int(self.zero_point.reshape(-1)[0]) if self.is_quantised else 0

    def allows(self, shape: tuple[int, ...]) -> bool:
        """Whether the tensor may be of a shape, by what the file says."""
        return len(shape) == len(self.shape) and all(
            dim in self.open or size == other for dim, (size, other) in enumerate(zip(self.shape, shape, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: tensors by number (-1: an optional input that is not given), options by the schema's names.

    `intermediates` are tensors of which only the quantisation matters: that of numbers inside of the operator.
    `custom` are the options of a custom operator, whose form is its own.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    intermediates: tuple[int, ...] = ()
    custom: bytes = b""

    def option(self, name: str, default: Any = 0) -> Any:
        """Return an option; `default` where the file does not say."""
        return self.options.get(name, default)


@dataclass(frozen=True, slots=True)
class Model:
    """A subgraph of a file; `others` are, for the first, those behind it."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple["Model", ...] = ()
