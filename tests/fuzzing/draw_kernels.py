"""Convolutions, products, pooling, recurrent operators: each draws its attributes and weights, and appends nodes."""

import numpy as np

from tests.fuzzing.networks import Net


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
    if not depth:
        attrs["beta"] = 1.0  # of a product of nothing onnxruntime forgets it
    net.one("Gemm", [value.name, weights, *bias], transA=int(ta), transB=int(tb), **attrs)


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
