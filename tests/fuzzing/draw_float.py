"""The parts of random float networks and their frequency: operators' cases, and groups of nodes."""

from collections.abc import Callable

import numpy as np

from tests.fuzzing.networks import Net, draw_case

Draw = Callable[[Net], object]
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSwish", "Elu", "Selu", "Celu", "Softplus", "Erf", "LeakyRelu",
         "HardSigmoid", "Sin", "Cos", "Softsign", "Mish", "Identity", "ThresholdedRelu", "Atan", "Floor", "Ceil",
         "Sign", "Shrink", "Round", "Hardmax")  # fmt: skip
REDUCED = ("Sum", "Mean", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")


def _of(*ops: str) -> Draw:
    return lambda net: draw_case(net, net.rng.choice(ops))


def conv(net: Net) -> None:
    """Conv, and sometimes an activation behind it."""
    (made,) = draw_case(net, "Conv")
    if net.rng.random() < 0.4:
        net.one(net.rng.choice(("Relu", "HardSwish", "Sigmoid", "Clip")), [made.name])


def quotient(net: Net) -> None:
    """Div by a constant that is not near 0."""
    value = net.pick()
    bottom = abs(net.numbers().normal(0, 1, net.spread(value))) + 0.5
    net.one("Div", [value.name, net.constant(bottom, np.float32)])


def compare(net: Net) -> None:
    """A comparison, and Where on it."""
    value = net.pick()
    mask = net.one(net.rng.choice(("Less", "Greater", "GreaterOrEqual")), [value.name, net.normal((), 0.7)])
    if net.rng.random() < 0.3:
        mask = net.one("Not", [mask.name])
    net.one("Where", [mask.name, value.name, net.normal(net.spread(value))])


def position(net: Net) -> None:
    """ArgMax or ArgMin as floats."""
    (found,) = draw_case(net, net.rng.choice(("ArgMax", "ArgMin")))
    net.one("Cast", [found.name], to=1)


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
    (_of(*UNARY), 10),
    (_of("Clip"), 3),
    (_of("PRelu"), 1),
    (_of("Add", "Add", "Mul", "Mul", "Sub", "Max", "Min"), 12),
    (quotient, 2),
    (_of("Sum", "Mean", "Max", "Min"), 2),
    (compare, 2),
    (conv, 14),
    (_of("ConvTranspose"), 3),
    (_of("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"), 7),
    (_of("MatMul"), 7),
    (_of("Gemm"), 4),
    (_of(*(f"Reduce{kind}" for kind in REDUCED)), 6),
    (_of("Softmax", "Softmax", "Softmax", "LogSoftmax"), 5),
    (_of("LayerNormalization", "InstanceNormalization", "BatchNormalization", "LRN", "LpNormalization"), 4),
    (_of("Transpose"), 7),
    (_of("Reshape", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), 6),
    (_of("Concat"), 5),
    (_of("Split"), 4),
    (_of("Slice"), 4),
    (_of("Pad"), 4),
    (_of("Resize"), 3),
    (_of("Gather", "Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND"), 4),
    (_of("Expand", "Tile", "DepthToSpace", "SpaceToDepth"), 4),
    (_of("CumSum", "TopK", "Trilu", "Einsum", "ReverseSequence"), 3),
    (position, 1),
    (_of("LSTM", "GRU", "RNN"), 2),
    (_of("GridSample", "DeformConv", "RoiAlign", "MeanVarianceNormalization"), 1),
    (attention, 2),
)
