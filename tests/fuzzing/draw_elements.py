"""Elementwise operators: each draws its attributes and constants, and appends a node."""

import numpy as np

from tests.fuzzing.networks import Net, Value

UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSwish", "Elu", "Selu", "Celu", "Softplus", "Erf", "LeakyRelu",
         "HardSigmoid", "Sin", "Cos", "Softsign", "Mish", "Identity", "ThresholdedRelu", "Atan")  # fmt: skip


def unary(net: Net) -> None:
    """An elementwise function."""
    op = net.rng.choice(UNARY)
    attrs = {"alpha": net.rng.choice((0.1, 0.5, 1.0))} if op in ("Elu", "LeakyRelu", "Celu") else {}
    net.one(op, [net.pick().name], **attrs)


def prelu(net: Net) -> None:
    """PRelu with slopes that broadcast."""
    value = net.pick()
    net.one("PRelu", [value.name, net.normal(_broadcast(net, value))])


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
