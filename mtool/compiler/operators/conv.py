"""Convolutions: Conv 22, ConvInteger 10, ConvTranspose 22, Col2Im 18.

With constant weights and one or two dimensions they are conv2d kernels, otherwise loops in which each element is a
reduction over its window. A ConvTranspose is a convolution in which every phase of the stride is a set of output
channels: output o gets x[i] * w[k] wherever i * stride + k - pad = o. With o + pad = q * stride + r only the taps
k = r + stride * t contribute, at i = q - t: a convolution over q, with stride * stride times the channels, whose
results are then interleaved
(sub-pixel convolution: Shi et al., 2016, arXiv:1609.05158).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, compare, const, integer, load, number
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.operators.elementwise import FUSED_ACTIVATIONS, activated
from mtool.compiler.operators.epilogue import (
    append_conv2d,
    constant_value,
    epilogue_of,
    float_bias,
    integer_conv,
    integer_weights,
    is_constant,
    operands_of,
)
from mtool.compiler.operators.folding import CONVOLUTION, SLOW, WINDOWS
from mtool.compiler.operators.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, Lowering, accumulator
from mtool.compiler.operators.onnx_node import OnnxNode, QLinear
from mtool.compiler.operators.operator import Case, Draw, Operator, integers, product
from mtool.compiler.operators.problems import MICROSOFT, Unsupported
from mtool.compiler.operators.window import (
    CONV,
    Convolution,
    Pair,
    Window,
    check_windows_fit,
    convolution_form,
    guarded,
    has_kernel,
    pair,
    position,
    spatial_attributes,
    within,
)


def conv_by_loops(
    ctx: Lowering, node: Node, x: str, w: str, bias: str, output: str, zero_points: Sequence[str] = ()
) -> None:
    """Append a convolution whose operands may all be computed at run time; `zero_points` are those of x and w."""
    kind, weights, result = ctx.types[x], ctx.types[w], ctx.types[output]
    attrs, rank = Convolution.of(node), len(kind.shape)
    spatial, group, channels, total_type = attrs.rank, attrs.group, weights.shape[1], accumulator(kind.dtype)
    c, taps = axis(rank), [axis(rank + 1 + i) for i in range(spatial)]
    sizes = ((rank, channels), *((rank + 1 + i, size) for i, size in enumerate(attrs.kernel)))
    positions = [position(axis(2 + i), taps[i], node, i) for i in range(spatial)]
    conditions = [
        test for i in range(spatial) for test in within(positions[i], node, i, kind.shape[2 + i], result.shape[2 + i])
    ]
    channel = c if group == 1 else axis(1) // (weights.shape[0] // group) * channels + c
    element = call("cast", load(0, kind.dtype, (axis(0), channel, *positions)), dtype=total_type)
    weight = call("cast", load(1, weights.dtype, (axis(1), c, *taps)), dtype=total_type)
    inputs = [x, w]
    if zero_points:
        element, weight = _centred(ctx, zero_points, element, weight, inputs)
    body = guarded(conditions, call("mul", element, weight), const(0, total_type))
    _sum(ctx, node, Expr("reduce", total_type, (body,), Reduction("add", sizes)), inputs, bias, output)


def _sum(ctx: Lowering, node: Node, total: Expr, inputs: list[str], bias: str, output: str) -> None:
    """Append the loop of a sum of products, plus an optional bias per channel."""
    if bias:
        offset = load(len(inputs), ctx.types[bias].dtype, (axis(1),))
        total = call("add", total, call("cast", offset, dtype=total.dtype))
    ctx.loop(node, call("cast", total, dtype=ctx.types[output].dtype), [*inputs, *[bias] * bool(bias)], output)


def _centred(ctx: Lowering, zero_points: Sequence[str], x: Expr, w: Expr, inputs: list[str]) -> tuple[Expr, Expr]:
    """Subtract the zero points: a scalar for x, a scalar or one per output channel for w."""
    result = []
    for value, point in zip((x, w), zero_points, strict=True):
        if not point:
            result.append(value)
            continue
        inputs.append(point)
        kind = ctx.types[point]
        index = tuple(number(0) if kind.count == 1 else axis(1) for _ in kind.shape)
        zero = call("cast", load(len(inputs) - 1, kind.dtype, index), dtype=DType.INT32)
        result.append(call("sub", value, zero, value="index"))
    return result[0], result[1]


def _conv_integer(ctx: Lowering, node: Node) -> None:
    if integer_conv(ctx, node):
        return
    x, w, *points = [*node.inputs, "", ""][:4]
    conv_by_loops(ctx, node, x, w, "", node.outputs[0], points)


def _reached(node: Node, i: int, tap: Expr, count: int) -> tuple[Expr, list[Expr]]:
    """Return which of `count` windows contributes to an output with a tap along dimension i, and whether one does."""
    attrs = Window.of(node)
    reached = axis(2 + i) + attrs.pads[i] - tap * attrs.dilations[i]
    position = reached // attrs.strides[i]
    on_step = [compare("equal", reached % attrs.strides[i], 0)] * (attrs.strides[i] > 1)
    return position, [compare("greater_equal", reached, 0), *on_step, compare("less", position, count)]


def transposed_by_loops(ctx: Lowering, node: Node) -> None:
    """ConvTranspose: output o gets x[i] * w[k] wherever i * stride + k * dilation - pad = o."""
    x, w, bias = [*node.inputs, ""][:3]
    kind, weights, attrs = ctx.types[x], ctx.types[w], Convolution.of(node)
    group, spatial, rank = attrs.group, attrs.rank, len(kind.shape)
    total_type = accumulator(kind.dtype)
    inner, outer = weights.shape[0] // group, weights.shape[1]
    c, taps = axis(rank), [axis(rank + 1 + i) for i in range(spatial)]
    sizes = ((rank, inner), *((rank + 1 + i, size) for i, size in enumerate(attrs.kernel)))
    conditions, positions = [], []
    for i, tap in enumerate(taps):
        at, tests = _reached(node, i, tap, kind.shape[2 + i])
        positions.append(at)
        conditions += tests
    channel = c if group == 1 else axis(1) // outer * inner + c
    out_channel = axis(1) if group == 1 else axis(1) % outer
    element = call("cast", load(0, kind.dtype, (axis(0), channel, *positions)), dtype=total_type)
    weight = call("cast", load(1, weights.dtype, (channel, out_channel, *taps)), dtype=total_type)
    body = guarded(conditions, call("mul", element, weight), const(0, total_type))
    _sum(ctx, node, Expr("reduce", total_type, (body,), Reduction("add", sizes)), [x, w], bias, node.outputs[0])


def crop(ctx: Lowering, node: Node, value: str, first: Sequence[int], output: str) -> str:
    """Copy the part of a value that begins at `first` and has the output's shape."""
    index = tuple(axis(dim) + start for dim, start in enumerate(first))
    return ctx.loop(node, load(0, ctx.types[value].dtype, index), [value], output)


def _col2im(ctx: Lowering, node: Node) -> None:
    """Col2Im: the sum of the columns' entries that an image element was copied to."""
    attrs, result = Window.of(node), ctx.types[node.outputs[0]]
    kind = ctx.types[node.inputs[0]]
    spatial = attrs.rank
    taps = [axis(2 + spatial + i) for i in range(spatial)]
    sizes = tuple((2 + spatial + i, size) for i, size in enumerate(attrs.kernel))
    conditions: list[Expr] = []
    block: Expr = number(0)
    tap: Expr = axis(1)
    for i in range(spatial):
        span = (attrs.kernel[i] - 1) * attrs.dilations[i] + 1
        padded = result.shape[2 + i] + attrs.pads[i] + attrs.pads[spatial + i]
        blocks = (padded - span) // attrs.strides[i] + 1
        position, tests = _reached(node, i, taps[i], blocks)
        conditions += tests
        block = block * blocks + position
        tap = tap * attrs.kernel[i] + taps[i]
    element = load(0, kind.dtype, (axis(0), integer(tap), block))
    body = guarded(conditions, element, const(0, kind.dtype))
    ctx.loop(node, Expr("reduce", kind.dtype, (body,), Reduction("add", sizes)), node.inputs[:1])


def _fits_integers(node: OnnxNode) -> bool:
    w = node.ins[1]
    return has_kernel(w, node.attrs) and node.is_absent_or(2, (), (1,)) and node.is_absent_or(3, (), (1,), w[:1])


def _col2im_form(node: OnnxNode) -> None:
    kernel = tuple(int(size) for size in node.state.value_of(node.inputs[2], "block_shape"))
    rank = len(kernel)
    strides, dilations, pads = spatial_attributes(node.attrs, rank)
    window = Window(kernel=kernel, strides=strides, dilations=dilations, pads=pads)
    image = node.result.shape[2:]
    padded = [image[i] + window.pads[i] + window.pads[rank + i] for i in range(rank)]
    spans = [(kernel[i] - 1) * window.dilations[i] + 1 for i in range(rank)]
    blocks = math.prod((padded[i] - spans[i]) // window.strides[i] + 1 for i in range(rank))
    if node.shape[2] != blocks:
        raise Unsupported(f"its input is {node.kind(0)}; expected {blocks} columns")
    node.emit(window, inputs=node.inputs[:1])


def _integer_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(np.uint8, 4)
    weights = draw.constant(draw.numbers().integers(-64, 64, (draw.rng.randint(1, 4), value.shape[1], 2, 1)), np.int8)
    if not value.size:
        raise ValueError("no weights")
    return Case([value.name, weights, draw.constant(draw.rng.randint(0, 255), np.uint8)], {"pads": [1, 0, 0, 1]})


def _column_cases(draw: Draw, op: Operator) -> Case:
    return Case([draw.input(np.float32, (2, 3 * 4, 12)).name, draw.whole([4, 5]), draw.whole([2, 2])])


def _conv(ctx: Lowering, node: Node) -> None:
    x, w, b = [*node.inputs, ""][:3]
    constant = all(not value or is_constant(ctx, value) for value in (w, b))
    is_float = ctx.types[x].dtype is DType.FLOAT32
    if not constant or Convolution.of(node).rank > 2 or not is_float or not ctx.types[x].count:
        conv_by_loops(ctx, node, x, w, b, node.outputs[0])
        return
    operands = operands_of(ctx, x, w, b, ctx.types[w].shape[0], 0)
    assert operands.data is not None and operands.bias is not None
    data = operands.data[:, :, None, :] if operands.data.ndim == 3 else operands.data  # 1-D: a height of 1
    filters = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    sums, inputs = epilogue_of(ctx, node, filters, operands.bias, operands.integer, operands.w_scale, axis_number=3)
    append_conv2d(ctx, node, [operands.source, *inputs], DType.FLOAT32, sums)


def _fits_filters(node: OnnxNode) -> bool:
    w = node.ins[1]
    return has_kernel(w, node.attrs) and node.is_absent_or(2, w[:1])


def _finish_fused(write: OnnxNode, value: str) -> None:
    """Add the residual, apply the attributes `activation` and `activation_params`, and return the result."""
    if write.input(3):
        value = write("Add", value, write.input(3))
    name, numbers = write.word("activation", ""), write.attrs.get("activation_params") or ()
    parameters = dict(zip(FUSED_ACTIVATIONS.get(name, ()), numbers, strict=False))
    write.set_output(activated(write, value, name, parameters))


def _attrs(write: OnnxNode) -> dict[str, Any]:
    return {key: value for key, value in write.attrs.items() if key not in ("activation", "activation_params")}


def _fused(write: OnnxNode) -> None:
    """FusedConv: a convolution, a residual, an activation."""
    _finish_fused(write, write(CONV, *[name for name in write.inputs[:3] if name], **_attrs(write)))


def _nhwc(write: OnnxNode) -> None:
    """NhwcConv, NhwcFusedConv: channels last, in the filters too."""
    rank = len(write.shape)
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    operands = [write("Transpose", write.input(index), perm=first) for index in (0, 1)]
    operands += [write.input(2)] * bool(write.input(2))
    _finish_fused(write, write("Transpose", write(CONV, *operands, **_attrs(write)), perm=last))


def _qlinear_conv(parts: QLinear) -> None:
    inputs = [parts.dequantize(0), parts.dequantize(3, axis=0)]
    if parts.input(8):
        inputs.append(parts.bias(8, parts.inputs[1], parts.inputs[4]))
    parts.quantize(parts(CONV, *inputs, **parts.attrs), 6)


def conv_cases(draw: Draw, op: Operator) -> Case:
    """One to three spatial dimensions: groups, dilations, strides, asymmetric padding."""
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4, 4, 4, 4, 5)))
    spatial, channels = value.rank - 2, value.shape[1]
    if channels == 0:
        raise ValueError("no channels")
    kernel = [rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(spatial)]
    group = rng.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    out = group * rng.choice((1, 1, 2, 3, 4))
    attrs: dict[str, Any] = {"group": group, "strides": [rng.choice((1, 1, 1, 2, 3)) for _ in kernel]}
    if rng.random() < 0.2:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["dilations"] = [rng.choice((1, 1, 1, 2)) for _ in kernel]
        pads = [rng.choice((0, 0, 1, 2)) for _ in range(2 * spatial)]
        attrs["pads"] = [min(p, (kernel[n % spatial] - 1) * 2) for n, p in enumerate(pads)]
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, attrs.get("dilations", [1] * spatial), strict=True)]
    pads = attrs.get("pads", [0] * 2 * spatial)
    if any(value.shape[2 + n] + pads[n] + pads[spatial + n] < span for n, span in enumerate(spans)):
        raise ValueError("its window does not fit")
    weights = draw.normal((out, channels // group, *kernel), (channels // group * np.prod(kernel)) ** -0.5)
    bias = [draw.normal((out,), 0.3)] if rng.random() < 0.6 else []
    return Case([value.name, weights, *bias], attrs)


def _fused_conv_cases(draw: Draw, op: Operator) -> Case:
    drawn = conv_cases(draw, op)
    return replace(drawn, attrs={**drawn.attrs, "activation": draw.rng.choice(("Relu", "Tanh", "Sigmoid"))})


@frozen
class Phases:
    """The phases of a ConvTranspose in two dimensions; a single dimension has a height of 1."""

    kernel: Pair
    stride: Pair
    pad: Pair
    size: Pair
    out_size: Pair

    @classmethod
    def of(cls, node: Node, shape: tuple[int, ...], result: tuple[int, ...]) -> "Phases":
        """Read the attributes (pads before the input come first)."""
        attrs, spatial = Convolution.of(node), len(shape) - 2
        pads = attrs.pads[:spatial]
        return cls(
            pair(attrs.kernel, 1), pair(attrs.strides, 1), pair(pads, 0), pair(shape[2:], 1), pair(result[2:], 1)
        )  # fmt: skip

    @property
    def taps(self) -> Pair:
        """The taps of a phase along each dimension."""
        return -(-self.kernel[0] // self.stride[0]), -(-self.kernel[1] // self.stride[1])

    @property
    def whole(self) -> bool:
        """Whether each phase has all its taps."""
        return all(size % stride == 0 for size, stride in zip(self.kernel, self.stride, strict=True))

    @property
    def quotients(self) -> Pair:
        """The number of values of q along each dimension."""
        (out_h, out_w), (pad_h, pad_w), (stride_h, stride_w) = self.out_size, self.pad, self.stride
        return -(-(out_h + pad_h) // stride_h), -(-(out_w + pad_w) // stride_w)

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Padding of the convolution: before, then after; negative where the last inputs belong to no output."""
        (before_h, before_w), (quotients_h, quotients_w) = ((tap - 1) for tap in self.taps), self.quotients
        return before_h, before_w, quotients_h - self.size[0], quotients_w - self.size[1]

    def filters(self, weights: Array) -> Array:
        """Return weights [C, O, KH, KW] as [phases * O, taps, taps, C]; missing taps are 0."""
        channels, outputs = weights.shape[:2]
        (taps_h, taps_w), (stride_h, stride_w) = self.taps, self.stride
        filled = np.zeros((channels, outputs, taps_h * stride_h, taps_w * stride_w), weights.dtype)
        filled[:, :, : self.kernel[0], : self.kernel[1]] = weights
        split = filled.reshape(channels, outputs, taps_h, stride_h, taps_w, stride_w)[:, :, ::-1, :, ::-1]
        return np.ascontiguousarray(split.transpose(3, 5, 1, 2, 4, 0).reshape(-1, taps_h, taps_w, channels))


def _conv_transpose(ctx: Lowering, node: Node) -> None:
    x, w, b = [*node.inputs, ""][:3]
    kind, result, attrs = ctx.types[x], ctx.types[node.outputs[0]], Convolution.of(node)
    constant = all(not value or is_constant(ctx, value) for value in (w, b))
    flat = attrs.rank <= 2 and attrs.group == 1 and all(step == 1 for step in attrs.dilations)
    if not constant or not flat or kind.dtype is not DType.FLOAT32:
        transposed_by_loops(ctx, node)
        return
    phases = Phases.of(node, kind.shape, result.shape)
    integer, weights = ctx.integers(x, wide=True), integer_weights(ctx, w, 1)
    is_integer = integer is not None and weights is not None
    # A missing tap is not a multiplication by 0 in float: infinity times 0 is NaN.
    if min(phases.pads) < 0 or not (is_integer or phases.whole):
        transposed_by_loops(ctx, node)
        return
    bias = float_bias(ctx, b, result.shape[1])
    data = weights[0] if is_integer and weights else constant_value(ctx, w)
    assert data is not None and bias is not None
    filters = phases.filters(data.reshape(*data.shape[:2], *phases.kernel))
    count = math.prod(phases.stride)
    sums, inputs = epilogue_of(
        ctx, node, filters, np.tile(bias, count), integer if is_integer else None,
        np.tile(weights[1], count) if is_integer and weights else None, axis_number=3,
    )  # fmt: skip
    source = integer.value if is_integer and integer else x
    four = ctx.view(node, source, (*kind.shape[:2], *phases.size)) if len(kind.shape) == 3 else source
    nhwc = ctx.transpose(node, four, NHWC_OF_NCHW)
    grid = ctx.value(f"{node.outputs[0]}.phases", DType.FLOAT32, (kind.shape[0], *phases.quotients, filters.shape[0]))
    macs = math.prod((*kind.shape, result.shape[1], *phases.kernel))
    conv2d = Conv2d(kernel=phases.taps, pads=phases.pads, **vars(replace(sums, macs=macs)))
    ctx.node("conv2d", [nhwc, *inputs], [grid], conv2d, like=node)
    _interleave(ctx, node, phases, grid)


def _interleave(ctx: Lowering, node: Node, phases: Phases, grid: str) -> None:
    """Turn [N, QH, QW, SH * SW * O] into the output [N, O, OH, OW], without its padding."""
    output, result = node.outputs[0], ctx.types[node.outputs[0]].shape
    (quotients_h, quotients_w), (stride_h, stride_w) = phases.quotients, phases.stride
    apart = ctx.view(node, grid, (result[0], quotients_h, quotients_w, stride_h, stride_w, result[1]))
    transposed = ctx.transpose(node, apart, (0, 1, 3, 2, 4, 5))
    image = ctx.view(node, transposed, (result[0], quotients_h * stride_h, quotients_w * stride_w, result[1]))
    image = ctx.transpose(node, image, NCHW_OF_NHWC)
    whole = (quotients_h * stride_h, quotients_w * stride_w)
    if len(result) == 3:
        image = ctx.view(node, image, (*result[:2], whole[1]), output if whole == phases.out_size else "")
    elif whole == phases.out_size:
        ctx.view(node, image, (), output)
    if whole != phases.out_size:
        crop(ctx, node, image, (0, 0, *Convolution.of(node).pads[: len(result) - 2]), output)


def _transposed_form(node: OnnxNode) -> None:
    """ConvTranspose: the padding that its output shape implies, split as the standard defines."""
    spatial, result, kernel, attrs = node.shape[2:], node.result.shape[2:], node.kind(1).shape[2:], node.attrs
    rank = len(kernel)
    strides, dilations, pads = spatial_attributes(attrs, rank)
    extra, mode = attrs.get("output_padding") or (0,) * rank, attrs.get("auto_pad", "NOTSET")
    before = list(pads[:rank])
    if mode in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in attrs:
        for i in range(rank):
            span = (kernel[i] - 1) * dilations[i] + 1
            total = max(strides[i] * (spatial[i] - 1) + extra[i] + span - result[i], 0)
            before[i] = total // 2 if mode == "SAME_UPPER" else total - total // 2
    window = Window(kernel=kernel, strides=strides, dilations=dilations, pads=tuple(before))
    node.emit(Convolution(group=attrs.get("group", 1), **vars(window)))


def _fits_transposed(node: OnnxNode) -> bool:
    x, w, group = node.ins[0], node.ins[1], node.attrs.get("group", 1)
    fits = has_kernel(w, node.attrs) and x[1] == w[0] and group > 0 and x[1] % group == 0
    return fits and node.is_absent_or(2, (w[1] * group,))


def _transposed_cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4)))
    channels = value.shape[1]
    group = rng.choice([g for g in (1, 1, 2, channels) if g and channels % g == 0])
    kernel = [rng.choice((1, 2, 3)) for _ in value.shape[2:]]
    strides = [rng.choice((1, 2)) for _ in kernel]
    pads = [rng.choice((0, 0, 1)) if kernel[n % len(kernel)] > 1 else 0 for n in range(2 * len(kernel))]
    attrs = {
        "group": group, "strides": strides, "pads": pads, "output_padding": [rng.randrange(s) for s in strides],
        "dilations": [rng.choice((1, 1, 2)) for _ in kernel],
    }  # fmt: skip
    return Case([value.name, draw.normal((channels, rng.randint(1, 3), *kernel))], attrs)


OPERATORS = (
    Operator(
        "ConvInteger", cases=_integer_cases, attributes=Convolution, canonical=convolution_form,
        check=check_windows_fit, check_shapes=_fits_integers, zero_point={0: 2}.get, folding=CONVOLUTION,
        lower=_conv_integer,
    ),
    Operator(
        "Col2Im", cases=_column_cases, attributes=Window, canonical=_col2im_form, sizes=(1, 2), folding=SLOW.growing(),
        lower=_col2im,
    ),
    Operator(
        CONV, cases=conv_cases, attributes=Convolution, canonical=convolution_form, check=check_windows_fit,
        check_shapes=_fits_filters, folding=CONVOLUTION, lower=_conv,
    ),
    Operator("FusedConv", domain=MICROSOFT, cases=_fused_conv_cases, expand=_fused),
    *(Operator(op, domain=MICROSOFT, cases=None, expand=_nhwc) for op in ("NhwcConv", "NhwcFusedConv")),
    Operator(
        "QLinearConv", cases=integers(conv_cases, "01yb", product), expand=QLinear.form(_qlinear_conv),
        zero_point={0: 2}.get,
    ),
    Operator(
        "ConvTranspose", cases=_transposed_cases, attributes=Convolution, canonical=_transposed_form,
        check_shapes=_fits_transposed, folding=replace(WINDOWS, of_nothing=False), lower=_conv_transpose,
    ),
)  # fmt: skip
