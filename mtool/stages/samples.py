"""Inputs and outputs of a model as samples: read from .npz and .npy files, or drawn from a seed.

A sample is a dictionary from tensor name to an array of the model's own shape and type.
"""

import itertools
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from mtool.base import plural, spelling
from mtool.base.errors import UsageError, of_os_error
from mtool.base.tensors import Array, Sample
from mtool.device.session.tensors import array_of, largest, required_inputs, shown, sizes_of, smallest, tensor_at
from mtool.manifest import Tensor
from mtool.stages import formatting
from mtool.stages.arrays import StoredArray, read, stored

log = logging.getLogger(__name__)
_LARGE = 1000.0
_NUMBERED = re.compile(r"([xy])(\d{1,9})")  # an array of a golden file

__all__ = ["Array", "Sample", "golden_of", "inputs_of", "read", "seeded", "varied"]


def inputs_of(path: Path, tensors: Sequence[Tensor], *, quantizes: bool = False) -> list[Sample]:
    """Read one or more samples of the model's inputs.

    Arrays are named after the inputs, or "x0", "x1"… in the model's order, or "x" if there is one input. Each has the
    input's shape, or a leading axis of samples before it; a batch of 1 may be left out. `quantizes`: floats for an
    integer input with a scale are quantized.

    Raises:
        UsageError: an input is missing, or its shape or type differs from the model's.
    """
    arrays = stored(path)
    columns = {}
    for index, tensor in enumerate(required_inputs(tensors)):
        names = [tensor.name, tensor.c_name, f"x{index}", *(["x"] if len(required_inputs(tensors)) == 1 else [])]
        array = _pick(arrays, names, path)
        is_real = (
            quantizes and array.dtype.kind == "f" and np.dtype(tensor.dtype).kind in "iu" and tensor.scale is not None
        )
        columns[tensor.name] = [of_real(sample, tensor) for sample in _split(array, tensor, path, is_real=is_real)]
    return _rows(columns, path)


def of_real(values: Array, tensor: Tensor) -> Array:
    """Return real values as a tensor's type: integers with a scale are quantized as by QuantizeLinear, others rounded.

    Values that have the tensor's type already are not changed.

    Raises:
        UsageError: a value to be quantized or rounded is not finite.
    """
    dtype = np.dtype(tensor.dtype)
    if dtype.kind not in "iu" or values.dtype.kind != "f":
        return values.astype(dtype, copy=False)
    if not np.isfinite(values).all():
        raise UsageError(f"the data for {tensor.name} have values that are not finite")
    limits = np.iinfo(dtype)
    if tensor.scale is not None:
        zero = (tensor.zero_point or (0,))[0]
        values = np.rint(values.astype(np.float32) / np.float32(tensor.scale[0])) + zero
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def real(values: Array, tensor: Tensor) -> Array:
    """Return a tensor's values as real numbers: integers are dequantized, if the tensor has one scale."""
    if values.dtype.kind not in "iu" or tensor.scale is None or len(tensor.scale) != 1:
        return values.astype(np.float64)
    return (values.astype(np.float64) - (tensor.zero_point or (0,))[0]) * tensor.scale[0]


def golden_of(
    path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor], suffix: str = "", *, floats: bool = False
) -> tuple[list[Sample], list[Sample]]:
    """Read a golden file: inputs "x0".. and outputs "y0".., each one sample, or with a leading axis of samples.

    For an integer output, or any with `floats`, the array with `suffix` in its name is used, if there is one. Inputs
    and outputs that the model does not have are warned of.

    Raises:
        UsageError: an array is missing, or its shape or type differs from the model's.
    """
    arrays = stored(path)
    columns = {}
    for letter, tensors in (("x", required_inputs(inputs)), ("y", outputs)):
        for index, tensor in enumerate(tensors):
            key = f"{letter}{index}"
            is_exact = floats or not tensor.dtype.startswith("float")
            special = letter == "y" and f"{key}{suffix}" in arrays and is_exact
            array = _pick(arrays, [f"{key}{suffix}" if special else key], path)
            columns[key] = _split(array, tensor, path)
    used = {"x": len(required_inputs(inputs)), "y": len(outputs)}
    extra = [name for name in arrays if (match := _NUMBERED.fullmatch(name)) and int(match[2]) >= used[match[1]]]
    if extra:
        has = [plural.count(used[letter], thing) for letter, thing in (("x", "input"), ("y", "output"))]
        log.warning("%s has unused arrays: %s; the model has %s and %s", path, ", ".join(extra), *has)
    rows = _rows(columns, path)
    return (
        [{tensor.name: row[f"x{index}"] for index, tensor in enumerate(required_inputs(inputs))} for row in rows],
        [{tensor.name: row[f"y{index}"] for index, tensor in enumerate(outputs)} for row in rows],
    )


def seeded(tensors: Sequence[Tensor], *, count: int, seed: int) -> list[Sample]:
    """Return random samples: quantized inputs over their whole range, floats from the standard normal distribution.

    The first sample has the largest run-time sizes, the second the smallest, each further one sizes between them.
    Integers that may be indices are less than all sizes.
    """
    random = np.random.default_rng(seed)
    drawn, draws = required_inputs(tensors), itertools.islice(_sizes(tensors, seed), count)
    return [
        {tensor.name: _draw(tensor_at(tensor, sizes), random, min([2, *sizes.values()])) for tensor in drawn}
        for sizes in draws
    ]


def varied(tensors: Sequence[Tensor], *, count: int) -> list[Sample]:
    """Return inputs that differ as much as they can: all zeros, all least, all largest values, then random ones.

    Integers that may be indices are random in all of them, and floats without a scale are between -1000 and 1000.
    """
    samples = seeded(tensors, count=count, seed=1)
    drawn = {tensor.name: tensor for tensor in required_inputs(tensors)}
    for number, sample in enumerate(samples[:3]):
        for name, array in sample.items():
            limits = _limits(drawn[name])
            if limits is not None:
                array[...] = (np.clip(0, *limits), *limits)[number]
    return samples


def _limits(tensor: Tensor) -> tuple[float, float] | None:
    """Return the least and the largest value of a tensor; None: it may be an index."""
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f" and tensor.scale is None:
        return -_LARGE, _LARGE
    if dtype.kind == "f" and tensor.scale is not None:
        zero_point = tensor.zero_point[0] if tensor.zero_point else 0
        low = 0 if zero_point > 127 else -128
        return (low - zero_point) * tensor.scale[0], (low + 255 - zero_point) * tensor.scale[0]
    if dtype.kind in "iu" and (dtype.itemsize == 1 or tensor.scale is not None):
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return None


def by_size(tensors: Sequence[Tensor], samples: Sequence[Sample]) -> list[tuple[dict[str, int], list[Sample]]]:
    """Group samples by their run-time sizes; the sizes are named as the model's dimensions."""
    dimensions = {tensor.range.symbol: tensor.range.dimension for tensor in tensors if tensor.range is not None}
    groups: dict[tuple[tuple[str, int], ...], list[Sample]] = {}
    for sample in samples:
        sizes = sizes_of(tensors, sample)
        groups.setdefault(tuple((name, sizes[symbol]) for symbol, name in dimensions.items()), []).append(sample)
    return [(dict(sizes), some) for sizes, some in groups.items()]


def _sizes(tensors: Sequence[Tensor], seed: int) -> Iterator[dict[str, int]]:
    most, least, random = largest(tensors), smallest(tensors), np.random.default_rng(seed)
    yield most
    yield least
    while True:
        yield {symbol: int(random.integers(least[symbol], most[symbol], endpoint=True)) for symbol in most}


def _draw(tensor: Tensor, random: np.random.Generator, below: int = 2) -> Array:
    """Return a random tensor; integers that may be indices are less than `below`."""
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "b":
        return random.integers(0, 2, tensor.shape).astype(bool)
    if dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 1):  # types that NumPy lacks
        if "float" in tensor.dtype:
            return random.standard_normal(tensor.shape).astype(dtype)
        info: Any = ml_dtypes.iinfo
        limits = info(dtype)
        return random.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(dtype)
    if dtype.kind == "f":
        if tensor.scale is not None:  # it goes straight into a QuantizeLinear: cover its 8 bits
            zero_point = tensor.zero_point[0] if tensor.zero_point else 0
            low = 0 if zero_point > 127 else -128
            steps = random.uniform(low - zero_point, low + 255 - zero_point, tensor.shape)
            return (steps * tensor.scale[0]).astype(dtype)
        return random.standard_normal(tensor.shape).astype(dtype)
    if dtype.itemsize == 1 or tensor.scale is not None:
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, tensor.shape, dtype=dtype, endpoint=True)
    return random.integers(0, below, tensor.shape).astype(dtype)  # an index or a count: small and never negative


def _pick(arrays: Mapping[str, StoredArray], names: Sequence[str], path: Path) -> StoredArray:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise UsageError(
        f"{path} has no array {names[0]!r}",
        details=[f"it has: {', '.join(arrays) or 'nothing'}"],
        hint=f"name the array one of: {', '.join(dict.fromkeys(names))}",
    )


def _split(array: StoredArray, tensor: Tensor, path: Path, *, is_real: bool = False) -> list[Array]:
    """Return the samples in an array, which is loaded only if its shape and, unless `is_real`, its type are right."""
    if array.dtype != np.dtype(tensor.dtype) and not is_real:
        raise UsageError(
            f"{tensor.name} in {path} has the wrong type",
            details=[f"expected  {formatting.tensor(tensor)}", f"found     {shown(array.dtype, array.shape)}"],
            hint=f"convert it: x.astype('{tensor.dtype}')",
        )
    if tensor.dims is not None:
        tensor = _as_given(tensor, array.shape)
    without_batch = tensor.shape[1:] if tensor.shape[:1] == (1,) else tensor.shape
    if array.shape in (tensor.shape, without_batch):
        return [array.load().reshape(tensor.shape)]
    if array.shape and array.shape[1:] in (tensor.shape, without_batch):
        return [sample.reshape(tensor.shape) for sample in array.load()]
    raise UsageError(
        f"{tensor.name} in {path} has the wrong shape",
        details=[
            f"expected  {formatting.tensor(tensor)}, or with an axis of samples before it",
            f"found     {shown(array.dtype, array.shape)}",
        ],
        hint=f"each sample has the new rows of a window of {tensor.window.rows} (--slide)" if tensor.window else "",
    )


def whole_windows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a model's inputs as it has them without `--slide`."""
    result = []
    for tensor in tensors:
        shape = [*tensor.shape]
        if tensor.window is not None:
            shape[tensor.window.axis] = tensor.window.rows
        size = tensor.bytes // math.prod(tensor.shape) * math.prod(shape)
        result.append(tensor.model_copy(update={"shape": tuple(shape), "bytes": size, "window": None}))
    return result


def _as_given(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor with run-time sizes, with the sizes of an array's samples."""
    dims = tensor.dims or ()
    axes = 1 if len(shape) > len(dims) else 0
    missing = len(dims) - len(shape) + axes  # a batch of 1 that is left out
    sizes = tuple(
        size if not text.isdigit() else int(text)
        for text, size in zip(dims, (*[1] * missing, *shape[axes:]), strict=False)
    )
    return tensor.model_copy(update={"shape": sizes}) if len(sizes) == len(dims) else tensor


def _rows(columns: Mapping[str, list[Array]], path: Path) -> list[Sample]:
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise UsageError(
            f"{path} needs the same number of samples for each tensor, at least 1",
            details=[f"{name}: {count}" for name, count in counts.items()],
        )
    length = next(iter(counts.values()), 0)
    return [{name: column[row] for name, column in columns.items()} for row in range(length)]


PATTERNS = ("zeros", "ones", "random")
_ARRAYS = (".npy", ".npz")


def check_fill(fill: str) -> None:
    """Check that `fill` is a pattern or a file.

    Raises:
        UsageError: it is neither.
    """
    if fill in PATTERNS:
        return
    path = Path(fill)
    if not path.is_file():
        raise UsageError(
            f"--fill {fill}: expected a pattern or an existing file",
            details=[f"patterns: {', '.join(PATTERNS)}", "a file: .npz, .npy, or the bytes of all inputs in order"],
            hint=spelling.did_you_mean(fill, PATTERNS, otherwise="for instance: --fill zeros"),
        )
    if path.suffix in _ARRAYS:
        stored(path)


def filled(tensors: Sequence[Tensor], fill: str, *, seed: int = 0) -> list[Sample]:
    """Return the samples that `fill` describes: one of a pattern, or those in a file.

    Run-time sizes are the largest. A file that is neither .npz nor .npy holds the bytes of all inputs, one after
    another in the model's order, little-endian.

    Raises:
        UsageError: there is no such file, or its arrays or its number of bytes differ from the inputs.
    """
    if fill == "random":
        return seeded(tensors, count=1, seed=seed)
    inputs = required_inputs(tensors)
    if fill in PATTERNS:
        number = PATTERNS.index(fill)
        return [{tensor.name: np.full(tensor.shape, number).astype(np.dtype(tensor.dtype)) for tensor in inputs}]
    path = Path(fill)
    if path.suffix in _ARRAYS:
        return inputs_of(path, tensors)
    try:
        data = path.read_bytes()
    except OSError as failed:
        raise of_os_error(failed) from None
    sizes = [math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize for tensor in inputs]
    if len(data) != sum(sizes):
        raise UsageError(
            f"--fill {fill}: the file has {len(data):,} B, the inputs need {sum(sizes):,} B",
            details=[f"{tensor.name}: {shown(tensor.dtype, tensor.shape)}" for tensor in inputs],
        )
    ends = np.cumsum(sizes)
    places = zip(inputs, sizes, ends, strict=True)
    return [{tensor.name: array_of(tensor, data[end - size : end]) for tensor, size, end in places}]


# Outputs whose size depends on data or on run-time sizes: on the device a tensor of the largest size, and a count.
#
# If it depends on data, a session returns the whole tensor; if it depends on run-time sizes, the part that is used.


def padded(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a reference's outputs as a device returns them: padded with zeros to the largest size, with the counts.

    Elements beyond the largest size are cut off, as on the device.
    """
    result = dict(sample)
    for tensor in (tensor for tensor in tensors if tensor.count is not None):
        axis = _axis(tensor)
        data = sample[tensor.name]
        if tensor.dims is not None:
            result |= _with_run_time_sizes(tensor, data)
            continue
        used = data.take(np.arange(min(data.shape[axis], tensor.shape[axis])), axis)
        missing = [(0, 0)] * data.ndim
        missing[axis] = (0, tensor.shape[axis] - used.shape[axis])
        result[tensor.name] = np.pad(used, missing)
        assert tensor.count is not None
        result[tensor.count] = np.asarray(used.shape[axis], np.int32)
    return result


def cut(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs as in ONNX: cut to their counts, and without the counts."""
    counts = {tensor.count for tensor in tensors}
    result = {}
    for tensor in (tensor for tensor in tensors if tensor.name not in counts):
        data = sample[tensor.name]
        if tensor.count is not None and tensor.dims is None:
            data = data.take(np.arange(int(sample[tensor.count])), _axis(tensor))
        result[tensor.name] = data
    return result


def masked(tensors: Sequence[Tensor], sample: Mapping[str, Array]) -> Sample:
    """Return a device's outputs with zeros beyond the count."""
    return padded(tensors, {**sample, **cut(tensors, sample)})


def _with_run_time_sizes(tensor: Tensor, data: Array) -> Sample:
    """Return an output with run-time sizes, padded to the largest, and its count."""
    assert tensor.count is not None
    missing = [(0, most - size) for size, most in zip(data.shape, tensor.shape, strict=True)]
    return {tensor.name: np.pad(data, missing), tensor.count: np.asarray(data.shape[_axis(tensor)], np.int32)}


def _axis(tensor: Tensor) -> int:
    assert tensor.count_axis is not None
    return tensor.count_axis
