"""Matrix products (ai.onnx MatMul, Gemm, MatMulInteger): a dense kernel for constant weights, else reductions."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import Reduction, acc, axis, broadcast_index, call, const, load
from mtool.compiler.ir.types import Array, low_bits_first
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.few_bits import bits_of
from mtool.compiler.kernels.matmul import Matmul
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.elementwise import FUSED_ACTIVATIONS, activated
from mtool.compiler.operators.epilogue import (
    Operands,
    centred,
    epilogue_of,
    float_bias,
    integer_dense,
    is_constant,
    operands_of,
)
from mtool.compiler.operators.folding import PRODUCT
from mtool.compiler.operators.lowering import Lowering, template_node
from mtool.compiler.operators.onnx_node import OnnxNode, QLinear, spreads
from mtool.compiler.operators.operator import Case, Draw, Operator, Part, Value, case, integers, normal, product
from mtool.compiler.operators.problems import MICROSOFT, Unsupported

MANY = 3  # the fewest rows for which integers are computed several rows at a time; 1 if the weights have a zero point


class Gemm(Attributes):
    """alpha * A * B + beta * C; `transA` and `transB`: A or B is transposed first (1) or not (0)."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0


def _dense(ctx: Lowering, node: Node, x: str, w: str, transposed: bool, bias: str, output: str) -> bool:
    """Append a dense kernel if the weights are constant; `w` is [K,N], or [N,K] if `transposed`."""
    if _by_groups(ctx, node, x, w, transposed, bias, output):
        return True
    channels = ctx.types[w].shape[0 if transposed else 1]
    operands = operands_of(ctx, x, w, bias, channels, 0 if transposed else 1)
    if operands.data is None or operands.bias is None:
        return False
    _append(ctx, node, replace(operands, data=operands.data if transposed else operands.data.T), output)
    return True


def _append(ctx: Lowering, node: Node, operands: Operands, output: str, shift: Sequence[str] = ()) -> None:
    """Append a dense kernel, or a 1x1 convolution for many rows.

    `shift`: what to subtract from the weights of each channel, and the sums of the inputs of each row.
    """
    source, integer = operands.source, operands.integer
    assert operands.data is not None
    rows = np.ascontiguousarray(operands.data)
    channels, depth = rows.shape
    sums, inputs = epilogue_of(ctx, node, rows, operands.bias, integer, operands.w_scale, axis_number=1)
    shape, kind = ctx.types[source].shape, ctx.types[output]
    flat = (math.prod(shape) // depth, depth)
    if shift:
        number = 1 + len(inputs)
        sums, inputs = replace(sums, expr=_shifted(sums.expr, number)), [*inputs, *shift]
    many = flat[0] >= MANY or (rows.dtype == np.int16 and flat[0] and ctx.types[source].dtype.size == 1)
    if integer is not None and many and integer.value not in ctx.limits:
        _rows_as_pixels(ctx, node, source, inputs, output, (*flat, channels), sums)
        return
    source = source if shape == flat else ctx.view(node, source, flat)
    attrs = Dense(**vars(sums))
    if kind.shape == (flat[0], channels):
        ctx.node("dense", [source, *inputs], [output], attrs, like=node)
    else:
        flat_output = ctx.value(f"{output}.flat", DType.FLOAT32, (flat[0], channels))
        ctx.node("dense", [source, *inputs], [flat_output], attrs, like=node)
        ctx.view(node, flat_output, kind.shape, output)


# Weights with a scale per group of inputs.
#
# Each group is a layer of its own, with a scale per channel, whose epilogue adds the sum of the groups before. So the
# kernels sum integers exactly within a group, and weights are stored in their bits.

MIN_GROUP, MAX_GROUPS = 8, 128  # inputs of a group, and groups of a layer, that are computed so


def _by_groups(ctx: Lowering, node: Node, x: str, w: str, transposed: bool, bias: str, output: str) -> bool:
    """Append a layer for each group of inputs whose weights share scales, if the weights have such groups."""
    depth_axis, integer = 1 if transposed else 0, ctx.integers(x, wide=True)
    stored, channels = ctx.dequantized.get(w), ctx.types[w].shape[1 - depth_axis]
    addend = float_bias(ctx, bias, channels)
    if stored is None or not stored.block or stored.axis != depth_axis or addend is None:
        return False
    weights, scales, points = (
        part if transposed else part.T for part in (ctx.constants[stored.value], stored.scale, stored.zero_point)
    )
    groups, block, depth = scales.shape[1], stored.block, weights.shape[1]
    too_wide = weights.dtype.itemsize > 1 or (integer is None and ctx.float_weights)
    if too_wide or block < MIN_GROUP or not 1 < groups <= MAX_GROUPS:
        return False
    data, shifts = _in_fewest_bits(weights, points, block)
    source = x if integer is None else integer.value
    rows, total = ctx.types[source].count // depth, ""
    for group, part in enumerate(_groups_of_inputs(ctx, node, source, rows, depth, block)):
        dtype, first = ctx.types[part].dtype, group * block
        shift = list[str]()
        if shifts[:, group].any():
            wide = DType.FLOAT32 if dtype.is_float else DType.INT32
            shift = [ctx.constant(f"{node.name}/shift", shifts[:, group].astype(wide.numpy))]
            shift.append(_sum_of_rows(ctx, node, part, 0 if integer is None else int(integer.zero_point[0])))
        addend = np.broadcast_to(addend, channels) if not group else np.zeros(channels)
        scaled = None if integer is None else replace(integer, value=part)
        operands = Operands(part, data[:, first : first + block], scaled, scales[:, group], addend)
        result = ctx.value(f"{output}.group", DType.FLOAT32, (rows, channels))
        _append(ctx, node, operands, result, shift)
        if total:
            pair = [result, total]
            result = ctx.value(f"{output}.sum", DType.FLOAT32, (rows, channels))
            ctx.loop(node, call("add", *ctx.operands(pair, (rows, channels))), pair, result)
        total = result
    ctx.view(node, total, ctx.types[output].shape, output)
    return True


def _in_fewest_bits(weights: Array, points: Array, block: int) -> tuple[Array, Array]:
    """Return int8 weights [N,K], and what is to be subtracted from those of each channel and group, int32 [N,G].

    The zero points are, unless weights less zero points have more bits.
    """
    wide = weights.astype(np.int32)
    centred = wide - points[:, np.arange(weights.shape[1]) // block]
    middle = (int(wide.min()) + int(wide.max()) + 1) // 2

    def bits(data: Array) -> int:
        return bits_of(int(data.min()), int(data.max())) or (8 if data.min() >= -128 and data.max() < 128 else 16)

    if bits(centred) <= bits(wide - middle):
        return centred.astype(np.int8), np.zeros_like(points)
    return (wide - middle).astype(np.int8), points - middle


def _groups_of_inputs(ctx: Lowering, node: Node, x: str, rows: int, depth: int, block: int) -> Iterator[str]:
    """Yield the inputs of each group, [rows, block]; the last may be smaller."""
    dtype, even = ctx.types[x].dtype, depth % block == 0
    if rows > 1 and even:
        x = ctx.transpose(node, ctx.view(node, x, (rows, depth // block, block)), (1, 0, 2))
    for first in range(0, depth, block):
        size = min(block, depth - first)
        part = ctx.value(f"{x}.group", dtype, (rows, size))
        if rows > 1 and not even:
            flat = ctx.view(node, x, (rows, depth))
            yield ctx.loop(node, load(0, dtype, (axis(0), axis(1) + first)), [flat], part)
        else:
            yield ctx.view(node, x, (rows, size), part, first=first * rows)


def _sum_of_rows(ctx: Lowering, node: Node, x: str, zero_point: int) -> str:
    """Append the sum of each row's inputs less their zero point, float32 or int32 [rows, 1]."""
    kind = ctx.types[x]
    dtype = DType.FLOAT32 if kind.dtype.is_float else DType.INT32
    element = call("cast", load(0, kind.dtype, (axis(0), Expr("axis", DType.INT32, value=2))), dtype=dtype)
    total = Expr("reduce", dtype, (element,), Reduction("add", ((2, kind.shape[1]),)))
    if zero_point:
        total = call("sub", total, const(zero_point * kind.shape[1], dtype))
    return ctx.loop(node, total, [x], ctx.value(f"{x}.sum", dtype, (kind.shape[0], 1)))


def _shifted(epilogue: Expr, number: int) -> Expr:
    """Return an epilogue of sums less the product of operands `number` (per channel) and `number` + 1 (per row)."""

    def less(part: Expr) -> Expr:
        if part.op != "acc":
            return part
        factors = [load(number, part.dtype, (axis(1),)), load(number + 1, part.dtype, (axis(0), const(0, DType.INT32)))]
        return call("sub", part, call("mul", *factors))

    return epilogue.rewrite(less)


def _rows_as_pixels(
    ctx: Lowering,
    node: Node,
    source: str,
    inputs: list[str],
    output: str,
    sizes: tuple[int, int, int],
    sums: WeightedSum,
) -> None:
    """Append a 1x1 convolution whose pixels are the rows, so that several rows share each weight.

    `sizes` are rows, depth and channels; the epilogue is the same as for a dense layer.
    """
    rows, depth, channels = sizes
    weights = ctx.constants[inputs[0]].reshape(channels, 1, 1, depth)
    inputs = [ctx.constant(f"{node.name}/weights", weights), *inputs[1:]]
    moved = sums.epilogue.with_axes({0: axis(1), 1: axis(3)})
    image = ctx.view(node, source, (1, rows, 1, depth))
    pixels = ctx.value(f"{output}.pixels", DType.FLOAT32, (1, rows, 1, channels))
    attrs = Conv2d(kernel=(1, 1), **vars(replace(sums, expr=moved)))
    ctx.node("conv2d", [image, *inputs], [pixels], attrs, like=node)
    ctx.view(node, pixels, (), output)


def _matmul(ctx: Lowering, node: Node) -> None:
    """MatMul 13: constant two-dimensional weights become a dense kernel."""
    a, b = node.inputs
    output = node.outputs[0]
    dense = (
        is_constant(ctx, b)
        and len(ctx.types[b].shape) == 2
        and len(ctx.types[a].shape) >= 1
        and ctx.types[a].dtype is DType.FLOAT32
    )
    if dense and ctx.types[a].count and _banded(ctx, node, a, b):
        return
    if dense and ctx.types[a].count and _dense(ctx, node, a, b, False, "", output):
        return
    _product(ctx, node, a, b, output)


_MIN_DEPTH, _FEW = 64, 4  # elements of a column, and the share (1/4) of them that its nonzero ones span at most


def _banded(ctx: Lowering, node: Node, a: str, b: str) -> bool:
    """Multiply by the weights of a filter bank, of whose columns only a few consecutive elements are not 0."""
    if b not in ctx.constants:
        return False
    weights = ctx.constants[b]
    depth, columns = weights.shape
    if depth < _MIN_DEPTH or depth > np.iinfo(np.int16).max or weights.dtype != np.float32:
        return False
    used = weights != 0
    starts = np.where(used.any(0), used.argmax(0), 0)
    ends = np.where(used.any(0), depth - used[::-1].argmax(0), 0)
    if (ends - starts).sum() * _FEW > weights.size:
        return False
    packed = np.concatenate([weights[start:end, n] for n, (start, end) in enumerate(zip(starts, ends, strict=True))])
    tables = {"weights": packed, "starts": starts.astype(np.int16), "widths": (ends - starts).astype(np.int16)}
    inputs = {"x": a} | {name: ctx.constant(f"{node.name}/{name}", data) for name, data in tables.items()}
    rows = ctx.types[a].count // depth
    values = {"rows": rows, "depth": depth, "columns": columns}
    template_node(ctx, node, "banded_product", inputs, {"y": node.outputs[0]}, values, macs=rows * int(packed.size))
    return True


def _product(ctx: Lowering, node: Node, a: str, b: str, output: str) -> None:
    """Append any product, batched and broadcast: a kernel for 8-bit integers, otherwise a reduction."""
    if product_of_integers(ctx, node, a, b, output):
        return
    kind, left, right = ctx.types[output], ctx.types[a].shape, ctx.types[b].shape
    rank = len(kind.shape)
    k = Expr("axis", DType.INT32, value=rank)
    columns = len(right) > 1
    batch = kind.shape[: rank - (len(left) > 1) - columns]
    row, column = axis(len(batch)), axis(rank - 1)
    a_index = (*broadcast_index(left[:-2], batch), row, k) if len(left) > 1 else (k,)
    b_index = (*broadcast_index(right[:-2], batch), k, column) if columns else (k,)
    body = call("mul", load(0, kind.dtype, a_index), load(1, kind.dtype, b_index))
    total = Expr("reduce", kind.dtype, (body,), Reduction("add", ((rank, left[-1]),)))
    ctx.loop(node, total, [a, b], output)


def _gemm(ctx: Lowering, node: Node) -> None:
    """Gemm 13: alpha * A' * B' + beta * C."""
    a, b = node.inputs[:2]
    c = node.inputs[2] if len(node.inputs) > 2 else ""
    attrs = Gemm.of(node)
    alpha, beta = attrs.alpha, attrs.beta
    output = node.outputs[0]
    kind = ctx.types[output]
    plain = alpha == 1.0 and beta == 1.0 and not attrs.transA and kind.dtype is DType.FLOAT32
    row_bias = not c or ctx.types[c].count == 1 or ctx.types[c].count == ctx.types[c].shape[-1] == kind.shape[1]
    if plain and row_bias and is_constant(ctx, b) and _dense(ctx, node, a, b, bool(attrs.transB), c, output):
        return
    if attrs.transA:
        a = ctx.transpose(node, a, (1, 0))
    if attrs.transB:
        b = ctx.transpose(node, b, (1, 0))
    product = ctx.value(f"{output}.product", kind.dtype, kind.shape)
    _product(ctx, node, a, b, product)
    inputs = [product, *([c] if c else [])]
    loads = ctx.operands(inputs, kind.shape)
    result = call("mul", loads[0], const(alpha, kind.dtype)) if alpha != 1.0 else loads[0]
    if c:
        addend = call("mul", loads[1], const(beta, kind.dtype)) if beta != 1.0 else loads[1]
        result = call("add", result, addend)
    ctx.loop(node, result, inputs)


def _matmul_integer(ctx: Lowering, node: Node) -> None:
    """MatMulInteger 10: zero points are scalars, or one per row of A or column of B."""
    if integer_dense(ctx, node):
        return
    a, b = (centred(ctx, node, operand, DType.INT32) for operand in (0, 1))
    _product(ctx, node, a, b, node.outputs[0])


def _fits_points(node: OnnxNode) -> bool:
    """Whether zero points are per tensor, per row of A or column of B, or those per matrix of a batch."""
    a, b = node.ins[0], node.ins[1]
    rows = ((), (1,), a[-2:-1], (*a[:-1], 1))
    columns = ((), (1,), b[-1:], (*b[:-2], 1, *b[-1:]))
    return node.is_absent_or(2, *rows) and node.is_absent_or(3, *columns)


def _carry_matmul(bounded: Bounded) -> int | None:
    rank, operand = len(bounded.types[bounded.operand].shape), bounded.operand
    if not bounded.single or rank < 2 or bounded.axis == (rank - 1 if operand == 0 else rank - 2):
        return None
    return bounded.axis + len(bounded.result.shape) - rank


def _carry_gemm(bounded: Bounded) -> int | None:
    attrs, operand = Gemm.of(bounded), bounded.operand
    if not bounded.single or operand > 1:
        return None
    row = (1 if attrs.transA else 0) if operand == 0 else (0 if attrs.transB else 1)
    return operand if bounded.axis == row else None


def _fused_gemm(write: OnnxNode) -> None:
    name = write.word("activation", "")
    keys = {"alpha": "activation_alpha", "beta": "activation_beta"}
    parameters = {
        key: write.attrs[keys[key]] for key in FUSED_ACTIVATIONS.get(name, ()) if keys.get(key) in write.attrs
    }
    attrs = {key: value for key, value in write.attrs.items() if not key.startswith("activation")}
    write.set_output(activated(write, write("Gemm", *filter(None, write.inputs), **attrs), name, parameters))


def _fused_matmul(write: OnnxNode) -> None:
    """FusedMatMul, TransposeMatMul: transposed operands, and the product times alpha."""
    write.refuse(transBatchA=write.attrs.get("transBatchA"), transBatchB=write.attrs.get("transBatchB"))
    operands = []
    for index, key in ((0, "transA"), (1, "transB")):
        value = write.input(index)
        rank = len(write.kind(value).shape)
        if write.attrs.get(key) and rank > 1:
            value = write("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    product = write("MatMul", *operands)
    alpha = write.attrs.get("alpha", 1.0)
    write.set_output(product if alpha == 1 else write("Mul", product, alpha))


def _scaled(write: OnnxNode, product: str, scale: str, bias: str) -> str:
    """Return an integer product as float, times a scale, plus a bias."""
    result = write("Mul", write("Cast", product, to=1), scale)
    return write("Add", result, bias) if bias else result


def integer_product(write: OnnxNode, a: str, b: str, points: tuple[str, str]) -> str:
    """Return (a - a's zero point) x (b - b's zero point) as int32; an empty name is a zero point of 0."""
    operands = list(points)
    if operands[1] and not operands[0]:
        operands[0] = write.constant(0, write.dtype(a))
    while operands and not operands[-1]:
        operands.pop()
    return write("MatMulInteger", a, b, *operands)


def _to_float(write: OnnxNode) -> None:
    """MatMulIntegerToFloat(A, B, A's scale, B's scale, A's zero point, B's zero point, bias)."""
    product = integer_product(write, write.input(0), write.input(1), (write.input(4), write.input(5)))
    write.set_output(_scaled(write, product, write("Mul", write.input(2), write.input(3)), write.input(6)))


def _dynamic(write: OnnxNode) -> None:
    """DynamicQuantizeMatMul(A, B, B's scale, B's zero point, bias): A is quantized to uint8 by its own range."""
    codes, scale, point = write.several("DynamicQuantizeLinear", 3, write.input(0))
    product = integer_product(write, codes, write.input(1), (point, write.input(3)))
    write.set_output(_scaled(write, product, write("Mul", scale, write.input(2)), write.input(4)))


def _n_bits(write: OnnxNode) -> None:
    """MatMulNBits: B is uint8 [N, blocks, bytes], its numbers of 2, 4 or 8 bits in the low bits of a byte first.

    `accuracy_level` lets onnxruntime round activations to fewer bits; here they are floats.
    """
    attrs = write.attrs
    bits, size, rows, columns = (
        attrs.get(key, default) for key, default in (("bits", 4), ("block_size", 0), ("N", 0), ("K", 0))
    )
    if bits not in (2, 4, 8):
        raise Unsupported(f"its weights have {bits} bits; expected 2, 4 or 8")
    if size < 16 or size & (size - 1):
        raise Unsupported(f"its block_size is {size}; expected a power of two from 16 on")
    write.refuse(weight_scale_2=write.input(6))
    blocks, blocks_in_order = -(-columns // size), np.arange(columns) // size
    groups = _sized(write, 4, "g_idx", columns) if write.input(4) else blocks_in_order  # the block of each input
    if groups.size and not 0 <= groups.min() <= groups.max() < blocks:
        raise Unsupported(f"its g_idx is outside of its {blocks:,} blocks")
    order = groups.argsort(kind="stable")
    packed = _sized(write, 1, "B", rows * blocks * size * bits // 8)
    codes = low_bits_first(packed.reshape(rows, -1), bits)[:, :columns]
    scales = _sized(write, 2, "scales", rows * blocks).reshape(rows, blocks)
    points: Array = np.full((rows, blocks), 1 << (bits - 1), np.uint8)
    if write.input(3):
        points = write.state.value_of(write.input(3), "zero_points")
        if points.dtype == np.uint8:
            bytes_of_row = -(-blocks * bits // 8)
            points = low_bits_first(_sized(write, 3, "zero_points", rows * bytes_of_row).reshape(rows, -1), bits)
            points = points[:, :blocks]
        else:
            points = _sized(write, 3, "zero_points", rows * blocks).reshape(rows, blocks)
    x, dtype = write.input(0), write.dtype(write.input(0))
    if points.dtype == np.uint8 and dtype == np.float32 and np.array_equal(groups[order], blocks_in_order):
        if not np.array_equal(groups, blocks_in_order):
            x = write("Gather", x, order, axis=-1)
        parts = (np.ascontiguousarray(part.T) for part in (codes[:, order], scales.astype(np.float32), points))
        weights = write("DequantizeLinear", *parts, axis=0, block_size=size)
    else:
        real = (codes.astype(np.float32) - points[:, groups].astype(np.float32)) * scales[:, groups].astype(np.float32)
        weights = write.constant(np.ascontiguousarray(real.T), dtype)
    result = write("MatMul", x, weights)
    write.set_output(write("Add", result, write.input(5)) if write.input(5) else result)


def _sized(write: OnnxNode, index: int, role: str, count: int) -> Array:
    """Return a constant input that has to have a number of elements."""
    data = write.state.value_of(write.input(index), role)
    if data.size != count:
        raise Unsupported(f"its {role} has {data.size:,} elements; expected {count:,}")
    return data


def _qlinear_matmul(parts: QLinear) -> None:
    last = len(parts.kind(3).shape) - 1
    parts.quantize(parts("MatMul", parts.dequantize(0), parts.dequantize(3, axis=last)), 6)


def _qgemm(parts: QLinear) -> None:
    inputs = [parts.dequantize(0), parts.dequantize(3, axis=0 if parts.attrs.get("transB") else 1)]
    if parts.inputs[6]:
        inputs.append(parts.bias(6, parts.inputs[1], parts.inputs[4]))
    parts.quantize(parts("Gemm", *inputs, **parts.attrs), 7)


def product_of_integers(ctx: Lowering, node: Node, a: str, b: str, output: str) -> bool:
    """Append a matmul kernel if both operands are dequantized 8-bit integers, and neither is a vector."""
    left, right = ctx.integers(a), ctx.integers(b)
    kind = ctx.types[output]
    if left is None or right is None or kind.dtype is not DType.FLOAT32 or not kind.count:
        return False
    shapes = [ctx.types[value].shape for value in (a, b)]
    if any(len(shape) < 2 for shape in shapes):
        return False
    depth, rank = shapes[0][-1], len(kind.shape)
    points = [int(part.zero_point.reshape(-1)[0]) for part in (left, right)]
    reaches = []
    for part, point in zip((left, right), points, strict=True):
        low, high = ctx.types[part.value].dtype.limits
        reaches.append(max(high - point, point - low))
    bound = depth * math.prod(reaches)
    if bound >= 2**31:
        return False
    strides = [_strides(shape, rank) for shape in shapes]
    factor = const(float(left.scale.reshape(-1)[0] * right.scale.reshape(-1)[0]), DType.FLOAT32)
    attrs = Matmul(
        depth=depth, a=strides[0], b=strides[1], points=(points[0], points[1]), acc_bound=bound,
        expr=call("mul", call("cast", acc(DType.INT32), dtype=DType.FLOAT32), factor),
    )  # fmt: skip
    ctx.node("matmul", [left.value, right.value], [output], attrs, like=node)
    return True


def _strides(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return an operand's strides in elements, padded to the output's rank, with 0 along broadcast dimensions."""
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    batch = [0 if size == 1 else step for size, step in zip(shape[:-2], steps[:-2], strict=True)]
    return (*(0,) * (rank - len(shape)), *batch, *steps[-2:])


def _matmul_cases(draw: Draw, op: Operator) -> Case:
    """A constant on either side, or two values."""
    rng, value = draw.rng, draw.pick(rank=draw.rng.choice((1, 2, 2, 3, 3, 4)))
    *outer, rows, depth = (1, *value.shape)[-value.rank - (value.rank == 1) :]
    spread, roll = max(1, depth) ** -0.5, rng.random()
    fitting = [v.name for v in draw.values.values() if v.dtype == np.float32 and v.shape[-2:-1] == (depth,)]
    if roll < 0.2 and fitting:
        return Case([value.name, rng.choice(fitting)])
    if roll < 0.4 and value.rank > 1:
        return Case([draw.normal((rng.randint(1, 9), rows), rows**-0.5 if rows else 1), value.name])
    batch = outer if roll > 0.85 and value.rank > 2 else []
    return Case([value.name, draw.normal((*batch, depth, rng.randint(1, 9)), spread)])


def _flat_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=2)
    return Case([value.name, draw.normal((value.shape[1], 5), max(1, value.shape[1]) ** -0.5)])


def _codes(draw: Draw, value: Value) -> str:
    """Draw 7-bit weights, with which products of uint8 and int8 can't saturate."""
    return draw.constant(draw.numbers().integers(-64, 64, (value.shape[-1], 4)), np.int8)


def _number(low: float, high: float) -> Part:
    return lambda draw, value: draw.constant(draw.rng.uniform(low, high), np.float32)


def _integer_cases(draw: Draw, op: Operator) -> Case:
    """Draw zero points that are one number, or one per column of B."""
    value = draw.pick(np.uint8, draw.rng.choice((2, 3)))
    points = [draw.constant(draw.rng.randint(0, 255), np.uint8), draw.constant(draw.rng.choice((0, 3)), np.int8)]
    if not value.size:
        raise ValueError("no weights")  # onnxruntime does not write the results of an empty integer product
    scales = [draw.constant(0.02, np.float32), draw.constant(0.01, np.float32)] if "Float" in op.name else []
    return Case([value.name, _codes(draw, value), *scales, *points])


_SCALE = _number(0.01, 0.02)
_FOUR_BITS = case(
    lambda draw, x: draw.constant(draw.numbers().integers(0, 256, (3, -(-x.shape[-1] // 16), 8)), np.uint8),
    normal(lambda shape: (3 * -(-shape[-1] // 16),)), rank=2, N=(3,), bits=(4,), block_size=(16,),
    K=lambda draw, x: x.shape[-1],
)  # fmt: skip


def _gemm_cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=2)
    ta, tb, count = rng.random() < 0.3, rng.random() < 0.5, rng.randint(1, 9)
    rows, depth = value.shape[::-1] if ta else value.shape
    weights = draw.normal((count, depth) if tb else (depth, count), max(1, depth) ** -0.5)
    bias = [draw.normal(rng.choice(((count,), (1, count), (rows, 1), ())))] if rng.random() < 0.7 else []
    alpha, beta = rng.choice((1.0, 0.5)), rng.choice((1.0, 2.0))
    beta = beta if depth else 1.0  # onnxruntime ignores it for an empty product
    return Case([value.name, weights, *bias], {"alpha": alpha, "beta": beta, "transA": int(ta), "transB": int(tb)})


def _fused_gemm_cases(draw: Draw, op: Operator) -> Case:
    drawn = _gemm_cases(draw, op)
    return replace(drawn, attrs={**drawn.attrs, "activation": draw.rng.choice(("Relu", "Tanh", "Sigmoid"))})


OPERATORS = (
    Operator("MatMul", cases=_matmul_cases, carry=_carry_matmul, folding=PRODUCT, lower=_matmul),
    Operator(
        "Gemm", cases=_gemm_cases, attributes=Gemm, shapes_from=7,
        check_shapes=lambda node: spreads(node.ins[2], node.outs[0]), carry=_carry_gemm, folding=PRODUCT, lower=_gemm,
    ),
    Operator(
        "MatMulInteger", cases=_integer_cases, check_shapes=_fits_points, zero_point={0: 2, 1: 3}.get, folding=PRODUCT,
        lower=_matmul_integer,
    ),
    Operator(
        "QLinearMatMul", cases=integers(_flat_cases, "01y", product), expand=QLinear.form(_qlinear_matmul),
        zero_point={0: 2, 3: 5}.get,
    ),
    Operator(
        "QGemm", domain=MICROSOFT, cases=integers(_flat_cases, "01by", product), expand=QLinear.form(_qgemm),
        zero_point={0: 2, 3: 5}.get,
    ),
    Operator("FusedGemm", domain=MICROSOFT, cases=_fused_gemm_cases, expand=_fused_gemm),
    *(Operator(
        op, domain=MICROSOFT, cases=_flat_cases, expand=_fused_matmul,
    ) for op in ("FusedMatMul", "TransposeMatMul")),
    Operator("MatMulIntegerToFloat", domain=MICROSOFT, cases=_integer_cases, expand=_to_float),
    Operator("DynamicQuantizeMatMul", domain=MICROSOFT, cases=case(_codes, _SCALE, rank=(2, 3)), expand=_dynamic),
    Operator("MatMulNBits", domain=MICROSOFT, cases=_FOUR_BITS, expand=_n_bits),
)  # fmt: skip
