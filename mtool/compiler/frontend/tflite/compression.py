"""TFLM's compressed constants, decoded as a file is read: look-up tables, Huffman codes, pruned tensors.

Sources: tflite-micro's docs/compression.md, compression/metadata.fbs (tables of the file's metadata) and
kernels/decode_state_*.cc (the operator TFLM_DECODE).
"""

import math
from collections.abc import Iterator
from typing import Any

import flatbuffers.number_types as numbers
import numpy as np
from flatbuffers.table import Table

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array

DECODE = "CUSTOM TFLM_DECODE"
METADATA = "COMPRESSION_METADATA"
CODE = 300  # the cost of a Huffman code, in elements that NumPy reads
_HEADER_BYTES, _MAX_BITS = 16, 7


class Undecodable(Exception):
    """A compressed tensor is damaged, or of an unknown version; the text is the reason."""


@frozen
class Target:
    """A tensor to decode: its channels lie along `axis`; `zeros` are zero points, one or by channel."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    channels: int
    axis: int
    zeros: Array

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def along(self, by_channel: Array) -> Array:
        """Return values by channel so that they broadcast to the shape; one value for all stays.

        Raises:
            Undecodable: the channels lie along neither the first nor the last axis.
        """
        if self.channels == 1:
            return by_channel.reshape((1,) * len(self.shape))
        if self.axis not in (0, len(self.shape) - 1):
            raise Undecodable(f"the channels of {self.name} lie along axis {self.axis}; expected the first or the last")
        return by_channel.reshape([-1 if axis == self.axis else 1 for axis in range(len(self.shape))])


def tables_of(metadata: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (subgraph, tensor, buffer of values, bits of an index) of each tensor with a look-up table.

    Raises:
        Undecodable: the metadata are of a newer version.
    """
    whole = Table(metadata, 0)
    root = Table(metadata, whole.Get(numbers.UOffsetTFlags, 0))
    version = field(root, 4, numbers.Uint32Flags, 1)
    if version != 1:
        raise Undecodable(f"its compression has schema version {version}; expected 1")
    for subgraph, part in enumerate(_vector(root, 6)):
        for table in _vector(part, 4):
            tensor, values = field(table, 4, numbers.Int32Flags, 0), field(table, 6, numbers.Uint32Flags, 0)
            yield subgraph, tensor, values, field(table, 8, numbers.Uint8Flags, 0)


def field(table: Table, slot: int, kind: Any, default: int) -> int:
    """Return a number of a table, or the default if the table lacks it."""
    offset = table.Offset(slot)
    return int(table.Get(kind, table.Pos + offset)) if offset else default


def _vector(table: Table, slot: int) -> Iterator[Table]:
    """Yield the tables of a vector, which has no more of them than the bytes can hold."""
    offset = table.Offset(slot)
    length = table.VectorLen(offset) if offset else 0
    if length * 4 > len(table.Bytes):
        raise Undecodable(f"its compression lists {length:,} tables in {len(table.Bytes):,} bytes")
    for number in range(length):
        yield Table(table.Bytes, table.Indirect(table.Vector(offset) + 4 * number))


def decoded(encoded: Array, ancillary: Array, target: Target) -> Array:
    """Return an output of TFLM_DECODE.

    Args:
        encoded: the compressed elements, bytes.
        ancillary: a header of 16 bytes, then the method's table, bytes.
        target: the output.

    Raises:
        Undecodable: the bytes do not describe such a tensor, or in a way that TFLM does not have.
    """
    if ancillary.size < _HEADER_BYTES:
        raise Undecodable(
            f"the ancillary tensor of {target.name} has {ancillary.size} bytes; expected {_HEADER_BYTES} or more"
        )
    kind, version, own_version, parameters, stride = (int(ancillary[place]) for place in (0, 1, 4, 5, 6))
    if (version, own_version) != (1, 1):
        raise Undecodable(f"the encoding of {target.name} has version {version}.{own_version}; expected 1.1")
    table = ancillary[_HEADER_BYTES:]
    if kind == 0:
        return looked_up(encoded, _typed(table, target.dtype), parameters & 7, target, stride)
    if kind == 1:
        return _huffman(encoded, table, parameters, target)
    if kind == 2:
        return _pruned(encoded, _typed(table, target.dtype), target)
    raise Undecodable(f"the encoding of {target.name} is {kind}; expected 0 (look-up table), 1 (Huffman) or 2 (pruned)")


def _typed(table: Array, dtype: np.dtype[Any]) -> Array:
    return table[: table.size // dtype.itemsize * dtype.itemsize].view(dtype)


def looked_up(encoded: Array, values: Array, bits: int, target: Target, stride: int | None = None) -> Array:
    """Return a tensor whose elements are indices, `bits` wide, into its channel's table; the high bits come first.

    Args:
        encoded: the indices, bytes.
        values: the tables of all channels.
        bits: of an index, 1 to 7.
        target: the tensor.
        stride: the values of a channel; None: all values in equal parts.

    Raises:
        Undecodable: an index has no value, or the bytes are too few.
    """
    stride = values.size // target.channels if stride is None else stride
    if not 1 <= bits <= _MAX_BITS or encoded.size * 8 < target.count * bits:
        raise Undecodable(f"{target.name} has {encoded.size:,} bytes for {target.count:,} indices of {bits} bits")
    places = np.unpackbits(encoded)[: target.count * bits].reshape(-1, bits) @ (1 << np.arange(bits)[::-1])
    if stride * target.channels > values.size:
        needed = f"{plural.count(target.channels, 'channel')} of {plural.count(stride, 'value')}"
        raise Undecodable(
            f"{target.name} has {needed}; expected {stride * target.channels:,} values; found {values.size:,}"
        )
    most = int(places.max(initial=-1))
    if most >= stride:
        raise Undecodable(f"{target.name} has index {most}, outside a table of {plural.count(stride, 'value')}")
    first = target.along(np.arange(target.channels) * stride)
    return np.asarray(values[places.reshape(target.shape) + first])


def _pruned(encoded: Array, values: Array, target: Target) -> Array:
    """Return a tensor with a bit for each element: its value is stored, or is the zero point."""
    if encoded.size * 8 < target.count:
        raise Undecodable(f"{target.name} has {encoded.size:,} bytes for {target.count:,} bits")
    stored = np.unpackbits(encoded)[: target.count].astype(bool)
    if np.count_nonzero(stored) > values.size:
        raise Undecodable(f"{target.name} has {np.count_nonzero(stored):,} elements, but {values.size:,} values")
    zeros = target.along(target.zeros) if target.zeros.size > 1 else target.zeros
    result = np.broadcast_to(zeros.astype(target.dtype), target.shape).reshape(-1).copy()
    result[stored] = values[: np.count_nonzero(stored)]
    return result.reshape(target.shape)


def _huffman(encoded: Array, table: Array, parameters: int, target: Target) -> Array:
    """Return a tensor of Huffman codes.

    An entry of the table, from its high bits: whether it is a symbol, 4 bits (of a symbol: how many of the bits that
    were read are its own; else: how many to read next, less 1), the symbol or the distance to the next table.
    """
    is_wide = bool(parameters & 1)
    if target.dtype not in (np.int8, np.int16) or (target.dtype == np.int16 and not is_wide):
        raise Undecodable(
            f"{target.name} is {target.dtype}; expected int8, or int16 with 32-bit entries, for Huffman codes"
        )
    shift, entries = (27, _typed(table, np.dtype("<u4"))) if is_wide else (11, _typed(table, np.dtype("<u2")))
    listed, data, position = entries.tolist(), encoded.tobytes(), 0
    symbols = np.empty(target.count, np.int64)
    for number in range(target.count):
        used, place = (parameters >> 4) + 1, 0
        while True:
            window = int.from_bytes(data[position >> 3 : (position >> 3) + 5].ljust(5, b"\0"))
            place += window >> 40 - (position & 7) - used & (1 << used) - 1
            position += used
            if place >= len(listed) or position > len(data) * 8 + 16:
                raise Undecodable(f"element {number:,} of {target.name} has an invalid Huffman code")
            entry = listed[place]
            bits = entry >> shift & 15
            if entry >> shift + 4:
                break
            used, place = bits + 1, place + (entry & (1 << shift) - 1)
        position -= max(used - bits, 0)
        symbols[number] = entry & (1 << shift) - 1
    return symbols.astype(target.dtype).reshape(target.shape)
