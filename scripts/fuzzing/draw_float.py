"""Operators of float networks: each draws its attributes and constants, and appends a node or a few."""

from collections.abc import Callable

import numpy as np

from scripts.fuzzing.networks import Net, Value

Draw = Callable[[Net], object]
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSwish", "Elu", "Selu", "Celu", "Softplus", "Erf", "LeakyRelu",
         "HardSigmoid", "Sin", "Cos", "Softsign", "Mish", "Identity", "ThresholdedRelu", "Atan")  # fmt: skip


def unary(net: Net) -> None:
    """An elementwise function."""
    op = net.rng.choice(UNARY)
    attrs = {"alpha": net.rng.choice((0.1, 0.5, 1.0))} if op in ("Elu", "LeakyRelu", "Celu") else {}
    net.one(op, [net.pick().name], **attrs)


def clip(net: Net) -> None:
    """Clip with one or both bounds, or PRelu."""
    rng, value = net.rng, net.pick()
    if rng.random() < 0.3:
        net.one("PRelu", [value.name, net.normal(_broadcast(net, value))])
        return
    low = net.constant(-0.5, np.float32) if rng.random() < 0.7 else ""
    net.one("Clip", [value.name, low, net.constant(rng.choice((0.6, 6.0)), np.float32)])


def _broadcast(net: Net, value: Value) -> tuple[int, ...]:
    """Draw a shape that broadcasts to a value's."""
    shape = [1 if net.rng.random() < 0.4 else size for size in value.shape]
    return tuple(shape[net.rng.randint(0, len(shape)) :] if net.rng.random() < 0.4 else shape)


def binary(net: Net) -> None:
    """An arithmetic operator with a constant, with another value or with the value itself."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Add", "Add", "Mul", "Mul", "Sub", "Max", "Min", "Div"))
    roll = rng.random()
    others = [v for v in net.values.values() if v.dtype == np.float32 and _fits(v.shape, value.shape)]
    if op == "Div":
        bottom = net.constant(abs(net.numbers().normal(0, 1, _broadcast(net, value))) + 0.5, np.float32)
        net.one("Div", [value.name, bottom])
    elif roll < 0.5 and len(others) > 1:
        pair = [value.name, rng.choice(others).name]
        rng.shuffle(pair)
        net.one(op, pair)
    else:
        pair = [value.name, net.normal(_broadcast(net, value), 1.0)]
        rng.shuffle(pair)
        net.one(op, pair)


def _fits(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(two), strict=False))


def variadic(net: Net) -> None:
    """Sum, Mean, Max or Min of several."""
    value = net.pick()
    inputs = [value.name, net.normal(_broadcast(net, value)), net.normal(value.shape)][: net.rng.randint(1, 3)]
    net.one(net.rng.choice(("Sum", "Mean", "Max", "Min")), inputs)


def compare(net: Net) -> None:
    """A comparison, and Where on it."""
    value = net.pick()
    mask = net.one(net.rng.choice(("Less", "Greater", "GreaterOrEqual")), [value.name, net.normal((), 0.7)])
    if net.rng.random() < 0.3:
        mask = net.one("Not", [mask.name])
    net.one("Where", [mask.name, value.name, net.normal(_broadcast(net, value))])


def conv(net: Net) -> None:
    """Conv of one to three spatial dimensions: groups, dilations, strides, asymmetric padding."""
    rng, value = net.rng, net.pick(rank=net.rng.choice((3, 4, 4, 4, 4, 5)))
    spatial, channels = value.rank - 2, value.shape[1]
    if channels == 0:
        raise ValueError("no channels")
    kernel = [rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(spatial)]
    group = rng.choice([g for g in (1, 1, 1, 2, 3, channels) if channels % g == 0])
    out = group * rng.choice((1, 1, 2, 3, 4))
    attrs = {"group": group, "strides": [rng.choice((1, 1, 1, 2, 3)) for _ in kernel]}
    if rng.random() < 0.2:
        attrs["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attrs["dilations"] = [rng.choice((1, 1, 1, 2)) for _ in kernel]
        attrs["pads"] = [rng.choice((0, 0, 1, 2)) for _ in range(2 * spatial)]
        attrs["pads"] = [min(p, (kernel[n % spatial] - 1) * 2) for n, p in enumerate(attrs["pads"])]
    fan = channels // group * int(np.prod(kernel))
    inputs = [value.name, net.normal((out, channels // group, *kernel), fan**-0.5)]
    if rng.random() < 0.6:
        inputs.append(net.normal((out,), 0.3))
    made = net.one("Conv", inputs, **attrs)
    if rng.random() < 0.4:
        net.one(rng.choice(("Relu", "HardSwish", "Sigmoid", "Clip")), [made.name])


def conv_transpose(net: Net) -> None:
    """ConvTranspose."""
    rng, value = net.rng, net.pick(rank=net.rng.choice((3, 4)))
    channels = value.shape[1]
    group = rng.choice([g for g in (1, 1, 2, channels) if g and channels % g == 0])
    kernel = [rng.choice((1, 2, 3)) for _ in value.shape[2:]]
    strides = [rng.choice((1, 2)) for _ in kernel]
    attrs = {"group": group, "strides": strides, "output_padding": [rng.randrange(s) for s in strides]}
    attrs["pads"] = [rng.choice((0, 0, 1)) if kernel[n % len(kernel)] > 1 else 0 for n in range(2 * len(kernel))]
    attrs["dilations"] = [rng.choice((1, 1, 2)) for _ in kernel]
    net.one("ConvTranspose", [value.name, net.normal((channels, rng.randint(1, 3), *kernel))], **attrs)


def pool(net: Net) -> None:
    """MaxPool, AveragePool, LpPool and the global ones."""
    rng, value = net.rng, net.pick(rank=net.rng.choice((3, 4, 4, 4, 5)))
    if rng.random() < 0.2:
        net.one(rng.choice(("GlobalAveragePool", "GlobalMaxPool")), [value.name])
        return
    op = rng.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    kernel = [rng.choice((1, 2, 2, 3)) for _ in value.shape[2:]]
    attrs = {"kernel_shape": kernel, "strides": [rng.choice((1, 2, 2, 3)) for _ in kernel]}
    if rng.random() < 0.5:
        attrs["pads"] = [rng.randrange(kernel[n % len(kernel)]) for n in range(2 * len(kernel))]
    if op != "LpPool" and rng.random() < 0.3:
        attrs["ceil_mode"] = 1
    if op == "MaxPool" and rng.random() < 0.2:
        attrs["dilations"] = [rng.choice((1, 2)) for _ in kernel]
    if op == "AveragePool" and rng.random() < 0.5:
        attrs["count_include_pad"] = 1
    net.one(op, [value.name], **attrs)


def matmul(net: Net) -> None:
    """MatMul with a constant on either side, or of two values."""
    rng, value = net.rng, net.pick()
    if value.rank < 1:
        raise ValueError("a scalar")
    spread = max(1, value.shape[-1]) ** -0.5
    roll = rng.random()
    if roll < 0.55 or value.rank < 2:
        net.one("MatMul", [value.name, net.normal((value.shape[-1], rng.randint(1, 9)), spread)])
    elif roll < 0.7:
        net.one("MatMul", [net.normal((rng.randint(1, 9), value.shape[-2]), spread), value.name])
    elif roll < 0.8:
        net.one("MatMul", [value.name, net.normal((*value.shape[:-2], value.shape[-1], rng.randint(1, 5)), spread)])
    else:
        turned = net.one("Transpose", [value.name], perm=[*range(value.rank - 2), value.rank - 1, value.rank - 2])
        net.one("MatMul", [value.name, turned.name])


def gemm(net: Net) -> None:
    """Gemm, transposed or not."""
    rng, value = net.rng, net.pick(rank=2)
    ta, tb, count = rng.random() < 0.3, rng.random() < 0.5, rng.randint(1, 9)
    rows, depth = value.shape[::-1] if ta else value.shape
    weights = net.normal((count, depth) if tb else (depth, count), max(1, depth) ** -0.5)
    bias = [net.normal(rng.choice(((count,), (1, count), (rows, 1), ())))] if rng.random() < 0.7 else []
    attrs = {"alpha": rng.choice((1.0, 0.5)), "beta": rng.choice((1.0, 2.0))}
    net.one("Gemm", [value.name, weights, *bias], transA=int(ta), transB=int(tb), **attrs)


def reduce(net: Net) -> None:
    """A reduction over any axes."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Sum", "Mean", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp"))
    axes = rng.sample(range(value.rank), rng.randint(0, value.rank))
    axes = [axis - value.rank if rng.random() < 0.3 else axis for axis in axes]
    net.one(f"Reduce{op}", [value.name, net.whole(axes)] if axes else [value.name], keepdims=rng.randint(0, 1))


def softmax(net: Net) -> None:
    """Softmax or its like over any axis."""
    value = net.pick()
    net.one(net.rng.choice(("Softmax", "Softmax", "Softmax", "LogSoftmax")), [value.name], axis=net.axis(value))


def normalise(net: Net) -> None:
    """LayerNormalization, InstanceNormalization, BatchNormalization, LRN, LpNormalization."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LRN", "LpNormalization"))
    if value.rank < 2 or 0 in value.shape:
        raise ValueError("too few dimensions")
    channels = value.shape[1]
    if op == "LayerNormalization":
        axis = net.axis(value)
        shape = value.shape[axis:]
        net.one(op, [value.name, net.normal(shape), net.normal(shape)][: rng.choice((2, 3))], axis=axis)
    elif op == "BatchNormalization":
        spread = net.constant(abs(net.numbers().normal(1, 0.2, channels)), np.float32)
        net.one(op, [value.name, *(net.normal((channels,)) for _ in range(3)), spread])
    elif op == "InstanceNormalization":
        net.one(op, [value.name, net.normal((channels,)), net.normal((channels,))])
    elif op == "LRN":
        net.one(op, [value.name], size=rng.choice((1, 3, 5)))
    else:
        net.one(op, [value.name], axis=net.axis(value), p=rng.choice((1, 2)))


def transpose(net: Net) -> None:
    """Any permutation."""
    value = net.pick()
    net.one("Transpose", [value.name], perm=net.rng.sample(range(value.rank), value.rank))


def reshape(net: Net) -> None:
    """Reshape, Flatten, Squeeze or Unsqueeze."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"))
    if op == "Reshape":
        sizes, left = [], value.size
        while left > 1 and len(sizes) < 4:
            part = rng.choice([n for n in range(1, left + 1) if left % n == 0]) if len(sizes) < 3 else left
            sizes.append(part)
            left //= part
        sizes = [*sizes, left] if left != 1 or not sizes else sizes
        if value.size and rng.random() < 0.3:
            sizes[rng.randrange(len(sizes))] = -1
        net.one(op, [value.name, net.whole(sizes if value.size else value.shape)])
    elif op == "Flatten":
        net.one(op, [value.name], axis=rng.randint(0, value.rank))
    elif op == "Squeeze":
        ones = [axis for axis, size in enumerate(value.shape) if size == 1]
        net.one(op, [value.name, net.whole(rng.sample(ones, rng.randint(1, len(ones))))] if ones else [value.name])
    elif value.rank < 5:
        net.one(op, [value.name, net.whole([rng.randint(0, value.rank)])])


def concat(net: Net) -> None:
    """Concat of a value with constants, itself or a value of its shape."""
    rng, value = net.rng, net.pick()
    axis = net.axis(value)
    shape = list(value.shape)
    shape[axis] = rng.randint(0 if rng.random() < 0.05 else 1, 4)
    same = [v.name for v in net.values.values() if v.dtype == np.float32 and v.shape == value.shape]
    parts = [value.name, net.normal(shape), rng.choice(same)][: rng.randint(1, 3)]
    rng.shuffle(parts)
    net.one("Concat", parts, axis=axis)


def split(net: Net) -> None:
    """Split into two or three; all parts can be read."""
    rng, value = net.rng, net.pick()
    axis = net.axis(value)
    size = value.shape[axis]
    first = rng.randint(0 if rng.random() < 0.05 else 1, max(1, size - 1))
    net.add("Split", [value.name, net.whole([first, size - first])], 2, axis=axis)


def slice_(net: Net) -> None:
    """Slice with steps of either sign."""
    rng, value = net.rng, net.pick()
    axes = rng.sample(range(value.rank), rng.randint(1, max(1, value.rank)))
    starts, ends, steps = [], [], []
    for axis in axes:
        size = value.shape[axis]
        step = rng.choice((1, 1, 2, -1, -2, 3))
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        low, high = (low, high) if high - low >= 1 or rng.random() < 0.05 else (0, size)
        starts.append(low if step > 0 else high - 1)
        ends.append(high if step > 0 else low - 1 if low else -size - 1)
        steps.append(step)
    net.one("Slice", [value.name, *map(net.whole, (starts, ends, axes, steps))])


def pad(net: Net) -> None:
    """Pad with a constant, edge, reflection or wrap; negative pads crop."""
    rng, value = net.rng, net.pick()
    mode = rng.choice(("constant", "constant", "edge", "reflect"))
    pads = [rng.choice((0, 0, 1, 2)) for _ in range(2 * value.rank)]
    if mode == "constant" and rng.random() < 0.2 and value.rank:
        pads[rng.randrange(len(pads))] = -1
    if mode == "reflect":
        pads = [min(p, max(0, value.shape[n % value.rank] - 1)) for n, p in enumerate(pads)]
    fill = [net.constant(rng.choice((0.0, -1.5)), np.float32)] if mode == "constant" and rng.random() < 0.5 else []
    net.one("Pad", [value.name, net.whole(pads), *fill], mode=mode)


def resize(net: Net) -> None:
    """Resize, nearest or linear."""
    rng, value = net.rng, net.pick(rank=net.rng.choice((3, 4, 4)))
    mode = rng.choice(("nearest", "linear"))
    scales = [1.0, 1.0] + [rng.choice((0.5, 1.0, 1.5, 2.0, 3.0)) for _ in value.shape[2:]]
    attrs = {"mode": mode, "coordinate_transformation_mode": rng.choice(("half_pixel", "asymmetric"))}
    if mode == "nearest":
        attrs["nearest_mode"] = rng.choice(("floor", "ceil", "round_prefer_floor"))
    net.one("Resize", [value.name, "", net.constant(scales, np.float32)], **attrs)


def gather(net: Net) -> None:
    """Gather, GatherElements, GatherND or ScatterElements by constants."""
    rng, value = net.rng, net.pick()
    axis, draw = net.axis(value), net.numbers()
    size = value.shape[axis]
    op = rng.choice(("Gather", "Gather", "GatherElements", "ScatterElements", "GatherND"))
    if op == "Gather":
        shape = rng.choice(((), (2,), (3, 2), (1,), (0,) if rng.random() < 0.1 else (3,)))
        net.one(op, [value.name, net.constant(draw.integers(-size, size, shape), np.int64)], axis=axis)
    elif op == "GatherND":
        index = [draw.integers(0, n, 3) for n in value.shape[: rng.randint(1, value.rank)]]
        net.one(op, [value.name, net.constant(np.stack(index, -1), np.int64)])
    else:
        shape = list(value.shape)
        shape[axis] = rng.randint(1, size)
        index = np.argsort(draw.random(value.shape), axis)  # each place at most once
        places = net.constant(np.take(index, range(shape[axis]), axis), np.int64)
        more = [net.normal(shape)] if op == "ScatterElements" else []
        net.one(op, [value.name, places, *more], axis=axis)


def spread(net: Net) -> None:
    """Expand, Tile, or blocks to and from depth."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("Expand", "Tile", "DepthToSpace", "SpaceToDepth"))
    if op == "Expand":
        target = [rng.choice((2, 3)) if size == 1 else size for size in value.shape]
        net.one(op, [value.name, net.whole([*([2] if rng.random() < 0.3 and value.rank < 5 else []), *target])])
    elif op == "Tile":
        net.one(op, [value.name, net.whole([rng.choice((1, 1, 2, 3)) for _ in value.shape])])
    else:
        attrs = {"mode": rng.choice(("DCR", "CRD"))} if op == "DepthToSpace" else {}
        net.one(op, [value.name], blocksize=2, **attrs)


def order(net: Net) -> None:
    """CumSum, TopK, ArgMax, Trilu, Einsum."""
    rng, value = net.rng, net.pick()
    op = rng.choice(("CumSum", "TopK", "ArgMax", "Trilu", "Einsum"))
    if op == "CumSum":
        axis = net.constant(net.axis(value), np.int64)
        net.one(op, [value.name, axis], exclusive=rng.randint(0, 1), reverse=rng.randint(0, 1))
    elif op == "TopK":
        axis = net.axis(value)
        count = net.whole([rng.randint(1, max(1, value.shape[axis]))])
        net.add(op, [value.name, count], 2, axis=axis, largest=rng.randint(0, 1))
    elif op == "ArgMax":
        found = net.one(
            rng.choice(("ArgMax", "ArgMin")), [value.name], axis=net.axis(value), keepdims=rng.randint(0, 1)
        )
        net.one("Cast", [found.name], to=1)
    elif op == "Trilu":
        net.one(op, [value.name, net.constant(rng.randint(-1, 1), np.int64)], upper=rng.randint(0, 1))
    else:
        value = net.pick(rank=rng.choice((2, 3)))
        letters = "ijk"[: value.rank]
        text = rng.choice((f"{letters},{letters[-1]}m->{letters[:-1]}m", f"{letters}->{letters[::-1]}", f"{letters}->"))
        more = [net.normal((value.shape[-1], 4))] if "," in text else []
        net.one(op, [value.name, *more], equation=text)


def recurrent(net: Net) -> None:
    """A small LSTM, GRU or RNN."""
    rng, value = net.rng, net.pick(rank=3)
    op, gates = rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden, both = rng.randint(1, 4), rng.random() < 0.3
    ways = 2 if both else 1
    features = value.shape[2]
    inputs = [value.name, net.normal((ways, gates * hidden, features)), net.normal((ways, gates * hidden, hidden))]
    if rng.random() < 0.6:
        inputs.append(net.normal((ways, 2 * gates * hidden)))
    way = "bidirectional" if both else rng.choice(("forward", "reverse"))
    attrs = {"linear_before_reset": rng.randint(0, 1)} if op == "GRU" else {}
    net.add(op, inputs, 3 if op == "LSTM" else 2, hidden_size=hidden, direction=way, **attrs)


def attention(net: Net) -> None:
    """Scaled products of queries, keys and values, by hand."""
    rng, value = net.rng, net.pick(rank=3)
    width, depth = value.shape[-1], rng.choice((2, 3, 4))
    query, key, content = (
        net.one("MatMul", [value.name, net.normal((width, depth), max(1, width) ** -0.5)]).name for _ in range(3)
    )
    turned = net.one("Transpose", [key], perm=[0, 2, 1])
    scores = net.one("Mul", [net.one("MatMul", [query, turned.name]).name, net.constant(depth**-0.5, np.float32)])
    weights = net.one("Softmax", [scores.name], axis=rng.choice((-1, 2, 1)))
    net.one("MatMul", [weights.name, content])


DRAWS: tuple[tuple[Draw, int], ...] = (
    (unary, 10), (clip, 4), (binary, 14), (variadic, 2), (compare, 2), (conv, 14), (conv_transpose, 3), (pool, 7),
    (matmul, 7), (gemm, 4), (reduce, 6), (softmax, 5), (normalise, 4), (transpose, 7), (reshape, 6), (concat, 5),
    (split, 4), (slice_, 4), (pad, 4), (resize, 3), (gather, 4), (spread, 4), (order, 3), (recurrent, 2),
    (attention, 2),
)  # fmt: skip
