"""Interpolation: Resize 19, Upsample 9; GridSample 22, DeformConv 22, RoiAlign 22, AffineGrid 20.

A resized axis has a table of positions and weights; the other operators compute positions at run time.
Sources: ONNX Resize (coordinate modes, antialias, exclude_outside); the cubic kernel is Keys' (1981).
"""

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np

from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import (
    Reduction,
    axis,
    call,
    choose,
    const,
    inside,
    integer,
    least,
    load,
    most,
    number,
)
from mtool.compiler.ir.types import Array, DType
from mtool.compiler.operators.folding import SLOW, Folded, Folding
from mtool.compiler.operators.lowering import Lowering, accumulator
from mtool.compiler.operators.onnx_node import OnnxNode, attributes_of, index_of
from mtool.compiler.operators.operator import Case, Draw, Operator, case
from mtool.compiler.operators.problems import Unsupported
from mtool.compiler.operators.window import Convolution, guarded, window_of


class Resize(Attributes):
    """Resize, Upsample, with ONNX's names.

    scales: the ratio of the output's size to the input's, along each dimension.
    rois: the start and end of the region read along each dimension, as fractions of its size.
    nearest_mode: also "simple", as before opset 11: round up when shrinking, otherwise down.
    """

    scales: tuple[float, ...]
    rois: tuple[tuple[float, float], ...]
    coordinate_transformation_mode: str
    mode: str = "nearest"
    cubic_coeff_a: float = -0.75
    antialias: int = 0
    exclude_outside: int = 0
    nearest_mode: str
    extrapolation_value: float = 0.0


def _coordinate(x: int, size: int, scale: float, result: int, mode: str, roi: tuple[float, float]) -> float:
    """Return the position of output x in the input, in float32 as in onnxruntime, because it decides about ties.

    The standard's "length of the resized tensor" is the integer number of elements here, so that corners align exactly;
    onnx's reference evaluator uses size * scale.
    """
    at, factor, low, high = np.float32(x), np.float32(scale), np.float32(roi[0]), np.float32(roi[1])
    half, last = np.float32(0.5), np.float32(size - 1)
    if mode == "align_corners":
        return 0.0 if result == 1 else float(at * last / np.float32(result - 1))
    if mode == "asymmetric":
        return float(at / factor)
    if mode == "tf_crop_and_resize":
        if result == 1:
            return float(half * (low + high) * last)
        return float(low * last + at * (high - low) * last / np.float32(result - 1))
    if mode == "pytorch_half_pixel" and result == 1:
        return 0.0
    if mode == "half_pixel_symmetric":
        adjustment = np.float32(result) / (factor * np.float32(size))
        offset = np.float32(size) / 2 * (1 - adjustment)
        return float(np.float32(float(offset) + (x + 0.5) / float(factor) - 0.5))
    if mode == "tf_half_pixel_for_nn":
        return float((at + half) / factor)
    return float((at + half) / factor - half)


def _nearest(position: float, mode: str, scale: float) -> int:
    if mode == "floor" or (mode == "simple" and scale >= 1):
        return math.floor(position)
    if mode in ("ceil", "simple"):
        return math.ceil(position)
    return math.ceil(position - 0.5) if mode == "round_prefer_floor" else math.floor(position + 0.5)


def _linear(distance: float) -> float:
    return max(1 - abs(distance), 0.0)


def _cubic(a: float) -> Callable[[float], float]:
    def kernel(distance: float) -> float:
        x = abs(distance)
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0

    return kernel


def axis_table(
    size: int, result: int, scale: float, attrs: Resize, roi: tuple[float, float]
) -> tuple[Array, Array, Array]:
    """Return source positions and weights, [result, taps], and which outputs lie outside (tf_crop_and_resize)."""
    mode = attrs.coordinate_transformation_mode
    kernel, reach = (_linear, 1) if attrs.mode == "linear" else (_cubic(attrs.cubic_coeff_a), 2)
    stretch = min(scale, 1.0) if attrs.antialias else 1.0
    rows: list[dict[int, float]] = []
    outside = np.zeros(result, bool)
    for x in range(result):
        position = _coordinate(x, size, scale, result, mode, roi)
        outside[x] = mode == "tf_crop_and_resize" and not 0 <= position <= size - 1
        if attrs.mode == "nearest":
            rows.append({min(max(_nearest(position, attrs.nearest_mode, scale), 0), size - 1): 1.0})
            continue
        first, last = math.floor(position - reach / stretch), math.ceil(position + reach / stretch)
        weights = {tap: kernel((tap - position) * stretch) for tap in range(first, last + 1)}
        if attrs.exclude_outside:
            weights = {tap: weight for tap, weight in weights.items() if 0 <= tap < size}
        total = sum(weights.values()) if attrs.antialias or attrs.exclude_outside else 1.0
        row: dict[int, float] = {}
        for tap, weight in weights.items():
            inside = min(max(tap, 0), size - 1)
            if weight:
                row[inside] = row.get(inside, 0.0) + weight / total
        rows.append(row)
    taps = max(len(row) for row in rows)
    positions, weights_table = np.zeros((result, taps), np.int32), np.zeros((result, taps))
    for x, row in enumerate(rows):
        for n, (tap, weight) in enumerate(sorted(row.items())):
            positions[x, n], weights_table[x, n] = tap, weight
    return positions, weights_table, outside


def _resize(ctx: Lowering, node: Node) -> None:
    kind, result, attrs = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]], Resize.of(node)
    rank, dtype = len(kind.shape), accumulator(kind.dtype)
    inputs, index = [node.inputs[0]], []
    axes: list[tuple[int, int]] = []
    factors, outsides = [], []
    for position in range(rank):
        size, total = kind.shape[position], result.shape[position]
        scale, roi = attrs.scales[position], attrs.rois[position]
        if size == total and scale == 1 and roi == (0.0, 1.0):
            index.append(axis(position))
            continue
        positions, weights, outside = axis_table(size, total, scale, attrs, roi)
        taps = positions.shape[1]
        where: tuple[Expr, ...] = (axis(position),)
        if taps > 1:
            tap = axis(rank + len(axes))
            axes.append((rank + len(axes), taps))
            where = (axis(position), tap)
        inputs.append(ctx.constant(f"{node.name}/positions", positions if taps > 1 else positions.reshape(-1)))
        index.append(load(len(inputs) - 1, DType.INT32, where))
        if taps > 1:
            inputs.append(ctx.constant(f"{node.name}/weights", weights.astype(_float(dtype).numpy)))
            factors.append(load(len(inputs) - 1, _float(dtype), where))
        if outside.any():
            inputs.append(ctx.constant(f"{node.name}/outside", ~outside))
            outsides.append(load(len(inputs) - 1, DType.BOOL, (axis(position),)))
    element = load(0, kind.dtype, tuple(index))
    if factors:
        element = call("mul", _product(factors[0], factors[1:]), call("cast", element, dtype=_float(dtype)))
        element = Expr("reduce", _float(dtype), (element,), Reduction("add", tuple(axes)))
        if not kind.dtype.is_float:
            element = call("rint", element)
        element = call("cast", element, dtype=kind.dtype)
    ctx.loop(node, guarded(outsides, element, const(attrs.extrapolation_value, kind.dtype)), inputs)


def _float(dtype: DType) -> DType:
    return dtype if dtype.is_float else DType.FLOAT32


def _form(node: OnnxNode) -> None:
    """Resize, Upsample: a scale and a region of interest for every axis."""
    x, result, attrs, value_of = node.shape, node.result.shape, node.attrs, node.state.value_of
    rank = len(x)
    upsample = node.op == "Upsample" or node.version < 11
    roi, scales, sizes = ("", node.input(1), "") if upsample else (node.input(1), node.input(2), node.input(3))
    axes = [axis % rank for axis in attrs.get("axes") or range(rank)]
    all_scales, rois = [1.0] * rank, [(0.0, 1.0)] * rank
    factors = [float(v) for v in value_of(scales, "scales")] if scales else list(attrs.get("scales") or [])
    if factors:
        for axis, scale in zip(axes, factors, strict=True):
            all_scales[axis] = scale
    elif sizes:
        ratios = [result[axis] / x[axis] for axis in axes]
        policy = attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            ratios = [size / x[axis] for size, axis in zip(value_of(sizes, "sizes").tolist(), axes, strict=True)]
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
        for axis, ratio in zip(axes, ratios, strict=True):
            all_scales[axis] = ratio
    work = 1000 * sum(b for a, b in zip(x, result, strict=True) if a != b)
    node.state.budget.spend("work", work, f"{node.op} {node.origin}")
    mode = attrs.get("coordinate_transformation_mode", "asymmetric" if upsample else "half_pixel")
    if mode == "tf_crop_and_resize" and roi:
        region = value_of(roi, "roi").tolist()
        for n, axis in enumerate(axes):
            rois[axis] = (float(region[n]), float(region[n + len(axes)]))
    resize = attributes_of(
        Resize, attrs, scales=tuple(all_scales), rois=tuple(rois), coordinate_transformation_mode=mode,
        nearest_mode=attrs.get("nearest_mode", "simple" if upsample else "round_prefer_floor"),
    )  # fmt: skip
    node.emit(resize, op="Resize", inputs=node.inputs[:1])


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4, 4)))
    scales = [1.0, 1.0] + [rng.choice((0.5, 1.0, 1.5, 2.0, 3.0)) for _ in value.shape[2:]]
    attrs = {"mode": rng.choice(("nearest", "linear"))}
    attrs["coordinate_transformation_mode"] = rng.choice(("half_pixel", "asymmetric"))
    if attrs["mode"] == "nearest":
        attrs["nearest_mode"] = rng.choice(("floor", "ceil", "round_prefer_floor"))
    return Case([value.name, "", draw.constant(scales, np.float32)], attrs)


# Sampling at computed positions, as reductions over the neighbours.


CUBIC = -0.75  # the kernel's coefficient, as in PyTorch


class GridSample(Attributes):
    """mode, padding_mode: ONNX's values; align_corners: -1 and 1 are the centres of the outermost elements (1)."""

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: int = 0


class DeformConv(Convolution):
    """offset_group: the number of channel groups, each with its offsets."""

    offset_group: int = 1


class RoiAlign(Attributes):
    """Regions divided into bins.

    sampling_ratio: the number of samples per bin along each dimension, at least 1.
    spatial_scale: the factor from the regions' coordinates to elements.
    mode: "avg" or "max".
    half_pixel: half an element is subtracted from coordinates.
    """

    sampling_ratio: int
    spatial_scale: float = 1.0
    mode: str = "avg"
    half_pixel: bool


def _number(value: float, like: Expr) -> Expr:
    return const(value, like.dtype)


def _add(a: Expr, b: Expr) -> Expr:
    return call("add", a, b)


def _times(a: Expr, b: float) -> Expr:
    return call("mul", a, _number(b, a))


def _product(first: Expr, factors: Iterable[Expr]) -> Expr:
    return functools.reduce(lambda a, b: call("mul", a, b), factors, first)


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
    return _add(choose(call("less", turn, _number(span, x), dtype=DType.BOOL), turn, back), _number(low, x))


def _grid_sample(ctx: Lowering, node: Node) -> None:
    kind, grid, attrs = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]], GridSample.of(node)
    spatial = len(kind.shape) - 2
    rank, dtype = len(kind.shape), accumulator(grid.dtype)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(attrs.mode, attrs.mode)
    padding = attrs.padding_mode
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    index: list[Expr] = [axis(0), axis(1)]
    tests, axes, factors = [], [], []
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
        if padding == "border" and mode != "cubic":  # cubic weights use the unclamped x, as in PyTorch and onnxruntime
            x = call("minimum", call("maximum", x, _number(0, x)), _number(size - 1, x))
        elif padding == "reflection":
            x = _reflected(x, low, high)
        position = call("floor", x) if mode != "nearest" else call("rint", x)
        if taps > 1:
            tap = call("cast", axis(rank + i) + (-1 if taps == 4 else 0), dtype=dtype)
            axes.append((rank + i, taps))
            position = _add(position, tap)
            factors.append((_tent if taps == 2 else _keys)(call("sub", x, position)))
        if padding == "reflection":
            position = call("floor", _add(_reflected(position, low, high), _number(0.25, position)))
        spot = integer(position)
        if padding == "zeros":
            tests += inside(spot, size)
        else:
            spot = least(most(spot, 0), size - 1)
        index.append(spot)
    element = call("cast", load(0, kind.dtype, tuple(index)), dtype=accumulator(kind.dtype))
    body = element
    if factors:
        body = call("mul", element, call("cast", _product(factors[0], factors[1:]), dtype=element.dtype))
    body = guarded(tests, body, _number(0, body))
    if axes:
        body = Expr("reduce", body.dtype, (body,), Reduction("add", tuple(axes)))
    ctx.loop(node, call("cast", body, dtype=kind.dtype), node.inputs)


def _deform_conv(ctx: Lowering, node: Node) -> None:
    """DeformConv: a convolution with an offset per tap, interpolated between the four neighbours."""
    x, w, offsets, bias, mask = [*node.inputs, "", ""][:5]
    kind, weights, result, attrs = ctx.types[x], ctx.types[w], ctx.types[node.outputs[0]], DeformConv.of(node)
    kh, kw = attrs.kernel
    group, offset_group = attrs.group, attrs.offset_group
    c, ky, kx, dy, dx = (axis(4 + n) for n in range(5))
    channels = weights.shape[1]
    channel = axis(1) // (weights.shape[0] // group) * channels + c
    part = channel // (kind.shape[1] // offset_group)
    tap = ky * kw + kx
    dtype = kind.dtype
    inputs = [x, w, offsets]
    factors, spots, tests = [], [], []
    for i, (near, size) in enumerate(zip((dy, dx), kind.shape[2:], strict=True)):
        entry = (part * (kh * kw) + tap) * 2 + i
        moved = load(2, dtype, (axis(0), entry, axis(2), axis(3)))
        start = axis(2 + i) * attrs.strides[i] + (ky, kx)[i] * attrs.dilations[i]
        at = _add(call("cast", start - attrs.pads[i], dtype=dtype), moved)
        position = _add(call("floor", at), call("cast", near, dtype=dtype))
        factors.append(_tent(call("sub", at, position)))
        spots.append(integer(position))
        tests += inside(spots[-1], size)
    if mask:
        inputs.append(mask)
        factors.append(load(len(inputs) - 1, dtype, (axis(0), part * (kh * kw) + tap, axis(2), axis(3))))
    factors.append(load(1, dtype, (axis(1), c, ky, kx)))  # a large weight last, so that nothing overflows
    body = guarded(tests, _product(load(0, dtype, (axis(0), channel, *spots)), factors), const(0, dtype))
    axes = ((4, channels), (5, kh), (6, kw), (7, 2), (8, 2))
    total = Expr("reduce", dtype, (body,), Reduction("add", axes))
    if bias:
        inputs.append(bias)
        total = _add(total, load(len(inputs) - 1, dtype, (axis(1),)))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs)


def _roi_align(ctx: Lowering, node: Node) -> None:
    """RoiAlign: each bin is the mean, or the maximum, of samples on a grid in it."""
    kind, rois, attrs = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]], RoiAlign.of(node)
    dtype = kind.dtype
    ratio = attrs.sampling_ratio
    image = integer(load(2, ctx.types[node.inputs[2]].dtype, (axis(0),)))
    shift = 0.5 if attrs.half_pixel else 0.0
    spots, tests, factors = [], [], []
    for i, (size, bins) in enumerate(zip(kind.shape[2:], ctx.types[node.outputs[0]].shape[2:], strict=True)):
        low, high = (
            _add(_times(load(1, rois.dtype, (axis(0), number(n))), attrs.spatial_scale), const(-shift, dtype))
            for n in (1 - i, 3 - i)
        )
        length = call("sub", high, low)
        if not attrs.half_pixel:
            length = call("maximum", length, const(1, dtype))
        step = _times(length, 1 / bins)
        sample, near = axis(4 + i), axis(6 + i)
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
    body = guarded(tests, _product(load(0, dtype, (image, axis(1), *spots)), factors), const(0, dtype))
    axes = ((4, ratio), (5, ratio), (6, 2), (7, 2))
    reduction = "maximum" if attrs.mode == "max" else "add"
    total = Expr("reduce", dtype, (body,), Reduction(reduction, axes))
    if reduction == "add":
        total = _times(total, 1 / ratio**2)
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
        raise Unsupported(f"it has {window.rank} spatial dimensions; expected 2")
    groups = {name: node.attrs.get(name, 1) for name in ("group", "offset_group")}
    node.emit(DeformConv(**vars(window), **groups))


def _fits_boxes(node: OnnxNode) -> bool:
    boxes = node.ins[1]
    return len(node.ins[0]) == 4 and len(boxes) == 2 and boxes[1] == 4 and node.ins[2] == boxes[:1]


def _roi_align_form(node: OnnxNode) -> None:
    attrs = node.attrs
    if not attrs.get("sampling_ratio"):
        raise Unsupported("a sampling_ratio of 0 (adaptive to the size of the box) is not supported")
    half = attrs.get("coordinate_transformation_mode", "half_pixel" if node.version >= 16 else "output_half_pixel")
    node.emit(attributes_of(RoiAlign, attrs, half_pixel=half == "half_pixel"))


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
        "Resize", cases=_cases, attributes=Resize, canonical=_form, sizes=(2, 3), folding=SLOW.growing(), lower=_resize,
        words={
            "mode": ("nearest", "linear", "cubic"),
            "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
            "coordinate_transformation_mode": (
                "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                "tf_half_pixel_for_nn", "tf_crop_and_resize",
            ),
            "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        },
    ),
    Operator(
        "Upsample", cases=case(lambda d, x: d.constant([1, 1, 2, 1.5], np.float32), rank=4, mode=("nearest", "linear")),
        canonical=_form, sizes=(1,), folding=SLOW.growing(), words={"mode": ("nearest", "linear", "bilinear")},
    ),
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
