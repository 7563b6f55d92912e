"""Element types, tensor types and quantization parameters."""

import enum
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes  # gives NumPy its bfloat16, int4, float8, ...
import numpy as np
import numpy.typing as npt

from mtool.base.frozen import frozen

Array = npt.NDArray[Any]


class DType(enum.Enum):
    """An element type: its name (NumPy's), the C type that it is stored as, and its kind.

    An integer of 2 or 4 bits takes a byte, float4 too. Floats of 16 bits and less are stored as their bits and computed
    with in float32.
    """

    BOOL = ("bool", "uint8_t", "bool")
    INT2 = ("int2", "int8_t", "int")
    INT4 = ("int4", "int8_t", "int")
    INT8 = ("int8", "int8_t", "int")
    INT16 = ("int16", "int16_t", "int")
    INT32 = ("int32", "int32_t", "int")
    INT64 = ("int64", "int64_t", "int")
    UINT2 = ("uint2", "uint8_t", "uint")
    UINT4 = ("uint4", "uint8_t", "uint")
    UINT8 = ("uint8", "uint8_t", "uint")
    UINT16 = ("uint16", "uint16_t", "uint")
    UINT32 = ("uint32", "uint32_t", "uint")
    UINT64 = ("uint64", "uint64_t", "uint")
    FLOAT4E2M1 = ("float4_e2m1fn", "uint8_t", "float")
    FLOAT8E4M3FN = ("float8_e4m3fn", "uint8_t", "float")
    FLOAT8E4M3FNUZ = ("float8_e4m3fnuz", "uint8_t", "float")
    FLOAT8E5M2 = ("float8_e5m2", "uint8_t", "float")
    FLOAT8E5M2FNUZ = ("float8_e5m2fnuz", "uint8_t", "float")
    FLOAT16 = ("float16", "uint16_t", "float")
    BFLOAT16 = ("bfloat16", "uint16_t", "float")
    FLOAT32 = ("float32", "float", "float")
    FLOAT64 = ("float64", "double", "float")

    def __init__(self, label: str, c: str, kind: str) -> None:
        self.label = label
        self.c = c
        self.kind = kind
        self.numpy: np.dtype[Any] = np.dtype(label)
        self.size: int = self.numpy.itemsize  # bytes an element

    def c_bytes(self, count: int) -> str:
        """Return the bytes of `count` elements as C: 24 (int8), 6 * sizeof(float)."""
        return str(count) if self.size == 1 else f"{count} * sizeof({self.c})"

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "float"

    @property
    def is_half(self) -> bool:
        """Whether it is a float of 16 bits or less."""
        return self.is_float and self.size <= 2

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer (not bool)."""
        return self.kind in ("int", "uint")

    @property
    def bits(self) -> int:
        """The number of bits of an integer's value; storage may use more."""
        return {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4}.get(self.label, self.size * 8)

    @property
    def is_nibble(self) -> bool:
        """Whether it is an integer of 2 or 4 bits."""
        return self.is_integer and self.bits < 8

    @property
    def computed(self) -> str:
        """The C type of an element inside an expression."""
        return "float" if self.is_half else self.c

    @property
    def code(self) -> str:
        """The suffix of its C functions: f32, i8, u64."""
        return "f32" if self.is_half else f"{self.kind[0] if self.kind != 'bool' else 'u'}{self.size * 8}"

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        bits = self.bits
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.kind == "int" else (0, (1 << bits) - 1)

    @property
    def largest(self) -> float:
        """The largest finite value of a float type."""
        info: Any = ml_dtypes.finfo
        return float(info(self.numpy).max)

    @classmethod
    def of(cls, dtype: "np.dtype[Any] | type | str") -> "DType":
        """Return the type of a NumPy dtype.

        Raises:
            KeyError: mtool does not support the type.
        """
        return _BY_LABEL[np.dtype(dtype).name]


_BY_LABEL = {dtype.label: dtype for dtype in DType}


@frozen
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

    @property
    def c_bytes(self) -> str:
        """The same as C."""
        return self.dtype.c_bytes(self.count)

    def __str__(self) -> str:
        return f"{self.dtype.label}[{','.join(map(str, self.shape))}]"


@frozen
class Quant:
    """Affine quantization: real = (q - zero_point) * scale, per tensor or along `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


BLOCK_ELEMENTS = 1 << 18


def low_bits_first(data: Array, bits: int) -> Array:
    """Return the unsigned numbers of 2, 4 or 8 bits in bytes along the last axis, a byte's low bits first."""
    numbers = np.stack([data >> shift & ((1 << bits) - 1) for shift in range(0, 8, bits)], axis=-1)
    return numbers.reshape(*data.shape[:-1], -1)


def row_blocks(data: Array, multiple: int = 1) -> Iterator[slice]:
    """Return slices of the first dimension, at least one, of about BLOCK_ELEMENTS elements each."""
    rows = max(BLOCK_ELEMENTS // max(math.prod(data.shape[1:]) * multiple, 1), 1) * multiple
    for first in range(0, max(data.shape[0], 1), rows):
        yield slice(first, first + rows)


class RowSums(NamedTuple):
    """Exact sums of each row's positive and negative elements, int64 [rows]."""

    positive: Array
    negative: Array

    @property
    def total(self) -> Array:
        """The sum of each row."""
        return self.positive + self.negative

    @property
    def magnitude(self) -> Array:
        """The sum of each row's absolute values."""
        return self.positive - self.negative


def row_sums(data: Array) -> RowSums:
    """Return the sums of an array of small integers [rows, ...]."""
    sums = RowSums(np.zeros(len(data), np.int64), np.zeros(len(data), np.int64))
    inner = tuple(range(1, data.ndim))
    for rows in row_blocks(data):
        np.sum(np.maximum(data[rows], 0), axis=inner, dtype=np.int64, out=sums.positive[rows])
        np.sum(np.minimum(data[rows], 0), axis=inner, dtype=np.int64, out=sums.negative[rows])
    return sums
