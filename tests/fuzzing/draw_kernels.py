"""What is drawn as several nodes: convolutions with activations, products of two values, attention."""

import numpy as np

from tests.fuzzing.networks import Net, draw_case


def conv(net: Net) -> None:
    """Conv, and sometimes an activation behind it."""
    draw_case(net, "Conv")
    if net.rng.random() < 0.4:
        net.one(net.rng.choice(("Relu", "HardSwish", "Sigmoid", "Clip")), [net.nodes[-1].output[0]])


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
