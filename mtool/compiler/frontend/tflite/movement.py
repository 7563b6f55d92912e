"""Operators that move, pick or repeat elements: on the stored integers themselves, where the grid stays the same."""

import math
from collections.abc import Callable

import numpy as np
import tflite
from onnx import helper

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.composites import COPY
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.operators.indexing import GATHER_ND

Translate = Callable[[Translation], None]


def moved(t: Translation, build: Callable[[str], str], index: int = 0) -> None:
    """Make the output `build` of input `index`: as it is stored, on whatever grids they stand, as LiteRT does."""
    if t.tensor(index).dtype == t.result().dtype:
        t.put(build(t.stored(index)))
    else:
        t.store(build(t.real(index)))


def _view(t: Translation) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the file says what shape the output has, and what it is given has to agree."""
    made = _asked(t) if t.result().open else t.result().shape
    if not _VIEWS[t.op.kind](t, made):
        raise Unsupported(f"its output is {list(made)}, which it does not make of {list(t.shape(0))}")
    shape = t.whole("shape", made)
    moved(t, lambda x: t.node("Reshape", [x, shape]))


def _asked(t: Translation) -> tuple[int, ...]:
    """Return the shape of an output some of whose sizes the file leaves open.

    Raises:
        Unsupported: they follow from nothing that is known.
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
        raise Unsupported(f"its output's shape is {sizes}, its input's {list(shape)}")
    return tuple(count // rest if size == -1 else size for size in sizes)


def _is_reshaped(t: Translation, made: tuple[int, ...]) -> bool:
    """Tell whether a shape is what is asked for, if a constant asks; -1 there is what is left."""
    if not t.has(1) or t.tensor(1).data is None:
        return True
    asked = t.numbers(1, "the shape")
    return len(asked) == len(made) and all(want in (-1, size) for want, size in zip(asked, made, strict=True))


def _is_squeezed(t: Translation, made: tuple[int, ...]) -> bool:
    kept, left = ([size for size in shape if size != 1] for shape in (t.shape(0), made))
    return kept == left and len(made) <= len(t.shape(0))


def _is_expanded(t: Translation, made: tuple[int, ...]) -> bool:
    shape = t.shape(0)
    if t.tensor(1).data is None:
        return True
    (axis,), rank = t.numbers(1, "the axis"), len(shape)
    if not -rank - 1 <= axis <= rank:
        raise Unsupported(f"its axis is {axis} of {rank} dimensions")
    index = axis % (rank + 1)
    return made == (*shape[:index], 1, *shape[index:])


_VIEWS = {"RESHAPE": _is_reshaped, "SQUEEZE": _is_squeezed, "EXPAND_DIMS": _is_expanded}


def _transpose(t: Translation) -> None:
    perm = t.numbers(1, "the permutation")
    moved(t, lambda x: t.node("Transpose", [x], perm=perm))


def _pads(t: Translation) -> list[int]:
    pads = np.reshape(t.known(1, "the pads"), (-1, 2))
    if len(pads) != len(t.shape(0)):
        raise Unsupported(f"it has {len(pads)} pairs of pads for {len(t.shape(0))} axes")
    if (pads < 0).any():
        raise Unsupported(f"its pads are {pads.tolist()}")
    return [int(number) for number in pads.T.reshape(-1)]


def _pad(t: Translation) -> None:
    """PAD with what 0 is stored as, PADV2 with a stated value."""
    pads, tensor = t.whole("pads", _pads(t)), t.tensor(0)
    if not t.same_grid(0):
        raise Unsupported("its input and output stand on different grids")
    if t.has(2):
        value = t.constant("value", t.known(2, "the value").reshape(-1)[0], tensor.dtype)
    else:
        value = t.constant("value", tensor.zero_point[0] if tensor.is_quantised else 0, tensor.dtype)
    t.put(t.node("Pad", [t.stored(0), pads, value]))


def _mirror_pad(t: Translation) -> None:
    """MIRROR_PAD: mode 0 repeats from beside the edge, mode 1 (symmetric) from the edge on."""
    pads, shape = _pads(t), t.shape(0)
    edge = int(t.op.option("Mode") == 0)
    rank = len(shape)
    if any(max(pads[n], pads[rank + n]) > shape[n] - edge for n in range(rank)):
        raise Unsupported(f"its pads are {pads} for {list(shape)}")

    def build(x: str) -> str:
        for axis, size in enumerate(shape):
            before, behind = pads[axis], pads[rank + axis]
            if before or behind:
                t.afford(8 * (size + before + behind))
                sources = np.pad(np.arange(size), (before, behind), "reflect" if edge else "symmetric")
                x = t.node("Gather", [x, t.whole("indices", sources)], axis=axis)
        return x if any(pads) else t.node("Identity", [x])

    moved(t, build)


def _concatenation(t: Translation) -> None:
    axis = t.op.option("Axis")
    operands = range(len(t.op.inputs))
    if t.op.option("FusedActivationFunction"):
        raise Unsupported("it has a fused activation, which some of LiteRT's kernels refuse and others leave out")
    if t.same_grid(*operands):
        t.put(t.node("Concat", [t.stored(index) for index in operands], axis=axis))
        return
    t.store(t.node("Concat", [t.real(index) for index in operands], axis=axis))


def _pack(t: Translation) -> None:
    rank = len(t.shape(0)) + 1
    axis = t.whole("axis", [t.op.option("Axis") % rank])
    operands = range(len(t.op.inputs))
    kept = t.same_grid(*operands)
    parts = [t.node("Unsqueeze", [t.stored(index) if kept else t.real(index), axis]) for index in operands]
    made = t.node("Concat", parts, axis=t.op.option("Axis") % rank)
    if kept:
        t.put(made)
    else:
        t.store(made)


def _split(t: Translation, x: int, axis: int, sizes: list[int]) -> None:
    """Slices along an axis, one an output."""
    shape = t.shape(x)
    if not -len(shape) <= axis < len(shape) or len(sizes) != len(t.op.outputs):
        raise Unsupported(f"its axis is {axis} of {len(shape)}, for {len(t.op.outputs)} outputs")
    size = shape[axis]
    if -1 in sizes:
        sizes = [size - (sum(sizes) + 1) if number == -1 else number for number in sizes]
    if sum(sizes) != size or min(sizes) < 0:
        raise Unsupported(f"its parts are {sizes} of {size}")
    if not t.same_grid(x):
        raise Unsupported("its input and outputs stand on different grids")
    start = 0
    for index, length in enumerate(sizes):
        ends = t.whole("starts", [start]), t.whole("ends", [start + length]), t.whole("axis", [axis % len(shape)])
        t.put(t.node("Slice", [t.stored(x), *ends]), index)
        start += length


def _split_equal(t: Translation) -> None:
    (axis,), count = t.numbers(0, "the axis"), len(t.op.outputs)
    shape = t.shape(1)
    if not -len(shape) <= axis < len(shape) or shape[axis] % count:
        raise Unsupported(f"its axis is {axis} of {list(shape)}, for {count} outputs")
    _split(t, 1, axis, [shape[axis] // count] * count)


def _split_sizes(t: Translation) -> None:
    (axis,) = t.numbers(2, "the axis")
    _split(t, 0, axis, t.numbers(1, "the sizes"))


def _unpack(t: Translation) -> None:
    shape, axis = t.shape(0), t.op.option("Axis")
    if not -len(shape) <= axis < len(shape) or shape[axis] != len(t.op.outputs) or not t.same_grid(0):
        raise Unsupported(f"its axis is {axis} of {list(shape)}, for {len(t.op.outputs)} outputs")
    for index in range(len(t.op.outputs)):
        t.put(t.node("Gather", [t.stored(0), t.constant("place", index, np.int64)], axis=axis), index)


def _slice(t: Translation) -> None:
    shape, begin, size = t.shape(0), t.numbers(1, "the begin"), t.numbers(2, "the size")
    if not len(begin) == len(size) == len(shape):
        raise Unsupported(f"its begin is {begin}, its size {size}, its input {list(shape)}")
    ends = [n if length == -1 else start + length for n, start, length in zip(shape, begin, size, strict=True)]
    if any(not 0 <= start <= end <= n for start, end, n in zip(begin, ends, shape, strict=True)):
        raise Unsupported(f"its begin is {begin}, its size {size}, its input {list(shape)}")
    starts, stops = t.whole("starts", begin), t.whole("ends", ends)
    moved(t, lambda x: t.node("Slice", [x, starts, stops]))


def _strided_slice(t: Translation) -> None:
    """STRIDED_SLICE, with masks: bit n of each is for entry n of `begin`."""
    shape = t.shape(0)
    begin, end, steps = (t.numbers(n, role) for n, role in ((1, "the begin"), (2, "the end"), (3, "the strides")))
    masks = {name: t.op.option(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis", "NewAxis", "Ellipsis")}
    told = f"its begin is {begin}, its end {end}, its strides {steps}, its input {list(shape)}"
    entries = range(len(begin))
    fresh = {n for n in entries if masks["NewAxis"] >> n & 1 and not masks["Ellipsis"] >> n & 1}
    if not len(begin) == len(end) == len(steps) or 0 in steps or masks["Ellipsis"].bit_count() > 1:
        raise Unsupported(told)
    rest = len(shape) - (len(begin) - len(fresh) - (masks["Ellipsis"].bit_count()))
    if rest < 0:
        raise Unsupported(told)
    parts: list[tuple[int, int, int, int]] = []  # first, last, stride, axis
    gone, added = [], []
    axis, made, far = 0, 0, 2**31 - 1  # of the input, and of the output
    for n, (first, last, step) in enumerate(zip(begin, end, steps, strict=True)):
        if masks["Ellipsis"] >> n & 1:
            axis, made = axis + rest, made + rest
            continue
        if n in fresh:
            added.append(made)
            made += 1
            continue
        if masks["ShrinkAxis"] >> n & 1:
            if masks["Begin"] >> n & 1:
                first = 0 if step > 0 else shape[axis] - 1
            first += shape[axis] if first < 0 else 0
            if not 0 <= first < shape[axis]:
                raise Unsupported(f"its begin is {begin}, its input {list(shape)}")
            part = first, first + 1, 1
            gone.append(axis)
        else:
            low = (0 if step > 0 else far) if masks["Begin"] >> n & 1 else first
            part = low, (far if step > 0 else -far) if masks["End"] >> n & 1 else last, step
            made += 1
        parts.append((*part, axis))
        axis += 1
    stems = ("starts", "ends", "steps", "axes")
    columns = dict(zip(stems, zip(*parts, strict=True), strict=True)) if parts else {}
    names = [t.whole(stem, columns[stem]) for stem in ("starts", "ends", "axes", "steps") if parts]
    shrunk, grown = t.whole("shrunk", gone), t.whole("grown", added)

    def build(x: str) -> str:
        x = t.node("Slice", [x, *names]) if parts else t.node("Identity", [x])
        x = t.node("Squeeze", [x, shrunk]) if gone else x
        return t.node("Unsqueeze", [x, grown]) if added else x

    moved(t, build)


def _gather_nd(t: Translation) -> None:
    indices = t.node("Cast", [t.stored(1)], to=helper.np_dtype_to_tensor_dtype(np.dtype(np.int64)))
    moved(t, lambda x: t.node(GATHER_ND, [x, indices]))


def _tile(t: Translation) -> None:
    repeats = t.whole("repeats", t.numbers(1, "the multiples"))
    moved(t, lambda x: t.node("Tile", [x, repeats]))


def _broadcast_to(t: Translation) -> None:
    shape = t.whole("shape", t.numbers(1, "the shape"))
    moved(t, lambda x: t.node("Expand", [x, shape]))


def _fill(t: Translation) -> None:
    shape = t.whole("shape", t.numbers(0, "the shape"))
    moved(t, lambda x: t.node("Expand", [x, shape]), 1)


def _reverse(t: Translation) -> None:
    axes = t.numbers(1, "the axes")
    ends = [t.whole(stem, [number] * len(axes)) for stem, number in (("starts", -1), ("ends", -(2**31)))]
    names = [*ends, t.whole("axes", axes), t.whole("steps", [-1] * len(axes))]
    moved(t, lambda x: t.node("Slice", [x, *names]))


def _shape(t: Translation) -> None:
    dtype = {tflite.TensorType.INT32: np.int32, tflite.TensorType.INT64: np.int64}.get(t.op.option("OutType"))
    if dtype is None:
        raise Unsupported(f"its out_type is number {t.op.option('OutType')}; expected int32 or int64")
    t.fix(t.op.outputs[0], np.asarray(t.shape(0), dtype))


def _broadcast_args(t: Translation) -> None:
    shapes = (tuple(t.numbers(index, "a shape")) for index in (0, 1))
    t.fix(t.op.outputs[0], np.asarray(np.broadcast_shapes(*shapes), t.result().dtype))


def _zeros_like(t: Translation) -> None:
    made = t.tensor(0)
    t.afford(made.dtype.itemsize * math.prod(made.shape))
    t.fix(t.op.outputs[0], np.zeros(made.shape, made.dtype))


def _rank(t: Translation) -> None:
    t.fix(t.op.outputs[0], np.asarray(len(t.shape(0)), np.int32))


TRANSLATIONS: dict[str, Translate] = {
    **dict.fromkeys(["RESHAPE", "SQUEEZE", "EXPAND_DIMS"], _view),
    "TRANSPOSE": _transpose,
    "PAD": _pad,
    "PADV2": _pad,
    "MIRROR_PAD": _mirror_pad,
    "CONCATENATION": _concatenation,
    "PACK": _pack,
    "UNPACK": _unpack,
    "SPLIT": _split_equal,
    "SPLIT_V": _split_sizes,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "GATHER_ND": _gather_nd,
    "TILE": _tile,
    "BROADCAST_TO": _broadcast_to,
    "FILL": _fill,
    "REVERSE_V2": _reverse,
    "SHAPE": _shape,
    COPY: lambda t: t.put(t.stored(0)),
    "RANK": _rank,
    "BROADCAST_ARGS": _broadcast_args,
    "ZEROS_LIKE": _zeros_like,
}
