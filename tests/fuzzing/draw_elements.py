"""Elementwise operators, reductions and normalisations: each draws its attributes and constants, and appends a node."""

import numpy as np

from tests.fuzzing.networks import Net, Value

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
