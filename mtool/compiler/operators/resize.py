"""Resize 19 and Upsample 9: each axis is a table of source positions and weights, made here.

Sources: ONNX Resize (coordinate modes, antialias, exclude_outside); the cubic kernel is Keys' (1981).
"""

import math
from collections.abc import Callable

import numpy as np

from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, choose, const, every, load
from mtool.compiler.ir.types import Array, DType
from mtool.compiler.operators.folding import SLOW
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator, case
from mtool.compiler.operators.sliding_window import accumulator


class Resize(Attributes):
    """Resize, Upsample, with ONNX's names.

    scales: the output's size in terms of the input's, along each dimension.
    rois: the begin and end of the part of each dimension that is read, in parts of it.
    nearest_mode: also "simple", as before opset 11: the next above where it shrinks, else the one below.
    """

    scales: tuple[float, ...]
    rois: tuple[tuple[float, float], ...]
    coordinate_transformation_mode: str
    mode: str
    cubic_coeff_a: float
    antialias: bool
    exclude_outside: bool
    nearest_mode: str
    extrapolation_value: float


def _coordinate(x: int, size: int, scale: float, result: int, mode: str, roi: tuple[float, float]) -> float:
    """Return where output x lies in the input, in float32 as in onnxruntime: it decides which neighbour is nearest.

    What the standard calls the length of the resized tensor is its whole number of elements, so that corners align
    where they are to; onnx's reference evaluator takes size * scale.
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
    weight: Expr | None = None
    outsides = []
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
            factor = load(len(inputs) - 1, _float(dtype), where)
            weight = factor if weight is None else call("mul", weight, factor)
        if outside.any():
            inputs.append(ctx.constant(f"{node.name}/outside", ~outside))
            outsides.append(load(len(inputs) - 1, DType.BOOL, (axis(position),)))
    element = load(0, kind.dtype, tuple(index))
    if weight is not None:
        element = call("mul", weight, call("cast", element, dtype=_float(dtype)))
        element = Expr("reduce", _float(dtype), (element,), Reduction("add", tuple(axes)))
        if not kind.dtype.is_float:
            element = call("rint", element)
        element = call("cast", element, dtype=kind.dtype)
    inside = every(outsides)
    if inside is not None:
        element = choose(inside, element, const(attrs.extrapolation_value, kind.dtype))
    ctx.loop(node, element, inputs)


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
            wanted = value_of(sizes, "sizes").tolist()
            ratios = [size / x[axis] for size, axis in zip(wanted, axes, strict=True)]
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
    made = Resize(
        scales=tuple(all_scales), rois=tuple(rois), coordinate_transformation_mode=mode,
        mode=attrs.get("mode", "nearest"), cubic_coeff_a=attrs.get("cubic_coeff_a", -0.75),
        antialias=bool(attrs.get("antialias")), exclude_outside=bool(attrs.get("exclude_outside")),
        nearest_mode=attrs.get("nearest_mode", "simple" if upsample else "round_prefer_floor"),
        extrapolation_value=attrs.get("extrapolation_value", 0.0),
    )  # fmt: skip
    node.emit(made, op="Resize", inputs=node.inputs[:1])


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4, 4)))
    scales = [1.0, 1.0] + [rng.choice((0.5, 1.0, 1.5, 2.0, 3.0)) for _ in value.shape[2:]]
    attrs = {"mode": rng.choice(("nearest", "linear"))}
    attrs["coordinate_transformation_mode"] = rng.choice(("half_pixel", "asymmetric"))
    if attrs["mode"] == "nearest":
        attrs["nearest_mode"] = rng.choice(("floor", "ceil", "round_prefer_floor"))
    return Case([value.name, "", draw.constant(scales, np.float32)], attrs)


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
)  # fmt: skip
