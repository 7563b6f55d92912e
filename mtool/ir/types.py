"""Element types, tensor types and quantisation parameters."""

import enum
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class DType(enum.Enum):
    """An element type: its name (NumPy's), its C type and its kind."""

    BOOL = ("bool", "uint8_t", "bool")
    INT8 = ("int8", "int8_t", "int")
    INT16 = ("int16", "int16_t", "int")
    INT32 = ("int32", "int32_t", "int")
    INT64 = ("int64", "int64_t", "int")
    UINT8 = ("uint8", "uint8_t", "uint")
    UINT16 = ("uint16", "uint16_t", "uint")
    UINT32 = ("uint32", "uint32_t", "uint")
    UINT64 = ("uint64", "uint64_t", "uint")
    FLOAT32 = ("float32", "float", "float")
    FLOAT64 = ("float64", "double", "float")

    def __init__(self, label: str, c: str, kind: str) -> None:
        self.label = label
        self.c = c
        self.kind = kind

    @property
    def numpy(self) -> "np.dtype[np.generic]":
        """The NumPy dtype."""
        return np.dtype(self.label)

    @property
    def size(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer (not bool)."""
        return self.kind in ("int", "uint")

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        info = np.iinfo(self.label)
        return int(info.min), int(info.max)

    @classmethod
    def of(cls, dtype: "np.dtype[np.generic] | type | str") -> "DType":
        """Return the type of a NumPy dtype.

        Raises:
            KeyError: mtool has no such type.
        """
        return _BY_LABEL[np.dtype(dtype).name]


_BY_LABEL = {dtype.label: dtype for dtype in DType}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense row-major tensor of known shape."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of elements; 1 for a scalar, 0 if a dimension is 0."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of storage."""
        return self.count * self.dtype.size

    def __str__(self) -> str:
        return f"{self.dtype.label}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Quant:
    """Affine quantisation: real = (q - zero_point) * scale, per tensor or along `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None
