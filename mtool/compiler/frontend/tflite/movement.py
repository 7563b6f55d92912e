"""Operators that move, pick, place or repeat elements: on the stored integers, where the quantization is the same."""

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import tflite

from mtool.base import plural
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.interpolation import away
from mtool.compiler.operators.indexing import GATHER_ND
from mtool.compiler.operators.ordering import TOP_K
from mtool.compiler.operators.problems import Unsupported


def moved(t: Translation, build: Callable[[str], str], index: int = 0) -> None:
    """Set the output to `build` of the stored input `index`, whatever the quantizations are, as in LiteRT."""
    if t.tensor(index).dtype == t.result().dtype:
        t.put(build(t.stored(index)))
    else:
        t.store(build(t.real(index)))


def view(t: Translation) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the file has the output's shape; a shape operand has to match it."""
    shape = _requested_shape(t) if t.result().open else t.result().shape
    if not _VIEWS[t.op.kind](t, shape):
        raise Unsupported(f"its input {list(t.shape(0))} can't be reshaped to its output {list(shape)}")
    moved(t, lambda x: t("Reshape", x, shape))


def _requested_shape(t: Translation) -> tuple[int, ...]:
    """Return the shape of an output with open sizes.

    Raises:
        Unsupported: the sizes can't be determined.
    """
    shape, declared, count = t.shape(0), t.result(), math.prod(t.shape(0))
    if t.op.kind == "EXPAND_DIMS" and t.tensor(1).data is not None:
        index = t.numbers(1, "the axis")[0] % (len(shape) + 1)
        return *shape[:index], 1, *shape[index:]
    if t.op.kind == "RESHAPE" and t.has(1) and t.tensor(1).data is not None:
        sizes = t.numbers(1, "the shape")
    else:
        sizes = [-1 if index in declared.open else size for index, size in enumerate(declared.shape)]
    rest = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or min(sizes, default=0) < -1 or (-1 in sizes and (not rest or count % rest)):
        raise Unsupported(f"its output's shape {sizes} can't be determined from its input {list(shape)}")
    return tuple(count // rest if size == -1 else size for size in sizes)


def _is_reshaped(t: Translation, result: tuple[int, ...]) -> bool:
    """Whether a shape matches a constant shape operand, in which -1 stands for the remaining size."""
    if not t.has(1) or t.tensor(1).data is None:
        return True
    shape = t.numbers(1, "the shape")
    return len(shape) == len(result) and all(dim in (-1, size) for dim, size in zip(shape, result, strict=True))


def _is_squeezed(t: Translation, result: tuple[int, ...]) -> bool:
    before, after = ([size for size in shape if size != 1] for shape in (t.shape(0), result))
    return before == after and len(result) <= len(t.shape(0))


def _is_expanded(t: Translation, result: tuple[int, ...]) -> bool:
    shape = t.shape(0)
    if t.tensor(1).data is None:
        return True
    (axis,), rank = t.numbers(1, "the axis"), len(shape)
    if not -rank - 1 <= axis <= rank:
        raise Unsupported(f"its axis is {axis}; its input has {rank} dimensions")
    index = axis % (rank + 1)
    return result == (*shape[:index], 1, *shape[index:])


_VIEWS = {"RESHAPE": _is_reshaped, "SQUEEZE": _is_squeezed, "EXPAND_DIMS": _is_expanded}


def move(kind: str, role: str, first: int = 0) -> Translate:
    """One ONNX operator on the stored input `first`, with a constant list as second operand, input `1 - first`."""

    def translate(t: Translation) -> None:
        numbers = t.numbers(1 - first, role)
        moved(t, lambda x: t(kind, x, numbers), first)

    return translate


def transpose(t: Translation) -> None:
    """Append TRANSPOSE."""
    perm = t.numbers(1, "the permutation")
    moved(t, lambda x: t("Transpose", x, perm=perm))


def _pads(t: Translation) -> list[int]:
    pads = np.reshape(t.data(1, "the pads"), (-1, 2))
    if len(pads) != len(t.shape(0)):
        raise Unsupported(
            f"it has {plural.count(len(pads), 'pair')} of pads; "
            f"its input has {plural.count(len(t.shape(0)), 'dimension')}"
        )
    if (pads < 0).any():
        raise Unsupported(f"its pads are {pads.tolist()}")
    return [int(number) for number in pads.T.reshape(-1)]


def pad(t: Translation) -> None:
    """PAD with the zero point, PADV2 with a given value."""
    pads, dtype = _pads(t), t.tensor(0).dtype
    t.check_grid(0)
    value = t.data(2, "the value").reshape(-1)[0] if t.has(2) else t.tensor(0).zero
    t.put(t("Pad", t.stored(0), pads, np.asarray(value, dtype)))


def mirror_pad(t: Translation) -> None:
    """MIRROR_PAD: mode 0 (reflect) excludes the edge, mode 1 (symmetric) includes it."""
    pads, shape = _pads(t), t.shape(0)
    edge = int(t.op.option("Mode") == 0)
    rank = len(shape)
    if any(max(pads[n], pads[rank + n]) > shape[n] - edge for n in range(rank)):
        raise Unsupported(f"its pads {pads} do not fit its input {list(shape)}")

    def build(x: str) -> str:
        for axis, size in enumerate(shape):
            before, behind = pads[axis], pads[rank + axis]
            if before or behind:
                t.afford(8 * (size + before + behind))
                sources = np.pad(np.arange(size), (before, behind), "reflect" if edge else "symmetric")
                x = t("Gather", x, sources, axis=axis)
        return x if any(pads) else t("Identity", x)

    moved(t, build)


def concatenation(t: Translation) -> None:
    """Append CONCATENATION."""
    if t.activation:
        raise Unsupported("it has a fused activation, which LiteRT's kernels refuse or ignore")
    t.move(lambda *parts: t("Concat", *parts, axis=t.op.option("Axis")), *range(len(t.op.inputs)))


def pack(t: Translation) -> None:
    """Append PACK."""
    axis = t.op.option("Axis") % (len(t.shape(0)) + 1)

    def build(*parts: str) -> str:
        return t("Concat", *[t("Unsqueeze", part, [axis]) for part in parts], axis=axis)

    t.move(build, *range(len(t.op.inputs)))


def _split(t: Translation, x: int, axis: int, sizes: list[int]) -> None:
    """Append the slices along an axis, one per output."""
    shape = t.shape(x)
    if not -len(shape) <= axis < len(shape) or len(sizes) != len(t.op.outputs):
        raise Unsupported(f"its axis {axis} and outputs ({len(t.op.outputs)}) do not fit its input {list(shape)}")
    size = shape[axis]
    if -1 in sizes:
        sizes = [size - (sum(sizes) + 1) if number == -1 else number for number in sizes]
    if sum(sizes) != size or min(sizes) < 0:
        raise Unsupported(f"its parts {sizes} do not add up to {size}")
    t.check_grid(x)
    for index, end in enumerate(itertools.accumulate(sizes)):
        t.put(t("Slice", t.stored(x), [end - sizes[index]], [end], [axis % len(shape)]), index)


def split_equal(t: Translation) -> None:
    """Append SPLIT."""
    (axis,), count = t.numbers(0, "the axis"), len(t.op.outputs)
    shape = t.shape(1)
    if not -len(shape) <= axis < len(shape) or shape[axis] % count:
        raise Unsupported(f"its axis {axis} and outputs ({count}) do not fit its input {list(shape)}")
    _split(t, 1, axis, [shape[axis] // count] * count)


def split_sizes(t: Translation) -> None:
    """Append SPLIT_V."""
    (axis,) = t.numbers(2, "the axis")
    _split(t, 0, axis, t.numbers(1, "the sizes"))


def unpack(t: Translation) -> None:
    """Append UNPACK."""
    shape, axis = t.shape(0), t.op.option("Axis")
    if not -len(shape) <= axis < len(shape) or shape[axis] != len(t.op.outputs) or not t.same_grid(0):
        raise Unsupported(f"its axis {axis} and outputs ({len(t.op.outputs)}) do not fit its input {list(shape)}")
    for index in range(len(t.op.outputs)):
        t.put(t("Gather", t.stored(0), np.int64(index), axis=axis), index)


def cut(t: Translation) -> None:
    """Append SLICE."""
    shape, begin, size = t.shape(0), t.numbers(1, "the begin"), t.numbers(2, "the size")
    if not len(begin) == len(size) == len(shape):
        raise Unsupported(f"its begin {begin} and size {size} do not fit its input {list(shape)}")
    ends = [n if length == -1 else start + length for n, start, length in zip(shape, begin, size, strict=True)]
    if any(not 0 <= start <= end <= n for start, end, n in zip(begin, ends, shape, strict=True)):
        raise Unsupported(f"its begin {begin} and size {size} do not fit its input {list(shape)}")
    moved(t, lambda x: t("Slice", x, begin, ends))


def strided_slice(t: Translation) -> None:
    """STRIDED_SLICE, with masks: bit n of each belongs to entry n of `begin`. With `offset`, ends count from begins."""
    shape = t.shape(0)
    begin, end, steps = (t.numbers(n, role) for n, role in ((1, "the begin"), (2, "the end"), (3, "the strides")))
    masks = {name: t.op.option(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis", "NewAxis", "Ellipsis")}
    refusal = f"its begin {begin}, end {end} and strides {steps} do not fit its input {list(shape)}"
    entries = range(len(begin))
    new_axes = {n for n in entries if masks["NewAxis"] >> n & 1 and not masks["Ellipsis"] >> n & 1}
    if not len(begin) == len(end) == len(steps) or 0 in steps or masks["Ellipsis"].bit_count() > 1:
        raise Unsupported(refusal)
    rest = len(shape) - (len(begin) - len(new_axes) - (masks["Ellipsis"].bit_count()))
    if rest < 0:
        raise Unsupported(refusal)
    parts: list[tuple[int, int, int, int]] = []  # first, last, axis, stride
    gone, added = [], []
    axis, out_axis, far = 0, 0, 2**31 - 1  # axes of the input and of the output
    for n, (first, last, step) in enumerate(zip(begin, end, steps, strict=True)):
        if masks["Ellipsis"] >> n & 1:
            axis, out_axis = axis + rest, out_axis + rest
            continue
        if n in new_axes:
            added.append(out_axis)
            out_axis += 1
            continue
        if masks["ShrinkAxis"] >> n & 1:
            if masks["Begin"] >> n & 1:
                first = 0 if step > 0 else shape[axis] - 1
            first += shape[axis] if first < 0 else 0
            if not 0 <= first < shape[axis]:
                raise Unsupported(f"its begin {begin} is out of range for its input {list(shape)}")
            last, step = first + 1, 1
            gone.append(axis)
        else:
            first = (0 if step > 0 else far) if masks["Begin"] >> n & 1 else first
            if t.op.option("Offset"):
                last += min(first, shape[axis] - 1) + (shape[axis] if first < 0 else 0)
                last = last if last >= 0 else -far  # an index that does not count from the end
            last = (far if step > 0 else -far) if masks["End"] >> n & 1 else last
            out_axis += 1
        parts.append((first, last, axis, step))
        axis += 1

    def build(x: str) -> str:
        x = t("Slice", x, *zip(*parts, strict=True)) if parts else t("Identity", x)
        x = t("Squeeze", x, gone) if gone else x
        return t("Unsqueeze", x, added) if added else x

    moved(t, build)


def gather_nd(t: Translation) -> None:
    """Append GATHER_ND."""
    indices = t.cast(t.stored(1), np.int64)
    moved(t, lambda x: t(GATHER_ND, x, indices))


def reverse(t: Translation) -> None:
    """Append REVERSE_V2."""
    axes = t.numbers(1, "the axes")
    ends = [[number] * len(axes) for number in (-1, -(2**31))]
    moved(t, lambda x: t("Slice", x, *ends, axes, [-1] * len(axes)))


def shape_of(t: Translation) -> None:
    """Append SHAPE."""
    dtype = {tflite.TensorType.INT32: np.int32, tflite.TensorType.INT64: np.int64}.get(t.op.option("OutType"))
    if dtype is None:
        raise Unsupported(f"its out_type is {t.op.option('OutType')}; expected int32 or int64")
    t.fix(t.op.outputs[0], np.asarray(t.shape(0), dtype))


def broadcast_args(t: Translation) -> None:
    """Append BROADCAST_ARGS."""
    shapes = (tuple(t.numbers(index, "a shape")) for index in (0, 1))
    t.fix(t.op.outputs[0], np.asarray(np.broadcast_shapes(*shapes), t.result().dtype))


def zeros_like(t: Translation) -> None:
    """Append ZEROS_LIKE."""
    x = t.tensor(0)
    t.afford(x.dtype.itemsize * math.prod(x.shape))
    t.fix(t.op.outputs[0], np.zeros(x.shape, x.dtype))


def rank_of(t: Translation) -> None:
    """Append RANK."""
    t.fix(t.op.outputs[0], np.asarray(len(t.shape(0)), np.int32))


def exact_concatenation(t: Translation) -> None:
    """CONCATENATION: uint8 inputs are converted by a table each; others are copied."""
    operands = range(len(t.op.inputs))
    if t.same_grid(*operands):
        concatenation(t)
        return
    if any(tensor.dtype != np.uint8 for tensor in (t.result(), *(t.tensor(index) for index in operands))):
        raise Unsupported("its inputs and its output are quantized differently, which LiteRT supports only for uint8")
    t.put(t("Concat", *[_on_grid_of(t, index, t.result()) for index in operands], axis=t.op.option("Axis")))


def _on_grid_of(t: Translation, index: int, out: Tensor) -> str:
    """Return an input with the output's quantization, by float32 arithmetic."""
    tensor = t.tensor(index)
    if tensor.zero == out.zero and tensor.scale[0] == out.scale[0]:
        return t.stored(index)
    scale = tensor.scale[0] * (np.float32(1) / out.scale[0])
    steps = np.arange(256).astype(np.float32) * scale + np.float32(-tensor.zero) * scale
    results = np.clip(away(steps.astype(np.float64)).astype(np.int64) + out.zero, 0, 255)
    return t("Table", t.stored(index), t.constant("table", results, np.uint8), to=out.dtype)


def replaced_row(t: Translation) -> None:
    """ROW: the tensor, the number of the row, the row with a leading dimension of one."""
    shape, row = t.shape(0), t.shape(2)
    if row != (1, *shape[1:]):
        raise Unsupported(f"it can't replace a row of {list(shape)} by {list(row)}")
    number = t("Reshape", t.cast(t.stored(1), np.int64), [1, 1])
    t.move(lambda whole, part: t("ScatterND", whole, number, part), 0, 2)


def topk(t: Translation) -> None:
    """TOPK_V2: the largest elements along the last axis, and their indices; the first of equal ones."""
    (k,), size = t.numbers(1, "k"), (t.shape(0) or (0,))[-1]
    if not 0 < k <= size or t.tensor(0).dtype != t.result().dtype:
        raise Unsupported(f"its k is {k}; expected at most {size}")
    values, indices = t.several(TOP_K, 2, t.stored(0), [k], axis=-1, largest=1, sorted=1)
    t.put(values)
    t.put(t.cast(indices, t.result(1).dtype), 1)


def one_hot(t: Translation) -> None:
    """ONE_HOT: an index out of range gives `off` everywhere."""
    (depth,), rank = t.numbers(1, "the depth"), len(t.shape(0)) + 1
    axis = t.op.option("Axis", -1)
    axis = rank - 1 if axis == -1 else axis
    if depth < 0 or not 0 <= axis < rank:
        raise Unsupported(f"its depth {depth} or its axis {axis} is out of range; its output has {rank} dimensions")
    t.afford(8 * depth)
    index = t("Unsqueeze", t.cast(t.stored(0), np.int64), [axis])
    sizes = [depth if number == axis else 1 for number in range(rank)]
    hit = t("Equal", index, t.constant("places", np.arange(depth).reshape(sizes), np.int64))
    t.check_grid(2, 3)
    scalars = [t("Reshape", t.stored(number), []) for number in (2, 3)]
    t.put(t("Where", hit, *scalars))


def scatter_nd(t: Translation) -> None:
    """SCATTER_ND: updates of the same element are added."""
    shape = t.numbers(2, "the shape")
    t.check_grid(1)
    if t.result().dtype == np.bool_ or min(shape, default=1) < 1:
        raise Unsupported(f"its output {t.result().dtype}{shape} is not supported")
    zeros = t.filled(shape, 0)
    t.put(t("ScatterND", zeros, t.cast(t.stored(0), np.int64), t.stored(1), reduction="add"))


def sparse_to_dense(t: Translation) -> None:
    """SPARSE_TO_DENSE: a value at each index, a default elsewhere."""
    shape, shape_of_indices = t.numbers(1, "the shape"), t.shape(0)
    t.check_grid(2, 3)
    count = shape_of_indices[0] if shape_of_indices else 1
    if (shape_of_indices[1:] or (1,)) != (len(shape),) or len(shape_of_indices) > 2:
        raise Unsupported(f"its indices {list(shape_of_indices)} do not fit its output's shape {shape}")
    dense = t("Expand", t("Reshape", t.stored(3), []), shape)
    indices = t("Reshape", t.cast(t.stored(0), np.int64), (count, len(shape)))
    values = t.stored(2)
    if t.shape(2) != (count,):
        values = t("Expand", t("Reshape", values, [1]), [count])
    t.put(t("ScatterND", dense, indices, values))


def reverse_sequence(t: Translation) -> None:
    """REVERSE_SEQUENCE: reverse a given number of elements in each row of the batch."""
    rank, time, batch = len(t.shape(0)), t.op.option("SeqDim"), t.op.option("BatchDim")
    if not (0 <= time < rank and 0 <= batch < rank) or time == batch:
        raise Unsupported(f"its seq_dim {time} and batch_dim {batch} are not two of its input's {rank} dimensions")
    lengths = t.cast(t.stored(1), np.int64)
    order = [batch, time, *(number for number in range(rank) if number not in (batch, time))]
    back = [order.index(number) for number in range(rank)]

    def build(x: str) -> str:
        front = t("Transpose", x, perm=order)
        result = t("ReverseSequence", front, lengths, batch_axis=0, time_axis=1)
        return t("Transpose", result, perm=back)

    moved(t, build)


def matrix_diag(t: Translation) -> None:
    """MATRIX_DIAG: vectors as diagonals, with 0 elsewhere."""
    t.check_grid(0)
    size = (t.shape(0) or (0,))[-1]
    t.afford(size * size)
    value = t("Unsqueeze", t.stored(0), [-1])
    t.put(t("Where", t.constant("diagonal", np.eye(size, dtype=bool)), value, t.result().dtype.type(0)))


def matrix_set_diag(t: Translation) -> None:
    """MATRIX_SET_DIAG: matrices with a new diagonal."""
    t.check_grid(0, 1)
    shape = t.shape(0)
    if len(shape) < 2 or t.shape(1) != (*shape[:-2], min(shape[-2:])):
        raise Unsupported(f"its matrices {list(shape)} and diagonals {list(t.shape(1))} do not match")
    t.afford(shape[-2] * shape[-1])
    axis = -1 if shape[-2] <= shape[-1] else -2  # the shorter one goes along the diagonal's elements
    value = t("Unsqueeze", t.stored(1), [axis])
    t.put(t("Where", t.constant("diagonal", np.eye(*shape[-2:], dtype=bool)), value, t.stored(0)))


def segments(kind: str) -> Translate:
    """SEGMENT_SUM, UNSORTED_SEGMENT_*: reduce the elements of each segment; negative segment numbers are skipped."""

    def translate(t: Translation) -> None:
        t.check_grid(0)
        shape, segments, dtype = t.shape(0), t.shape(1), t.result().dtype
        if t.op.kind == "SEGMENT_SUM":
            ids = t.numbers(1, "the segments")
            count = ids[-1] + 1 if ids else 0
            if ids != sorted(ids):
                raise Unsupported("its segment numbers are not sorted")
        else:
            (count,) = t.numbers(2, "the number of segments")
        if shape[: len(segments)] != segments or count < 1 or dtype == np.bool_:
            raise Unsupported(f"its segment numbers {list(segments)} do not fit its input {dtype}{list(shape)}")
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        first = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[kind]
        rest, numbers = shape[len(segments) :], t.cast(t.stored(1), np.int64)
        out = t("Where", t("Less", numbers, np.int64(0)), np.int64(count), numbers)
        rows = t("Reshape", out, (math.prod(segments), 1))
        values = t("Reshape", t.stored(0), (math.prod(segments), *rest))
        reduced = t("ScatterND", t.filled((count + 1, *rest), first), rows, values, reduction=kind)
        t.put(t("Slice", reduced, [0], [count], [0]))

    return translate


def embedding_lookup(t: Translation) -> None:
    """EMBEDDING_LOOKUP: rows of a table, which may be quantized while the result is float."""
    table = t.tensor(1)
    if table.is_quantized and t.result().dtype == np.float32:
        if table.scale.size != 1:
            raise Unsupported(f"its table has {plural.count(table.scale.size, 'scale')}; expected one")
        rows = t("Gather", t.stored(1), t.stored(0), axis=0)
        t.put(t.dequantize(rows, table.dtype, table.scale, table.zero_point))
        return
    moved(t, lambda x: t("Gather", x, t.stored(0), axis=0), 1)


def dynamic_update_slice(t: Translation) -> None:
    """DYNAMIC_UPDATE_SLICE: replace a part of a tensor; its start is clamped so that it stays inside."""
    t.check_grid(0, 1)
    shape, part = t.shape(0), t.shape(1)
    if len(shape) != len(part) or any(size > whole for size, whole in zip(part, shape, strict=True)):
        raise Unsupported(f"its update {list(part)} does not fit its operand {list(shape)}")
    if t.shape(2) != (len(shape),):
        raise Unsupported(
            f"its start indices are {list(t.shape(2))}; its operand has {plural.count(len(shape), 'dimension')}"
        )
    t.afford(8 * sum(shape))
    begin, value, hits = t.cast(t.stored(2), np.int64), t.stored(1), []
    for axis, (size, whole) in enumerate(zip(part, shape, strict=True)):
        if size == whole:
            continue
        first = t("Clip", t("Gather", begin, np.int64(axis)), np.int64(0), np.int64(whole - size))
        index = t("Sub", t.constant("places", np.arange(whole), np.int64), first)
        inside = t("Clip", index, np.int64(0), np.int64(size - 1))
        sizes = [whole if number == axis else 1 for number in range(len(shape))]
        hits.append(t("Reshape", t("Equal", index, inside), sizes))
        value = t("Gather", value, inside, axis=axis)
    if hits:
        value = t("Where", functools.reduce(lambda a, b: t("And", a, b), hits), value, t.stored(0))
    t.put(value)


def gather(t: Translation) -> None:
    """GATHER, with batch_dims: each element of the first dimensions has its own indices."""
    batch, axis, rank, dims = t.op.option("BatchDims"), t.op.option("Axis"), len(t.shape(0)), len(t.shape(1))
    if not batch:
        moved(t, lambda x: t("Gather", x, t.stored(1), axis=axis))
        return
    batch, axis = (number + (number < 0) * count for number, count in ((batch, dims), (axis, rank)))
    if not 0 <= batch <= axis < rank or batch > dims or t.shape(0)[:batch] != t.shape(1)[:batch]:
        raise Unsupported(f"its indices {list(t.shape(1))}, axis {axis} and batch_dims {batch} do not match")
    indices = t("Unsqueeze", t.cast(t.stored(1), np.int64), [-1])
    order = [*range(batch), axis, *(number for number in range(batch, rank) if number != axis)]
    between, picked = axis - batch, dims - batch
    back = [*range(batch), *range(batch + picked, batch + picked + between), *range(batch, batch + picked)]
    back += range(batch + picked + between, rank - 1 + picked)

    def build(x: str) -> str:
        front = t("Transpose", x, perm=order) if between else x
        result = t(GATHER_ND, front, indices, batch_dims=batch)
        return t("Transpose", result, perm=back) if between and picked else result

    moved(t, build)


def bucketize(t: Translation) -> None:
    """BUCKETIZE: the number of boundaries that are less than or equal to an element."""
    bounds: Array = np.asarray(t.op.option("Boundaries", ()), np.float32)
    if (np.diff(bounds) < 0).any():
        raise Unsupported("its boundaries are not sorted")
    rank = len(t.shape(0))
    values = t("Unsqueeze", t.cast(t.stored(0), np.float32), [rank])
    above = t("GreaterOrEqual", values, t.constant("boundaries", bounds))
    t.put(t("ReduceSum", t.cast(above, np.int32), [rank], keepdims=0))


def unique(t: Translation) -> None:
    """UNIQUE: the distinct elements in the order of their first occurrence, and the index of each element in them."""
    if t.tensor(0).dtype != t.result().dtype or len(t.shape(0)) != 1:
        raise Unsupported(f"its input {t.tensor(0).dtype}{list(t.shape(0))} is not supported")
    values, _, inverse = t.several("Unique", 3, t.stored(0), sorted=0)
    t.put(values)
    t.put(t.cast(inverse, t.result(1).dtype), 1)
