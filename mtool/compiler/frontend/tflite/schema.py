"""Read a .tflite file into plain dataclasses; every offset and size in it is checked before use.

Sources: the flatbuffer schema of TensorFlow Lite (version 3, file identifier TFL3), by the `tflite` package; its
SparsityParameters are TACO's format: dimensions, and the blocks that some of them are divided into, in traversal order,
each dense or as a list of indices.
"""

import functools
import inspect
import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import tflite
from flatbuffers.number_types import Int32Flags

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.base.frozen import frozen
from mtool.compiler.frontend.inference import MAX_DIMENSIONS
from mtool.compiler.frontend.model_file import FLATBUFFER
from mtool.compiler.frontend.reading import read_bytes
from mtool.compiler.frontend.tflite import compression
from mtool.compiler.ir.types import Array, low_bits_first
from mtool.compiler.operators.budget import Budget


@frozen
class Tensor:
    """A tensor: `scale` and `zero_point` are empty if it is not quantized; several scales lie along `axis`.

    Weights with a scale for each `block` elements of a row have scales of shape [rows, blocks].
    `problem` is the reason why it can't be used, or "". `open` are the dimensions whose size is not fixed. `place` is
    its offset in memory, in bytes, if the file has one.
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
    block: int = 0

    @property
    def is_quantized(self) -> bool:
        """Whether the tensor is quantized."""
        return bool(self.scale.size) and self.dtype.kind in "iu"

    @property
    def zero(self) -> int:
        """The stored value of 0."""
        return int(self.zero_point.reshape(-1)[0]) if self.is_quantized else 0

    def allows(self, shape: tuple[int, ...]) -> bool:
        """Whether the file allows this shape for the tensor."""
        return len(shape) == len(self.shape) and all(
            dim in self.open or size == other for dim, (size, other) in enumerate(zip(self.shape, shape, strict=True))
        )


@frozen
class Operator:
    """An operator: tensors by number (-1: an optional input that is not given), options by the schema's names.

    `intermediates` are tensors of which only the quantization is used, for values inside the operator.
    `custom` are a custom operator's options, in its own format.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Any]
    intermediates: tuple[int, ...] = ()
    custom: bytes = b""

    def option(self, name: str, default: Any = 0) -> Any:
        """Return an option; `default` if the file does not have it."""
        return self.options.get(name, default)


@frozen
class Model:
    """A subgraph of a file; the first one has all further ones in `others`."""

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple["Model", ...] = ()


DENSE = 0  # DimensionType of the schema; the other is SPARSE_CSR


class Damaged(Exception):
    """The file is damaged; the text is the reason."""


def dense(sparsity: Any, values: Array, shape: tuple[int, ...], budget: Budget, where: str) -> Array:
    """Return a sparse tensor with all its elements.

    Args:
        sparsity: the flatbuffer's table.
        values: the elements in the file.
        shape: the tensor's shape.
        budget: the limits of the import.
        where: the tensor, in messages.

    Raises:
        Damaged: the encoding does not describe a tensor of that shape.
        ModelError: it exceeds the budget.
    """
    rank, levels, blocked = len(shape), sparsity.DimMetadataLength(), _integers(sparsity.BlockMapAsNumpy())
    order = _integers(sparsity.TraversalOrderAsNumpy())
    fits = sorted(order[:rank]) == [*range(rank)] and sorted(order[rank:]) == [*range(rank, rank + len(blocked))]
    fits = fits and {*blocked} <= {*range(rank)} and len({*blocked}) == len(blocked)
    if not fits or rank > MAX_DIMENSIONS or levels != len(order):
        raise Damaged(f"the sparse encoding of {where} {list(shape)} has order {order[:9]} and blocks {blocked[:9]}")
    count = math.prod(shape)
    budget.afford("constants", count * values.itemsize, where)
    budget.spend("work", count + values.size * (levels + 1), where)
    described = {axis: sparsity.DimMetadata(level) for level, axis in enumerate(order)}
    sizes = dict(enumerate(shape))
    for number, axis in enumerate(blocked, rank):
        sizes[number] = described[number].DenseSize()
        if described[number].Format() != DENSE or sizes[number] < 1 or shape[axis] % sizes[number]:
            raise Damaged(f"the sparse encoding of {where} {list(shape)} has blocks of {sizes[number]:,}")
        sizes[axis] = shape[axis] // sizes[number]
    indices = _indices(described, sizes, values.size, where)
    if values.size != indices[order[-1]].size:
        raise Damaged(
            f"{where} has {plural.count(values.size, 'sparse element')}, but {indices[order[-1]].size:,} indices"
        )
    for number, axis in enumerate(blocked, rank):
        indices[axis] = indices[axis] * sizes[number] + indices[number]
    result = np.zeros(shape, values.dtype)
    result[tuple(indices[axis] for axis in range(rank))] = values
    return result


def _indices(described: Mapping[int, Any], sizes: Mapping[int, int], elements: int, where: str) -> dict[int, Array]:
    """Return, for each dimension in traversal order, the indices of all stored elements."""
    by_axis: dict[int, Array] = {}
    count = 1  # positions at the levels so far: the number of elements, or of segments of the next level
    segments = {axis: _vector(level.ArraySegmentsType(), level.ArraySegments()) for axis, level in described.items()}
    most = max(elements, *(listed.size for listed in segments.values()))
    for axis, level in described.items():
        size = sizes[axis]
        if level.Format() == DENSE:
            if level.DenseSize() != size or count * size > most:
                actual = f"{level.DenseSize():,} for a dimension of {size:,}, with {elements:,} elements"
                raise Damaged(f"the sparse encoding of {where} has {actual}")
            lengths, indices = np.full(count, size), np.tile(np.arange(size), count)
        else:
            listed, indices = segments[axis], _vector(level.ArrayIndicesType(), level.ArrayIndices())
            lengths = np.diff(listed)
            fit = listed.size == count + 1 and not listed[0] and listed[-1] == indices.size
            if not fit or (lengths < 0).any() or (lengths > size).any() or ((indices < 0) | (indices >= size)).any():
                raise Damaged(f"the sparse encoding of {where} has indices outside dimension {axis}")
        by_axis = {outer: np.repeat(data, lengths) for outer, data in by_axis.items()}
        by_axis[axis], count = indices, indices.size
    return by_axis


def _vector(kind: int, table: Any) -> Array:
    """Return a vector of indices, which has one of three types."""
    tables = {
        tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
        tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
        tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
    }
    if kind not in tables or table is None:
        return np.zeros(0, np.int64)
    view = tables[kind]()
    view.Init(table.Bytes, table.Pos)
    return np.asarray(_integers(view.ValuesAsNumpy()), np.int64)


def _integers(vector: Any) -> list[int]:
    """Return a flatbuffer vector as integers."""
    return [int(number) for number in _list(vector)]


log = logging.getLogger(__name__)
TABLE = 1000  # the cost of a tensor or an operator, in elements that NumPy reads
MAX_ELEMENTS = 2**31 - 1
_ITEM = 10  # the cost of an item of a list, in the same unit
_DTYPES: dict[int, np.dtype[Any]] = {
    getattr(tflite.TensorType, name): np.dtype(kind)
    for name, kind in {
        "FLOAT32": np.float32, "FLOAT16": np.float16, "FLOAT64": np.float64, "BFLOAT16": ml_dtypes.bfloat16,
        "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "INT4": np.int8,
        "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_,
    }.items()
}  # fmt: skip
_INT2 = 19  # the package's schema ends before it
_DTYPES[_INT2] = np.dtype(np.int8)
_BITS = {tflite.TensorType.INT4: 4, _INT2: 2}
"""The bits of an element, where a byte has several."""
_NAMED = {value: name for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
_TYPE_NAMES = {_INT2: "INT2", 20: "UINT4", **_NAMED}
_PER_BLOCK, _ALONG_SEVERAL = 2, 3  # QuantizationDetails that the package lacks
_OPERATORS = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
_OPTIONS = {value: name for name, value in vars(tflite.BuiltinOptions).items() if isinstance(value, int)}
_OPTIONS2 = {value: name for name, value in vars(tflite.BuiltinOptions2).items() if isinstance(value, int)}
_BROKEN = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError, MemoryError)
"""The exceptions of Python, NumPy and the flatbuffers package for a wrong offset or length in a file."""
VARIABLE = "a value that is kept between calls (a variable)"
"""The problem of a variable tensor."""
COMPLEX = "elements of type COMPLEX64"
"""The problem of a complex tensor, which only some operators support."""
Item = TypeVar("Item")


def read(path: Path, budget: Budget | None = None) -> Model:
    """Read a .tflite file.

    Raises:
        UsageError: the file is missing.
        ModelError: it is not a TFLite file, is truncated or damaged, or larger than the budget allows.
    """
    budget = budget or Budget()
    data = read_bytes(path, budget)
    hint = "export it again, or compare its size with the original file's"
    if data[4:8] != FLATBUFFER:
        details = ["expected the identifier TFL3 at byte 4", f"found {data[4:8]!r} in {len(data):,} bytes"]
        raise ModelError(f"{path.name} is not a TFLite model", details=details, hint=hint)
    try:
        return _Reader(data, budget).model()
    except (Damaged, compression.Undecodable) as error:
        problem = str(error)
    except _BROKEN as error:
        log.debug("%s: %s", path.name, error)
        problem = "an offset or length in it is wrong"
    raise ModelError(f"{path.name} is damaged or truncated", details=[problem, f"{len(data):,} bytes"], hint=hint)


class _Reader:
    """Walks the flatbuffer; vectors may not be longer than the file.

    Many offsets in a file may point to the same bytes, so reads count against the budget.
    """

    def __init__(self, data: bytes, budget: Budget) -> None:
        self.data, self.budget = data, budget
        self.places: dict[int, list[int]] = {}
        self.tables: dict[tuple[int, int], tuple[int, int]] = {}
        """The buffer of values and the bits of an index of tensors with a look-up table, by subgraph and number."""
        self.root = tflite.Model.GetRootAs(data, 0)
        if not 0 <= self.root._tab.Pos < len(data):
            raise Damaged("its root table is outside the file")

    def model(self) -> Model:
        version = self.root.Version()
        if version != 3:
            raise Damaged(f"its schema version is {version}; expected 3")
        if self.root.SubgraphsLength() < 1:
            raise Damaged("it has no subgraph")
        self.places, self.tables = self._allocation(), self._tables()
        kinds = [self._kind(code) for code in self._each(self.root.OperatorCodesLength(), self.root.OperatorCodes)]
        count = self._fitting(self.root.SubgraphsLength())
        first, *others = (self._subgraph(number, self.root.Subgraphs(number), kinds) for number in range(count))
        if not first.outputs:
            raise Damaged("its first subgraph has no outputs")
        return replace(first, others=tuple(others))

    def _allocation(self) -> dict[int, list[int]]:
        """Return the offsets in memory of each subgraph's tensors, if the file has them; -1: not fixed."""
        raw = self._metadata("OfflineMemoryAllocation")
        numbers = [int(number) for number in raw[: raw.size // 4 * 4].view("<i4")]
        if len(numbers) >= 3 and len(numbers) == 3 + numbers[2]:  # version, subgraphs, tensors
            return {0: numbers[3:]}
        return {}

    def _tables(self) -> dict[tuple[int, int], tuple[int, int]]:
        raw = self._metadata(compression.METADATA)
        tables = compression.tables_of(raw.tobytes()) if raw.size else ()
        return {(subgraph, tensor): (values, bits) for subgraph, tensor, values, bits in tables}

    def _metadata(self, name: str) -> Array:
        """Return the bytes of the file's metadata of a name; none if it has no such metadata."""
        for entry in self._each(self.root.MetadataLength(), self.root.Metadata):
            if _text(entry.Name()) == name:
                raw = self._buffer(name, entry.Buffer())
                self.budget.spend("work", raw.size, name)
                return raw
        return np.zeros(0, np.uint8)

    def _subgraph(self, number: int, graph: Any, kinds: list[str]) -> Model:
        self.budget.spend("work", TABLE, "a subgraph")
        encoded = {
            tensor
            for operator in self._each(graph.OperatorsLength(), graph.Operators)
            if kinds[operator.OpcodeIndex() :][:1] == [compression.DECODE]
            for tensor in _integers(operator.InputsAsNumpy())
        }
        tensors = tuple(
            self._tensor(n, tensor, self.tables.get((number, n)), is_encoded=n in encoded)
            for n, tensor in enumerate(self._each(graph.TensorsLength(), graph.Tensors))
        )
        tensors = tuple(
            _in_blocks(tensor, graph.Tensors(n).Quantization(), tensors) for n, tensor in enumerate(tensors)
        )
        read = self._numbers("an input of the model", graph.InputsAsNumpy(), len(tensors), optional=False)
        outputs = self._numbers("an output of the model", graph.OutputsAsNumpy(), len(tensors), optional=False)
        operators = tuple(
            self._operator(n, operator, kinds, tensors)
            for n, operator in enumerate(self._each(graph.OperatorsLength(), graph.Operators))
        )
        tensors, operators = self._decoded(tensors, operators)
        defined = {*read, *(output for operator in operators for output in operator.outputs)}
        tensors = tuple(tensor if n in defined else _filled(tensor) for n, tensor in enumerate(tensors))
        if number in self.places and len(self.places[number]) == len(tensors):
            pairs = zip(tensors, self.places[number], strict=True)
            tensors = tuple(tensor if place < 0 else replace(tensor, place=place) for tensor, place in pairs)
        return Model(tensors, operators, read, outputs)

    def _decoded(
        self, tensors: tuple[Tensor, ...], operators: tuple[Operator, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Operator, ...]]:
        """Return the tensors with the outputs of TFLM_DECODE as constants, and the other operators."""
        decoded = list(tensors)
        for operator in operators:
            if operator.kind != compression.DECODE:
                continue
            if len(operator.inputs) != 2 * len(operator.outputs):
                raise Damaged(f"{operator.name} has {plural.count(len(operator.inputs), 'input')}; expected pairs")
            for output, encoded, ancillary in zip(
                operator.outputs, operator.inputs[::2], operator.inputs[1::2], strict=True
            ):
                raw, table = (None if number < 0 else decoded[number].data for number in (encoded, ancillary))
                if raw is None or table is None or decoded[output].problem:
                    raise Damaged(f"an input of {operator.name} is not constant, or its output is no array")
                target = self._target(decoded[output], compression.CODE)
                data = compression.decoded(raw.reshape(-1).view(np.uint8), table.reshape(-1).view(np.uint8), target)
                decoded[output] = replace(decoded[output], data=data)
        return tuple(decoded), tuple(operator for operator in operators if operator.kind != compression.DECODE)

    def _target(self, tensor: Tensor, cost: int = 1) -> compression.Target:
        count = math.prod(tensor.shape)
        self.budget.afford("constants", count * tensor.dtype.itemsize, tensor.name)
        self.budget.spend("work", count * cost, tensor.name)
        zeros = tensor.zero_point if tensor.is_quantized else np.zeros(1, np.int64)
        return compression.Target(
            repr(tensor.name), tensor.dtype, tensor.shape, max(tensor.scale.size, 1), tensor.axis, zeros
        )

    def _each(self, length: int, item: Callable[[int], Item]) -> Iterator[Item]:
        return (item(number) for number in range(self._fitting(length)))

    def _fitting(self, length: int, item_bytes: int = 4) -> int:
        """Return the length of a vector, which may not be longer than the file."""
        if length * item_bytes > len(self.data):
            raise Damaged(f"it has a list of {length:,} entries, but only {len(self.data):,} bytes")
        return length

    def _kind(self, code: Any) -> str:
        builtin = _builtin(code)
        if builtin == tflite.BuiltinOperator.CUSTOM:
            return f"CUSTOM {_text(code.CustomCode())}"
        return str(_OPERATORS.get(builtin, f"BUILTIN {builtin}"))

    def _numbers(self, role: str, numbers: Any, count: int, *, optional: bool) -> tuple[int, ...]:
        result = tuple(_integers(numbers))
        for number in result:
            if not (-1 if optional else 0) <= number < count:
                raise Damaged(f"{role} is tensor {number}, but there are {count}")
        return result

    def _tensor(self, number: int, tensor: Any, table: tuple[int, int] | None, *, is_encoded: bool) -> Tensor:
        """Return a tensor: `table` are its buffer of values and bits of an index if it is compressed.

        TFLM_DECODE's inputs (`is_encoded`) are bytes with the quantization of what they decode to.
        """
        name = _text(tensor.Name()) or f"tensor_{number}"
        where = f"tensor {number} {name!r}"
        self.budget.spend("work", TABLE + _ITEM * self._fitting(tensor.ShapeLength()) + len(name), where)
        dtype = _DTYPES.get(tensor.Type())
        shape = tuple(_integers(tensor.ShapeAsNumpy()))
        problem = ""
        if dtype is None:
            problem = f"elements of type {_TYPE_NAMES.get(tensor.Type(), tensor.Type())}"
            dtype = np.dtype(np.uint8)
        count = 1
        for size in shape:
            count *= size
            if size < 0 or count * dtype.itemsize > MAX_ELEMENTS:
                raise Damaged(f"{where} has the invalid shape {list(shape)}")
        details = tensor.Quantization() and tensor.Quantization().DetailsType()
        if details == _ALONG_SEVERAL and not is_encoded:
            problem = "scales along several dimensions; expected one, or one per channel"
        if tensor.IsVariable():
            problem = VARIABLE
        scale, points, axis = self._quantization(where, None if is_encoded else tensor.Quantization(), shape)
        result = Tensor(name, dtype, shape, scale, points, axis, None, problem, self._open(tensor, shape))
        if problem or not (raw := self._buffer(where, tensor.Buffer())).size:
            return result
        if table is None:
            return replace(result, data=self._elements(where, tensor, dtype, shape, raw))
        values = self._buffer(f"the values of {where}", table[0])
        values = values[: values.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return replace(result, data=compression.looked_up(raw, values, table[1], self._target(result)))

    def _elements(self, where: str, tensor: Any, dtype: np.dtype[Any], shape: tuple[int, ...], raw: Array) -> Array:
        packed, sparsity, count = _BITS.get(tensor.Type(), 0), tensor.Sparsity(), math.prod(shape)
        if sparsity is not None:
            if packed or raw.size % dtype.itemsize:
                raise Damaged(f"the sparse encoding of {where} has {raw.size:,} bytes, no whole elements")
            return dense(sparsity, raw.view(dtype), shape, self.budget, where)
        expected = -(-count * packed // 8) if packed else count * dtype.itemsize
        if raw.size != expected:
            raise Damaged(f"{where} has {raw.size:,} bytes of data; expected {expected:,}")
        self.budget.spend("work", count if packed else 0, where)
        return (_unpacked(raw, count, packed) if packed else raw.view(dtype)).reshape(shape)

    def _open(self, tensor: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the dimensions that the signature leaves open."""
        self._fitting(tensor.ShapeSignatureLength())
        signature = _list(tensor.ShapeSignatureAsNumpy())
        return tuple(dim for dim, size in enumerate(signature) if size < 0 and len(signature) == len(shape))

    def _buffer(self, where: str, index: int) -> Array:
        if index >= self.root.BuffersLength():
            raise Damaged(f"{where} has buffer {index}, but there are {self.root.BuffersLength()}")
        buffer = self.root.Buffers(index)
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:  # behind the flatbuffer, in files of over 2 GB
            if start + size > len(self.data):
                raise Damaged(f"the data of {where} is outside the file")
            return np.frombuffer(self.data, np.uint8, size, start)
        return np.asarray(_list(buffer.DataAsNumpy()), np.uint8)

    def _quantization(self, where: str, quantization: Any, shape: tuple[int, ...]) -> tuple[Array, Array, int]:
        nothing = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
        if quantization is None:
            return nothing
        count = self._fitting(quantization.ScaleLength()) + self._fitting(quantization.ZeroPointLength(), 8)
        self.budget.spend("work", count, where)
        scale = np.asarray(_list(quantization.ScaleAsNumpy()), np.float32)
        points = np.asarray(_list(quantization.ZeroPointAsNumpy()), np.int64)
        axis = quantization.QuantizedDimension()
        if not scale.size:
            return nothing
        if not np.isfinite(scale).all() or (scale < 0).any():
            raise Damaged(f"{where} has a scale that is not a positive number")
        if not (scale > 0).all():
            return nothing  # converters write this for tensors that they did not quantize
        if not points.size:
            points = np.zeros(scale.size, np.int64)
        if points.size == 1:
            points = np.repeat(points, scale.size)
        if len(shape) == 1:
            axis = 0  # converters have written a bias with the axis of its weights
        along = shape[axis] if 0 <= axis < len(shape) else 0
        if points.size != scale.size or (scale.size > 1 and scale.size != along):
            raise Damaged(
                f"{where} {list(shape)} has {plural.count(scale.size, 'scale')}, "
                f"{plural.count(points.size, 'zero point')}"
            )
        return scale, points, axis

    def _operator(self, number: int, operator: Any, kinds: list[str], tensors: tuple[Tensor, ...]) -> Operator:
        code = operator.OpcodeIndex()
        if code >= len(kinds):
            raise Damaged(f"operator {number} has code {code}, but there are {len(kinds)}")
        title = f"of operator {number} ({kinds[code]})"
        lengths = operator.InputsLength(), operator.OutputsLength(), operator.IntermediatesLength()
        self.budget.spend("work", TABLE + _ITEM * sum(map(self._fitting, lengths)), title.removeprefix("of "))
        inputs, outputs, between = (
            self._numbers(f"{role} {title}", vector, len(tensors), optional=role != "an output")
            for role, vector in (
                ("an input", operator.InputsAsNumpy()), ("an output", operator.OutputsAsNumpy()),
                ("an intermediate", operator.IntermediatesAsNumpy()),
            )
        )  # fmt: skip
        options: dict[str, Any] = {}
        for names, options_kind, table in (
            (_OPTIONS, operator.BuiltinOptionsType(), operator.BuiltinOptions()),
            (_OPTIONS2, operator.BuiltinOptions2Type(), operator.BuiltinOptions2()),
        ):
            kind = getattr(tflite, names.get(options_kind, ""), None) if options_kind else None
            if kind is not None and table is not None:
                view = kind()
                view.Init(table.Bytes, table.Pos)
                options |= {name: getattr(view, name)() for name in _field_names(kind)}
                if kind is tflite.BucketizeOptions:
                    self._fitting(view.BoundariesLength())
                    options["Boundaries"] = tuple(map(float, _list(view.BoundariesAsNumpy())))
        for name, value in options.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise Damaged(f"option {name} {title} is {value}")
        custom = np.asarray(_list(operator.CustomOptionsAsNumpy()), np.uint8)
        self.budget.spend("work", custom.size, title.removeprefix("of "))
        named = outputs or inputs[:1]
        label = tensors[named[0]].name.split(";")[0] if named else ""  # a fused tensor has the names of all its parts
        name = f"{label} ({kinds[code]} {number})".lstrip()
        return Operator(kinds[code], name, inputs, outputs, options, between, custom.tobytes())


def _builtin(code: Any) -> int:
    """Return an operator's number: the larger of the two in a file, as in LiteRT (GetBuiltinCode).

    The `tflite` package uses the old one, of a byte, wherever the new one would fit in it.
    """
    position = code._tab.Offset(10)
    (number,) = struct.unpack_from("<i", code._tab.Bytes, position + code._tab.Pos) if position else (0,)
    return max(int(number), int(code.DeprecatedBuiltinCode()))


@functools.cache
def _field_names(table: Any) -> tuple[str, ...]:
    """Return the names of a table's scalar fields."""
    return tuple(
        name
        for name, method in inspect.getmembers(table, inspect.isfunction)
        if name != "Init"
        and not name.startswith(("GetRootAs", "_"))
        and not name.endswith(("AsNumpy", "Length", "IsNone", "BufferHasIdentifier"))
        and len(inspect.signature(method).parameters) == 1
    )


def _list(vector: Any) -> Any:
    """Return a flatbuffer vector; a missing one reads as the number 0."""
    return [] if isinstance(vector, int) else vector


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def _in_blocks(tensor: Tensor, quantization: Any, tensors: Sequence[Tensor]) -> Tensor:
    """Return a tensor with the scales of its blocks, which are another tensor, if it has blocks."""
    if quantization is None or quantization.DetailsType() != _PER_BLOCK or tensor.problem:
        return tensor
    table = quantization.Details()
    scales, zeros, block = (compression.field(table, slot, Int32Flags, 0) for slot in (4, 6, 8))
    values = tensors[scales].data if 0 <= scales < len(tensors) else None
    if tensor.data is None or values is None or zeros > 0 or len(tensor.shape) != 2 or block < 1:
        return replace(tensor, problem="scales per block that are not constant, or with zero points")
    if values.dtype.kind != "f" or values.size * block != tensor.data.size or tensor.shape[1] % block:
        raise Damaged(f"{tensor.name!r} {list(tensor.shape)} has {values.size:,} scales for blocks of {block}")
    scale = values.astype(np.float32).reshape(tensor.shape[0], -1)
    return replace(tensor, scale=scale, zero_point=np.zeros(scale.shape, np.int64), axis=1, block=block)


def _filled(tensor: Tensor) -> Tensor:
    """Return a tensor that no operator writes; without elements it is a constant, although it has no buffer."""
    if tensor.data is not None or tensor.problem or 0 not in tensor.shape:
        return tensor
    return replace(tensor, data=np.empty(tensor.shape, tensor.dtype))


def _unpacked(raw: Array, count: int, bits: int) -> Array:
    """Return signed integers of 2 or 4 bits as int8."""
    sign = np.int8(1 << (bits - 1))
    return (low_bits_first(raw, bits)[:count].astype(np.int8) ^ sign) - sign


def litert_can_read(path: Path) -> str | bytes:
    """Return a model for LiteRT: the path of its file, or corrected bytes that LiteRT can read."""
    data = bytearray(path.read_bytes())
    offsets = _axes_outside(bytes(data))
    for offset in offsets:
        struct.pack_into("<i", data, offset, 0)
    return bytes(data) if offsets else str(path.absolute())


def _axes_outside(data: bytes) -> list[int]:
    """Return the offsets in a file of quantization axes that a vector does not have."""
    model, offsets = tflite.Model.GetRootAs(data, 0), []
    graphs = [model.Subgraphs(number) for number in range(model.SubgraphsLength())]
    for tensor in (graph.Tensors(number) for graph in graphs for number in range(graph.TensorsLength())):
        quantization = tensor.Quantization()
        if quantization is not None and tensor.ShapeLength() == 1 and quantization.QuantizedDimension():
            table = quantization._tab
            offsets.append(table.Pos + table.Offset(_SLOT))
    return offsets


_SLOT = 16  # the slot of QuantizationParameters.quantized_dimension in its table
