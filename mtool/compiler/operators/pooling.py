"""Pooling (ai.onnx MaxPool, AveragePool and their Global forms): a pool2d kernel, or loops.

The number and the positions of windows are as in onnxruntime. With ceil_mode, a last window that would begin in the
padding at the end is omitted: by the standard from opset 22 on, in onnxruntime in all opsets. With auto_pad SAME,
onnxruntime ignores dilations, and skips elements at both ends where strides are longer than windows; ONNX's own shapes
differ there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import Reduction, acc, axis, call, choose, const, every, load
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.operators.folding import SLOW, WINDOWS
from mtool.compiler.operators.lowering import (
    EIGHT_BITS,
    NCHW_OF_NHWC,
    NHWC_OF_NCHW,
    SIXTEEN_BITS,
    Lowering,
    accumulator,
    by_template,
    moves_integers,
    strides_of,
)
from mtool.compiler.operators.movement import Slice
from mtool.compiler.operators.onnx_node import Attrs, OnnxNode, QLinear, qlinear_unary
from mtool.compiler.operators.operator import Case, Draw, Operator, case, integers
from mtool.compiler.operators.problems import MICROSOFT, OWN, Unsupported
from mtool.compiler.operators.window import (
    Pool,
    check_window,
    four_pads,
    guarded,
    pair,
    position,
    spatial_attributes,
    within,
)


class MaxPoolIndices(Pool):
    """column_major: indices count down the columns."""

    column_major: bool


KERNEL_TYPES = (DType.FLOAT32, *EIGHT_BITS, *SIXTEEN_BITS)


def _lower(ctx: Lowering, node: Node) -> None:
    pool = Pool.of(node)
    kernel, out = pool.kernel, ctx.types[node.outputs[0]].shape[2:]
    quantized = ctx.integers(node.inputs[0], wide=True)
    counted = pool.count_pads and all(end <= limit for end, limit in zip(pool.ends(out), pool.limits, strict=True))
    whole = counted or not any(pool.pads)
    widest = 2 ** (8 * ctx.types[quantized.value].dtype.size) - 1 if quantized is not None else 0
    if quantized is None or not whole or np.prod(kernel) * widest >= 2**30:
        _pool(ctx, node, node.inputs[0], node.outputs[0], acc(ctx.types[node.inputs[0]].dtype))
        return
    # The mean of dequantized integers: (sum - count inside * zero_point) * (scale / count).
    count = int(np.prod(kernel))
    total, more = acc(DType.INT32), []
    shift = count * int(quantized.zero_point.reshape(-1)[0])
    offset = const(shift, DType.INT32)
    if shift and any(pool.pads):
        inside = pool.inside(ctx.types[node.inputs[0]].shape[2:], out)
        table = np.outer(inside[-2] if pool.rank == 2 else 1, inside[-1]) * (shift // count)
        more.append(ctx.constant(f"{node.name}/offset", table.astype(np.int32)[None, :, :, None]))
        offset = load(1, DType.INT32, (const(0, DType.INT32), axis(1), axis(2), const(0, DType.INT32)))
    centred = call("sub", total, offset, value="index") if shift else total
    factor = np.float32(quantized.scale.reshape(-1)[0]) / np.float32(count)
    mean = call("mul", call("cast", centred, dtype=DType.FLOAT32), const(float(factor), DType.FLOAT32))
    _pool(ctx, node, quantized.value, node.outputs[0], mean, more, acc_bound=count * widest + abs(shift))


def _pool(
    ctx: Lowering,
    node: Node,
    source: str,
    output: str,
    epilogue: Expr,
    operands: Sequence[str] = (),
    acc_bound: int = 0,
) -> None:
    pool = Pool.of(node)
    assert pool.kind != "lp"  # computed by loops
    shape, kind = ctx.types[source].shape, ctx.types[output]
    if len(shape) == 3:
        source = ctx.view(node, source, (*shape[:2], 1, shape[2]))
    attrs = Pool2d(
        kind=pool.kind, kernel=pair(pool.kernel, 1), strides=pair(pool.strides, 1),
        dilations=pair(pool.dilations, 1), limits=pair(pool.limits, 1), count_pads=pool.count_pads,
        pads=four_pads(pool.pads), expr=epilogue, acc_bound=acc_bound,
    )  # fmt: skip
    four = kind.shape if len(kind.shape) == 4 else (*kind.shape[:2], 1, kind.shape[2])
    result = ctx.value(f"{output}.nhwc", kind.dtype, (four[0], four[2], four[3], four[1]))
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    ctx.node("pool2d", [nhwc, *operands], [result], attrs, like=node)
    if len(kind.shape) == 4:
        ctx.transpose(node, result, NCHW_OF_NHWC, output)
    else:
        ctx.view(node, ctx.transpose(node, result, NCHW_OF_NHWC), (), output)


def _max(ctx: Lowering, node: Node) -> None:
    _pool(ctx, node, node.inputs[0], node.outputs[0], acc(ctx.types[node.inputs[0]].dtype))


def _either(ctx: Lowering, node: Node) -> None:
    dtype = ctx.types[node.inputs[0]].dtype
    if Pool.of(node).kind == "lp" or Pool.of(node).rank > 2 or dtype not in KERNEL_TYPES:
        _by_loops(ctx, node, node.inputs[0], node.outputs[0])
    elif Pool.of(node).kind == "max":
        moves_integers(_max)(ctx, node)
    else:
        _lower(ctx, node)


@frozen
class Along:
    """The windows along one dimension: their number, and the padding before and after, which may be negative."""

    count: int
    before: int
    behind: int

    @classmethod
    def of(cls, size: int, kernel: int, stride: int, dilation: int, attrs: Attrs, dim: int, rank: int) -> "Along":
        """Return the windows of dimension `dim` of `rank` spatial ones."""
        mode = attrs.get("auto_pad", "NOTSET")
        before = behind = 0
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            missing = (-(-size // stride) - 1) * stride + kernel - size
            before = int((missing + (mode == "SAME_LOWER")) / 2)  # towards zero
            behind = missing - before
        elif mode != "VALID":
            _, _, pads = spatial_attributes(attrs, rank)
            before, behind = pads[dim], pads[rank + dim]
        room = size + before + behind - ((kernel - 1) * dilation + 1)
        if not attrs.get("ceil_mode"):
            return cls(int(room / stride) + 1, before, behind)
        count = math.ceil(room / stride) + 1
        return cls(count - ((count - 1) * stride >= size + before), before, behind)


def _form(node: OnnxNode) -> None:
    """MaxPool, AveragePool, LpPool and their global forms, with explicit padding."""
    kind, attrs = node.kind(0), node.attrs
    spatial = kind.shape[2:]
    if node.op.startswith("Global"):
        attrs = {"kernel_shape": spatial, "p": attrs.get("p", 2)}
    kernel, rank = tuple(attrs["kernel_shape"]), len(spatial)
    strides, dilations, _ = spatial_attributes(attrs, rank)
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise Unsupported(f"its kernel has {plural.count(len(kernel), 'dimension')}; its input has {rank}")
    check_window(attrs, kernel, strides, dilations)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(attrs.get("pads") or ())
    if any(pad >= span for pad, span in zip(pads, (*spans, *spans), strict=False)):
        raise Unsupported(f"its pads {list(pads)} make windows that contain only padding; windows span {spans}")
    sizes = zip(spatial, kernel, strides, dilations, strict=True)
    of_kind: Literal["max", "lp", "average"] = "max" if "Max" in node.op else "lp" if "Lp" in node.op else "average"
    if of_kind == "lp" and attrs.get("p", 2) < 1:
        raise Unsupported(f"p = {attrs['p']} is not supported")
    along = [Along.of(*window, attrs, dim, rank) for dim, window in enumerate(sizes)]
    shape = (*kind.shape[:2], *(a.count for a in along))
    if min(shape) < 0:
        raise Unsupported(f"its kernel is larger than its input {kind}")
    outputs = [name for name in node.outputs if name]
    for name in outputs:
        node.state.types[name] = TensorType(node.kind(name).dtype, shape)
        if 0 in shape:
            node.state.add_constant(name, np.zeros(shape, node.dtype(name)))
    if 0 in shape:
        return
    source, size = _cut(node, along)
    reached = [(a.count - 1) * strides[i] + spans[i] - size[i] - max(a.before, 0) for i, a in enumerate(along)]
    count_pads = bool(attrs.get("count_include_pad"))
    pool = Pool(
        kernel=kernel, strides=strides, dilations=dilations,
        pads=(*(max(a.before, 0) for a in along), *(max(behind, 0) for behind in reached)),
        kind=of_kind, count_pads=count_pads, p=attrs.get("p", 2),
        # With count_include_pad, only the declared padding counts, not the padding that ceil_mode adds.
        limits=tuple(s + max(a.behind, 0) * count_pads for s, a in zip(size, along, strict=True)),
    )  # fmt: skip
    if len(outputs) > 1:
        whole = MaxPoolIndices(column_major=bool(attrs.get("storage_order")), **vars(pool))
        node.emit(whole, op="MaxPoolIndices", inputs=[source])
        return
    node.emit(pool, op="Pool", inputs=[source], outputs=node.outputs[:1])


def _cut(node: OnnxNode, along: list[Along]) -> tuple[str, tuple[int, ...]]:
    """Return the input without the elements that negative padding removes at its start, and its spatial sizes."""
    kind = node.kind(0)
    first = (0, 0, *(max(-a.before, 0) for a in along))
    sizes = tuple(size - start for size, start in zip(kind.shape, first, strict=True))
    if not any(first):
        return node.inputs[0], sizes[2:]
    cut = node.value("cut", TensorType(kind.dtype, sizes))
    node.emit(Slice(first=first, stride=(1,) * len(first)), op="Slice", inputs=node.inputs[:1], outputs=[cut])
    return cut, sizes[2:]


def _is_spatial(node: OnnxNode) -> bool:
    """Whether the input has batch, channels and at least one spatial dimension."""
    return len(node.ins[0]) >= 3


def _qlinear_global(parts: QLinear) -> None:
    if parts.attrs.get("channels_last"):
        parts.quantize(parts("ReduceMean", parts.dequantize(0), [1, 2], keepdims=1), 3)
    else:
        parts.quantize(parts("GlobalAveragePool", parts.dequantize(0)), 3)


_GLOBAL_CASES = case(rank=(3, 4, 5))
_GLOBAL = replace(SLOW, of_nothing=False)


# MediaPipe's MaxPoolingWithArgmax2D and MaxUnpooling2D: maxima, and their positions in the windows, as floats.
#
# Source: mediapipe/util/tflite/operations/max_pool_argmax.cc, max_unpooling.cc.


class PoolingWithArgmax(Attributes):
    """Height and width of the windows, of the steps between them, of the pads before them, and of the output."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    out_size: tuple[int, ...]


def _argmax_values(ctx: Lowering, node: Node) -> dict[str, object]:
    a, shape = PoolingWithArgmax.of(node), ctx.types[node.inputs[0]].shape
    return {"shape": shape, "out_size": a.out_size, "window": a.window, "strides": a.strides, "pads": a.pads}


_ARGMAX = by_template("max_pool_argmax", "x", "best places", _argmax_values, math=True)
_UNPOOL_AT = by_template("max_unpool_window", "x places", "y", _argmax_values, math=True)


def _argmax_outputs(count: int) -> Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]:
    def outputs(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
        assert isinstance(attrs, PoolingWithArgmax)
        batch, _, _, channels = inputs[0].shape
        return [TensorType(DType.FLOAT32, (batch, *attrs.out_size, channels))] * count

    return outputs


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((3, 4, 4, 4, 5)))
    kernel = [rng.choice((1, 2, 2, 3)) for _ in value.shape[2:]]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": [rng.choice((1, 2, 2, 3)) for _ in kernel]}
    if rng.random() < 0.5:
        attrs["pads"] = [rng.randrange(kernel[n % len(kernel)]) for n in range(2 * len(kernel))]
    if op.name != "LpPool" and rng.random() < 0.3:
        attrs["ceil_mode"] = 1
    if op.name == "MaxPool" and rng.random() < 0.2:
        attrs["dilations"] = [rng.choice((1, 2)) for _ in kernel]
    if op.name == "AveragePool" and rng.random() < 0.5:
        attrs["count_include_pad"] = 1
    return Case([value.name], attrs)


def _by_loops(ctx: Lowering, node: Node, x: str, output: str) -> None:
    """Maximum, average and Lp pools of any rank."""
    kind, result, attrs = ctx.types[x], ctx.types[output], Pool.of(node)
    spatial, rank = attrs.rank, len(kind.shape)
    taps = [axis(rank + i) for i in range(spatial)]
    sizes = tuple((rank + i, size) for i, size in enumerate(attrs.kernel))
    positions = [position(axis(2 + i), taps[i], node, i) for i in range(spatial)]

    def tests(limits: Sequence[int]) -> list[Expr]:
        return [test for i in range(spatial) for test in within(positions[i], node, i, limits[i], result.shape[2 + i])]

    element = load(0, kind.dtype, (axis(0), axis(1), *positions))
    if attrs.kind == "max":
        low = float("-inf") if kind.dtype.is_float else kind.dtype.limits[0]
        body = guarded(tests(kind.shape[2:]), element, const(low, kind.dtype))
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
        "reduce", total_type, (guarded(tests(kind.shape[2:]), element, const(0, total_type)),), Reduction("add", sizes)
    )
    if attrs.kind == "lp":
        p = attrs.p
        final = total if p == 1 else call("sqrt", total) if p == 2 else call("pow", total, const(1 / p, total_type))
    else:
        counted = every(_counted(node, tests(attrs.limits)))
        if counted is None:
            count = const(math.prod(attrs.kernel), total_type)
        else:
            is_inside = choose(counted, const(1, total_type), const(0, total_type))
            count = Expr("reduce", total_type, (is_inside,), Reduction("add", sizes))
        final = call("div", total, count)
    ctx.loop(node, call("cast", final, dtype=result.dtype), [x], output)


def _counted(node: Node, tests: list[Expr]) -> list[Expr]:
    """Return the tests for elements that an average counts; with count_pads, including padding before the input."""
    if not Pool.of(node).count_pads:
        return tests
    return [test for test in tests if test.op == "less"]


def _max_pool_indices(ctx: Lowering, node: Node) -> dict[str, object]:
    x, result, attrs = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]], MaxPoolIndices.of(node)
    size = x.shape[2:]
    steps = tuple(math.prod(size[:dim]) for dim in range(len(size))) if attrs.column_major else strides_of(size)
    return {
        "kernel": attrs.kernel, "strides": attrs.strides, "dilations": attrs.dilations, "pads": attrs.pads,
        "planes": x.shape[0] * x.shape[1], "size": size, "out_size": result.shape[2:], "steps": steps,
    }  # fmt: skip


_INDICES = by_template("max_pool_indices", "input", "output indices", _max_pool_indices, wide=("input", "output"))


OPERATORS = (
    *(
        Operator(op, cases=_cases, canonical=_form, check_shapes=_is_spatial, folding=WINDOWS)
        for op in ("MaxPool", "AveragePool", "LpPool")
    ),
    *(
        Operator(op, cases=_GLOBAL_CASES, canonical=_form, check_shapes=_is_spatial, folding=_GLOBAL)
        for op in ("GlobalAveragePool", "GlobalLpPool")
    ),
    # onnx's reference evaluator is wrong for other than two spatial dimensions
    Operator(
        "GlobalMaxPool", cases=_GLOBAL_CASES, canonical=_form, check_shapes=_is_spatial,
        folding=replace(_GLOBAL, is_right=False),
    ),
    Operator("MaxPoolIndices", domain=OWN, attributes=MaxPoolIndices, lower=_INDICES),
    Operator("Pool", domain=OWN, attributes=Pool, lower=_either),
    Operator(
        "QLinearAveragePool", domain=MICROSOFT,
        cases=integers(case(rank=4, kernel_shape=([2, 1], [2, 2]), strides=([1, 1], [2, 1])), "0y"),
        expand=qlinear_unary("AveragePool", "channels_last"), zero_point={0: 2}.get,
    ),
    Operator(
        "QLinearGlobalAveragePool", domain=MICROSOFT, cases=integers(case(rank=4), "0y"),
        expand=QLinear.form(_qlinear_global), zero_point={0: 2}.get,
    ),
    Operator("MaxPoolArgmax", domain=OWN, attributes=PoolingWithArgmax, infer=_argmax_outputs(2), lower=_ARGMAX),
    Operator("MaxUnpoolWindow", domain=OWN, attributes=PoolingWithArgmax, infer=_argmax_outputs(1), lower=_UNPOOL_AT),
)  # fmt: skip
