"""Sliding windows of any rank and element type as loops: what the two-dimensional kernels leave over.

Conv 22, ConvInteger 10 and ConvTranspose 22 with weights that only the run knows, pools of three
dimensions, LpPool 22, Col2Im 18. One output element is a reduction over its window.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import (
    Reduction,
    axis,
    call,
    choose,
    compare,
    const,
    every,
    inside,
    integer,
    load,
    minus,
    modulo,
    number,
    over,
    plus,
    times,
)
from mtool.compiler.operators import integer_products
from mtool.compiler.operators.folding import CONVOLUTION, SLOW
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import Unsupported
from mtool.compiler.operators.window import Convolution, Window, check_windows_fit, convolution_form, has_kernel

Condition = list[Expr]


class Pool(Window):
    """MaxPool, AveragePool, LpPool and their global forms.

    count_pads: the average counts padding as zeros, up to `limits`.
    limits: for each dimension, from where on nothing is counted.
    p: of a norm, at least 1.
    """

    kind: Literal["max", "average", "lp"]
    count_pads: bool
    limits: tuple[int, ...]
    p: int


def _position(output: Expr, tap: Expr, node: Node, i: int) -> Expr:
    """Return where tap `tap` of an output lies along spatial dimension i."""
    attrs = Window.of(node)
    moved = plus(times(output, attrs.strides[i]), times(tap, attrs.dilations[i]))
    return minus(moved, attrs.pads[i])


def _within(position: Expr, node: Node, i: int, size: int, result: int) -> Condition:
    """Return the conditions that have to be tested for a position to lie in the input."""
    attrs = Window.of(node)
    last = (result - 1) * attrs.strides[i] + (attrs.kernel[i] - 1) * attrs.dilations[i] - attrs.pads[i]
    tests = inside(position, size)
    return [tests[0]] * (attrs.pads[i] > 0) + [tests[1]] * (last >= size)


def _guarded(conditions: Condition, value: Expr, otherwise: Expr) -> Expr:
    condition = every(conditions)
    return value if condition is None else choose(condition, value, otherwise)


def accumulator(dtype: DType) -> DType:
    """Return the type that sums of products of a type are made in."""
    return DType.FLOAT32 if dtype.is_half else dtype if dtype.is_float else DType.INT32


def conv(ctx: Lowering, node: Node, x: str, w: str, bias: str, output: str, zero_points: Sequence[str] = ()) -> None:
    """Convolution with operands that may all be computed at run time; `zero_points` are those of x and w."""
    kind, weights, result = ctx.types[x], ctx.types[w], ctx.types[output]
    spatial, rank = Convolution.of(node).rank, len(kind.shape)
    total_type = accumulator(kind.dtype)
    group, channels = Convolution.of(node).group, weights.shape[1]
    extra = rank
    c, taps = axis(extra), [axis(extra + 1 + i) for i in range(spatial)]
    sizes = ((extra, channels), *((extra + 1 + i, size) for i, size in enumerate(Convolution.of(node).kernel)))
    positions = [_position(axis(2 + i), taps[i], node, i) for i in range(spatial)]
    conditions = [
        test for i in range(spatial) for test in _within(positions[i], node, i, kind.shape[2 + i], result.shape[2 + i])
    ]
    channel = c if group == 1 else plus(times(over(axis(1), weights.shape[0] // group), channels), c)
    element = call("cast", load(0, kind.dtype, (axis(0), channel, *positions)), dtype=total_type)
    weight = call("cast", load(1, weights.dtype, (axis(1), c, *taps)), dtype=total_type)
    inputs = [x, w]
    if zero_points:
        element, weight = _centred(ctx, zero_points, element, weight, inputs)
    body = _guarded(conditions, call("mul", element, weight), const(0, total_type))
    total = Expr("reduce", total_type, (body,), Reduction("add", sizes))
    if bias:
        inputs.append(bias)
        offset = load(len(inputs) - 1, ctx.types[bias].dtype, (axis(1),))
        total = call("add", total, call("cast", offset, dtype=total_type))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs, output)


def _centred(ctx: Lowering, zero_points: Sequence[str], x: Expr, w: Expr, inputs: list[str]) -> tuple[Expr, Expr]:
    """Take the zero points off: x's a scalar, w's a scalar or one an output channel."""
    made = []
    for value, point in zip((x, w), zero_points, strict=True):
        if not point:
            made.append(value)
            continue
        inputs.append(point)
        kind = ctx.types[point]
        index = tuple(number(0) if kind.count == 1 else axis(1) for _ in kind.shape)
        zero = call("cast", load(len(inputs) - 1, kind.dtype, index), dtype=DType.INT32)
        made.append(call("sub", value, zero, value="index"))
    return made[0], made[1]


def _conv_integer(ctx: Lowering, node: Node) -> None:
    if integer_products.conv(ctx, node):
        return
    x, w, *points = [*node.inputs, "", ""][:4]
    conv(ctx, node, x, w, "", node.outputs[0], points)


def conv_transpose(ctx: Lowering, node: Node) -> None:
    """ConvTranspose: output o gets x[i] * w[k] wherever i * stride + k * dilation - pad = o."""
    x, w, bias = [*node.inputs, ""][:3]
    kind, weights, result = ctx.types[x], ctx.types[w], ctx.types[node.outputs[0]]
    attrs, group = Convolution.of(node), Convolution.of(node).group
    spatial, rank = attrs.rank, len(kind.shape)
    total_type = accumulator(kind.dtype)
    inner, outer = weights.shape[0] // group, weights.shape[1]
    c, taps = axis(rank), [axis(rank + 1 + i) for i in range(spatial)]
    sizes = ((rank, inner), *((rank + 1 + i, size) for i, size in enumerate(attrs.kernel)))
    conditions, positions = [], []
    for i in range(spatial):
        reached = minus(plus(axis(2 + i), attrs.pads[i]), times(taps[i], attrs.dilations[i]))
        stride = attrs.strides[i]
        conditions.append(compare("greater_equal", reached, 0))
        if stride > 1:
            conditions.append(compare("equal", modulo(reached, stride), 0))
        positions.append(over(reached, stride))
        conditions.append(compare("less", positions[-1], kind.shape[2 + i]))
    channel = c if group == 1 else plus(times(over(axis(1), outer), inner), c)
    out_channel = axis(1) if group == 1 else modulo(axis(1), outer)
    element = call("cast", load(0, kind.dtype, (axis(0), channel, *positions)), dtype=total_type)
    weight = call("cast", load(1, weights.dtype, (channel, out_channel, *taps)), dtype=total_type)
    body = _guarded(conditions, call("mul", element, weight), const(0, total_type))
    total = Expr("reduce", total_type, (body,), Reduction("add", sizes))
    inputs = [x, w]
    if bias:
        inputs.append(bias)
        total = call("add", total, call("cast", load(2, ctx.types[bias].dtype, (axis(1),)), dtype=total_type))
    ctx.loop(node, call("cast", total, dtype=result.dtype), inputs)


def crop(ctx: Lowering, node: Node, value: str, first: Sequence[int], output: str) -> str:
    """Copy the part of a value that begins at `first` and has the output's shape."""
    index = tuple(plus(axis(dim), start) for dim, start in enumerate(first))
    return ctx.loop(node, load(0, ctx.types[value].dtype, index), [value], output)


def pool(ctx: Lowering, node: Node, x: str, output: str) -> None:
    """Maximum, average and Lp pools of any rank."""
    kind, result, attrs = ctx.types[x], ctx.types[output], Pool.of(node)
    spatial, rank = attrs.rank, len(kind.shape)
    taps = [axis(rank + i) for i in range(spatial)]
    sizes = tuple((rank + i, size) for i, size in enumerate(attrs.kernel))
    positions = [_position(axis(2 + i), taps[i], node, i) for i in range(spatial)]

    def tests(limits: Sequence[int]) -> Condition:
        return [test for i in range(spatial) for test in _within(positions[i], node, i, limits[i], result.shape[2 + i])]

    element = load(0, kind.dtype, (axis(0), axis(1), *positions))
    if attrs.kind == "max":
        low = float("-inf") if kind.dtype.is_float else kind.dtype.limits[0]
        body = _guarded(tests(kind.shape[2:]), element, const(low, kind.dtype))
        ctx.loop(node, Expr("reduce", kind.dtype, (body,), Reduction("maximum", sizes)), [x], output)
        return
    total_type = accumulator(kind.dtype)
    element = call("cast", element, dtype=total_type)
    if attrs.kind == "lp":
        power = const(attrs.p, total_type)
        size = call("abs", element)
        raised = call("mul", element, element) if attrs.p == 2 else size if attrs.p == 1 else None
        element = raised or call("pow", size, power)
    total = Expr(
        "reduce", total_type, (_guarded(tests(kind.shape[2:]), element, const(0, total_type)),), Reduction("add", sizes)
    )
    if attrs.kind == "lp":
        p = attrs.p
        final = total if p == 1 else call("sqrt", total) if p == 2 else call("pow", total, const(1 / p, total_type))
    else:
        counted = every(_counted(node, positions, tests(attrs.limits)))
        if counted is None:
            count = const(math.prod(attrs.kernel), total_type)
        else:
            one = choose(counted, const(1, total_type), const(0, total_type))
            count = Expr("reduce", total_type, (one,), Reduction("add", sizes))
        final = call("div", total, count)
    ctx.loop(node, call("cast", final, dtype=result.dtype), [x], output)


def _counted(node: Node, positions: Sequence[Expr], tests: Condition) -> Condition:
    """Return the tests for what an average counts: with count_pads, padding before the input too."""
    if not Pool.of(node).count_pads:
        return tests
    return [test for test in tests if test.op == "less"]


def _col2im(ctx: Lowering, node: Node) -> None:
    """Col2Im: the sum of the columns' entries that an image element was copied to."""
    attrs, result = Window.of(node), ctx.types[node.outputs[0]]
    kind = ctx.types[node.inputs[0]]
    spatial = attrs.rank
    taps = [axis(2 + spatial + i) for i in range(spatial)]
    sizes = tuple((2 + spatial + i, size) for i, size in enumerate(attrs.kernel))
    conditions: Condition = []
    block: Expr = number(0)
    tap: Expr = axis(1)
    for i in range(spatial):
        span = (attrs.kernel[i] - 1) * attrs.dilations[i] + 1
        image, stride = result.shape[2 + i], attrs.strides[i]
        blocks = (image + attrs.pads[i] + attrs.pads[spatial + i] - span) // stride + 1
        reached = minus(plus(axis(2 + i), attrs.pads[i]), times(taps[i], attrs.dilations[i]))
        conditions.append(compare("greater_equal", reached, 0))
        if stride > 1:
            conditions.append(compare("equal", modulo(reached, stride), 0))
        position = over(reached, stride)
        conditions.append(compare("less", position, blocks))
        block = plus(times(block, blocks), position)
        tap = plus(times(tap, attrs.kernel[i]), taps[i])
    element = load(0, kind.dtype, (axis(0), integer(tap), block))
    body = _guarded(conditions, element, const(0, kind.dtype))
    ctx.loop(node, Expr("reduce", kind.dtype, (body,), Reduction("add", sizes)), node.inputs[:1])


def _fits_filters(node: OnnxNode) -> bool:
    w = node.ins[1]
    return has_kernel(w, node.attrs) and node.is_absent_or(2, (), (1,)) and node.is_absent_or(3, (), (1,), w[:1])


def _col2im_form(node: OnnxNode) -> None:
    kernel = tuple(int(size) for size in node.state.value_of(node.inputs[2], "block_shape"))
    rank, attrs = len(kernel), node.attrs
    window = Window(
        kernel=kernel, strides=attrs.get("strides") or (1,) * rank, dilations=attrs.get("dilations") or (1,) * rank,
        pads=attrs.get("pads") or (0,) * 2 * rank,
    )  # fmt: skip
    image = node.result.shape[2:]
    padded = [image[i] + window.pads[i] + window.pads[rank + i] for i in range(rank)]
    spans = [(kernel[i] - 1) * window.dilations[i] + 1 for i in range(rank)]
    blocks = math.prod((padded[i] - spans[i]) // window.strides[i] + 1 for i in range(rank))
    if node.shape[2] != blocks:
        raise Unsupported(f"its input is {node.kind(0)}; expected {blocks} blocks")
    node.emit(window, inputs=node.inputs[:1])


def _integer_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(np.uint8, 4)
    weights = draw.constant(draw.numbers().integers(-64, 64, (draw.rng.randint(1, 4), value.shape[1], 2, 1)), np.int8)
    if not value.size:
        raise ValueError("no weights")
    return Case([value.name, weights, draw.constant(draw.rng.randint(0, 255), np.uint8)], {"pads": [1, 0, 0, 1]})


def _column_cases(draw: Draw, op: Operator) -> Case:
    return Case([draw.input(np.float32, (2, 3 * 4, 12)).name, draw.whole([4, 5]), draw.whole([2, 2])])


OPERATORS = (
    Operator(
        "ConvInteger", cases=_integer_cases, attributes=Convolution, canonical=convolution_form,
        check=check_windows_fit, check_shapes=_fits_filters, zero_point={0: 2}.get, folding=CONVOLUTION,
        lower=_conv_integer,
    ),
    Operator(
        "Col2Im", cases=_column_cases, attributes=Window, canonical=_col2im_form, sizes=(1, 2), folding=SLOW.growing(),
        lower=_col2im,
    ),
)  # fmt: skip
