"""Sampling at computed positions: GridSample 22, DeformConv 22 and RoiAlign 22, as reductions over the neighbours."""

import math

import numpy as np

from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import (
    Reduction,
    axis,
    call,
    choose,
    const,
    every,
    inside,
    integer,
    least,
    load,
    most,
    number,
    over,
    plus,
    times,
)
from mtool.compiler.ir.types import DType
from mtool.compiler.operators.folding import SLOW, Folded, Folding
from mtool.compiler.operators.index_ranges import index_of
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import Unsupported
from mtool.compiler.operators.sliding_window import accumulator
from mtool.compiler.operators.window import Convolution, window_of

CUBIC = -0.75  # the kernel's coefficient, as in PyTorch


class GridSample(Attributes):
    """mode, padding_mode: ONNX's words; align_corners: -1 and 1 are the middles of the outermost elements (1)."""

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: int = 0


class DeformConv(Convolution):
    """offset_group: the groups of channels, each with its offsets."""

    offset_group: int = 1


class RoiAlign(Attributes):
    """Regions in bins.

    sampling_ratio: samples of a bin along each dimension, at least 1.
    spatial_scale: from the regions' coordinates to elements.
    mode: "avg" or "max".
    half_pixel: coordinates are half an element less.
    """

    sampling_ratio: int
    spatial_scale: float
    mode: str
    half_pixel: bool


def _number(value: float, like: Expr) -> Expr:
    return const(value, like.dtype)


def _add(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def _times(a: Expr, b: float) -> Expr:
    return call("mul", a, _number(b, a))


def _less(a: Expr, b: Expr) -> Expr:
    return call("less", a, b, dtype=DType.BOOL)


def _tent(distance: Expr) -> Expr:
    """The weight of linear interpolation: 1 - |distance|."""
    return call("sub", _number(1, distance), call("abs", distance))


def _keys(distance: Expr) -> Expr:
    """The weight of cubic interpolation."""
    a, x = CUBIC, call("abs", distance)
    square = call("mul", x, x)
    near = _add(call("mul", _add(_times(x, a + 2), _number(-(a + 3), x)), square), _number(1, x))
    inner = _add(call("mul", _add(_times(x, a), _number(-5 * a, x)), x), _number(8 * a, x))
    far = _add(call("mul", inner, x), _number(-4 * a, x))
    return choose(call("less_equal", x, _number(1, x), dtype=DType.BOOL), near, far)


def _reflected(x: Expr, low: float, high: float) -> Expr:
    """Return a coordinate mirrored at both borders until it lies between them."""
    span = high - low
    if span <= 0:
        return _number(0, x)
    turn = call("remainder", _add(x, _number(-low, x)), _number(2 * span, x))
    back = call("sub", _number(2 * span, x), turn)
    return _add(choose(_less(turn, _number(span, x)), turn, back), _number(low, x))


def _grid_sample(ctx: Lowering, node: Node) -> None:
    kind, grid, attrs = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]], GridSample.of(node)
    spatial = len(kind.shape) - 2
    rank, dtype = len(kind.shape), accumulator(grid.dtype)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.mode, attrs.mode)
    padding = attrs.padding_mode
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    index: list[Expr] = [axis(0), axis(1)]
    tests, axes = [], []
    weight: Expr | None = None
    for i in range(spatial):
        size = kind.shape[2 + i]
        where = (axis(0), *(axis(2 + d) for d in range(spatial)), number(spatial - 1 - i))
        coordinate = call("cast", load(1, grid.dtype, where), dtype=dtype)
        shifted = _add(coordinate, _number(1, coordinate))
        if attrs.align_corners:
            x, low, high = _times(shifted, (size - 1) / 2), 0.0, size - 1.0
        else:
            x, low, high = _times(_add(_times(shifted, size), _number(-1, coordinate)), 0.5), -0.5, size - 0.5
        x = call("rint", x) if mode == "nearest" else x
        if padding == "border" and mode != "cubic":  # whose weights are of where x is, as in PyTorch and onnxruntime
            x = call("minimum", call("maximum", x, _number(0, x)), _number(size - 1, x))
        elif padding == "reflection":
            x = _reflected(x, low, high)
        position = call("floor", x) if mode != "nearest" else call("rint", x)
        if taps > 1:
            tap = call("cast", plus(axis(rank + i), -1 if taps == 4 else 0), dtype=dtype)
            axes.append((rank + i, taps))
            position = _add(position, tap)
            factor = (_tent if taps == 2 else _keys)(call("sub", x, position))
            weight = factor if weight is None else call("mul", weight, factor)
        if padding == "reflection":
            position = call("floor", _add(_reflected(position, low, high), _number(0.25, position)))
        spot = integer(position)
        if padding == "zeros":
            tests += inside(spot, size)
        else:
            spot = least(most(spot, 0), size - 1)
        index.append(spot)
    element = call("cast", load(0, kind.dtype, tuple(index)), dtype=accumulator(kind.dtype))
    body = element if weight is None else call("mul", element, call("cast", weight, dtype=element.dtype))
    condition = every(tests)
    if condition is not None:
        body = choose(condition, body, _number(0, body))
    if axes:
        body = Expr("reduce", body.dtype, (body,), Reduction("add", tuple(axes)))
    ctx.loop(node, call("cast", body, dtype=kind.dtype), node.inputs)


def _deform_conv(ctx: Lowering, node: Node) -> None:
    """DeformConv: a convolution whose taps are moved by an offset each, sampled between the four neighbours."""
    x, w, offsets, bias, mask = [*node.inputs, "", ""][:5]
    kind, weights, result, attrs = ctx.types[x], ctx.types[w], ctx.types[node.outputs[0]], DeformConv.of(node)
    kh, kw = attrs.kernel
    group, offset_group = attrs.group, attrs.offset_group
    c, ky, kx, dy, dx = (axis(4 + n) for n in range(5))
    channels = weights.shape[1]
    channel = plus(times(over(axis(1), weights.shape[0] // group), channels), c)
    part = over(channel, kind.shape[1] // offset_group)
    tap = plus(times(ky, kw), kx)
    dtype = kind.dtype
    inputs = [x, w, offsets]
    factors, spots, tests = [], [], []
    for i, (near, size) in enumerate(zip((dy, dx), kind.shape[2:], strict=True)):
        entry = plus(times(plus(times(part, kh * kw), tap), 2), i)
        moved = load(2, dtype, (axis(0), entry, axis(2), axis(3)))
        start = plus(times(axis(2 + i), attrs.strides[i]), times((ky, kx)[i], attrs.dilations[i]))
        at = _add(call("cast", plus(start, -attrs.pads[i]), dtype=dtype), moved)
        position = _add(call("floor", at), call("cast", near, dtype=dtype))
        factors.append(_tent(call("sub", at, position)))
        spots.append(integer(position))
        tests += inside(spots[-1], size)
    if mask:
        inputs.append(mask)
        factors.append(load(len(inputs) - 1, dtype, (axis(0), plus(times(part, kh * kw), tap), axis(2), axis(3))))
    body = load(0, dtype, (axis(0), channel, *spots))
    for factor in (*factors, load(1, dtype, (axis(1), c, ky, kx))):  # a large weight last, so that nothing overflows
        body = call("mul", body, factor)
    condition = every(tests)
    assert condition is not None
    axes = ((4, channels), (5, kh), (6, kw), (7, 2), (8, 2))
    total = Expr("reduce", dtype, (choose(condition, body, const(0, dtype)),), Reduction("add", axes))
    if bias:
        inputs.append(bias)
        total = _add(total, load(len(inputs) - 1, dtype, (axis(1),)))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs)


def _roi_align(ctx: Lowering, node: Node) -> None:
    """RoiAlign: each bin is the mean, or the maximum, of samples on a grid in it."""
    kind, rois, attrs = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]], RoiAlign.of(node)
    dtype = kind.dtype
    height, width = kind.shape[2:]
    ratio = attrs.sampling_ratio
    image = integer(load(2, ctx.types[node.inputs[2]].dtype, (axis(0),)))
    shift = 0.5 if attrs.half_pixel else 0.0
    spots, tests, factors = [], [], []
    counts = []
    for i, (size, bins) in enumerate(
        ((height, ctx.types[node.outputs[0]].shape[2]), (width, ctx.types[node.outputs[0]].shape[3]))
    ):
        low, high = (
            _add(_times(load(1, rois.dtype, (axis(0), number(n))), attrs.spatial_scale), const(-shift, dtype))
            for n in (1 - i, 3 - i)
        )
        length = call("sub", high, low)
        if not attrs.half_pixel:
            length = call("maximum", length, const(1, dtype))
        step = _times(length, 1 / bins)
        sample, near = axis(4 + i), axis(6 + i)
        counts.append(ratio)
        within = _times(_add(call("cast", sample, dtype=dtype), const(0.5, dtype)), 1 / ratio)
        at = _add(low, call("mul", step, _add(call("cast", axis(2 + i), dtype=dtype), within)))
        tests += [
            call("greater_equal", at, const(-1, dtype), dtype=DType.BOOL),
            call("less_equal", at, const(size, dtype), dtype=DType.BOOL),
        ]
        at = call("minimum", call("maximum", at, const(0, dtype)), const(size - 1, dtype))
        position = _add(call("floor", at), call("cast", near, dtype=dtype))
        factors.append(_tent(call("sub", at, position)))
        spots.append(least(integer(position), size - 1))
    body = load(0, dtype, (image, axis(1), *spots))
    for factor in factors:
        body = call("mul", body, factor)
    condition = every(tests)
    assert condition is not None
    body = choose(condition, body, const(0, dtype))
    axes = ((4, counts[0]), (5, counts[1]), (6, 2), (7, 2))
    how = "maximum" if attrs.mode == "max" else "add"
    total = Expr("reduce", dtype, (body,), Reduction(how, axes))
    if how == "add":
        total = _times(total, 1 / math.prod(counts))
    ctx.loop(node, total, node.inputs)


def _fits_grid(node: OnnxNode) -> bool:
    x, grid = node.ins[0], node.ins[1]
    return len(x) == len(grid) > 2 and x[0] == grid[0] and grid[-1] == len(x) - 2


def _fits_offsets(node: OnnxNode) -> bool:
    x, w, moved = node.ins[0], node.ins[1], (node.outs[0][0], *node.outs[0][2:])
    count = node.attrs.get("offset_group", 1) * math.prod(w[2:])
    return (
        x[1] == w[1] * node.attrs.get("group", 1) and node.ins[2] == (moved[0], 2 * count, *moved[1:])
        and node.is_absent_or(3, (w[0],)) and node.is_absent_or(4, (moved[0], count, *moved[1:]))
    )  # fmt: skip


def _deform_conv_form(node: OnnxNode) -> None:
    window = window_of(node, node.kind(1).shape[2:])
    if len(window.kernel) != 2:
        raise Unsupported(f"{window.rank} spatial dimensions; 2 are supported")
    attrs = DeformConv(
        kernel=window.kernel, strides=window.strides, dilations=window.dilations, pads=window.pads,
        group=node.attrs.get("group", 1), offset_group=node.attrs.get("offset_group", 1),
    )  # fmt: skip
    node.emit(attrs)


def _fits_boxes(node: OnnxNode) -> bool:
    boxes = node.ins[1]
    return len(node.ins[0]) == 4 and len(boxes) == 2 and boxes[1] == 4 and node.ins[2] == boxes[:1]


def _roi_align_form(node: OnnxNode) -> None:
    attrs = node.attrs
    if not attrs.get("sampling_ratio"):
        raise Unsupported("a sampling_ratio of 0, as many samples as the box is large, is not supported")
    half = attrs.get("coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel")
    made = RoiAlign(
        sampling_ratio=attrs["sampling_ratio"], spatial_scale=attrs.get("spatial_scale", 1.0),
        mode=attrs.get("mode", "avg"), half_pixel=half == "half_pixel",
    )  # fmt: skip
    node.emit(made)


def _samples(node: Folded) -> int:
    return SLOW.cost(node) * max(1, abs(int(node.attrs.get("sampling_ratio", 1)))) ** 2


def _affine_grid(node: OnnxNode) -> bool:
    return node.ins[0] == (node.outs[0][0], node.outs[0][-1], node.outs[0][-1] + 1)


def _grid_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=4)
    grid = draw.constant(draw.numbers().uniform(-1.2, 1.2, (value.shape[0], 3, 2, 2)), np.float32)
    attrs = {"mode": draw.rng.choice(("linear", "nearest", "cubic")), "align_corners": draw.rng.randint(0, 1)}
    return Case([value.name, grid], attrs | {"padding_mode": draw.rng.choice(op.words["padding_mode"])})


def _affine_cases(draw: Draw, op: Operator) -> Case:
    return Case(
        [draw.input(np.float32, (2, 2, 3)).name, draw.whole([2, 3, 4, 5])], {"align_corners": draw.rng.randint(0, 1)}
    )


def _deformed(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=4)
    batch, channels, height, width = value.shape
    if min(height, width) < 2:
        raise ValueError("its window does not fit")
    offsets = draw.normal((batch, 8, height - 1, width - 1))
    return Case([value.name, draw.normal((3, channels, 2, 2)), offsets, draw.normal((3,))])


def _region_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=4)
    corners = draw.numbers().uniform(0, 2, (3, 2))
    regions = draw.constant(np.concatenate([corners, corners + 2], 1), np.float32)
    images = draw.constant(draw.numbers().integers(0, value.shape[0], 3), np.int64)
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": draw.rng.choice((1, 2))}
    return Case([value.name, regions, images], {"mode": draw.rng.choice(("avg", "max")), **sizes})


OPERATORS = (
    Operator(
        "GridSample", cases=_grid_cases, attributes=GridSample, check_shapes=_fits_grid, lower=_grid_sample,
        words={
            "mode": ("linear", "bilinear", "nearest", "cubic", "bicubic"),
            "padding_mode": ("zeros", "border", "reflection"),
        },
    ),
    Operator("AffineGrid", cases=_affine_cases, check_shapes=_affine_grid, sizes=(1,), folding=SLOW.growing()),
    Operator(
        "DeformConv", cases=_deformed, attributes=DeformConv, canonical=_deform_conv_form, check_shapes=_fits_offsets,
        lower=_deform_conv,
    ),
    Operator(
        "RoiAlign", cases=_region_cases, attributes=RoiAlign, canonical=_roi_align_form, check_shapes=_fits_boxes,
        folding=Folding(_samples), index_ranges=lambda node: index_of(2, node.shapes[0][0], from_end=False),
        lower=_roi_align,
        words={"mode": ("avg", "max"), "coordinate_transformation_mode": ("half_pixel", "output_half_pixel")},
    ),
)  # fmt: skip
