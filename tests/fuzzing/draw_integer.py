"""Quantized operators in integer form (QLinear…, …Integer), and plain integer arithmetic."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mtool.compiler.operators.operator import Grid, Value
from mtool.compiler.operators.problems import MICROSOFT
from tests.fuzzing.networks import Net, draw_case

Draw = Callable[[Net], object]
KINDS = (np.uint8, np.int8)


def picked(net: Net) -> tuple[Value, Grid]:
    """Choose a value that has a grid.

    Raises:
        ValueError: there is none.
    """
    found = [net.values[name] for name in net.grids]
    if not found:
        raise ValueError("nothing of that kind")
    value = found[-1] if net.rng.random() < 0.5 else net.rng.choice(found[-5:])
    return value, net.grids[value.name]


def _of(op: str, domain: str = "") -> Draw:
    return lambda net: draw_case(net, op, domain)


def rounded(net: Net, value: Value, dtype: Any, scale: float) -> None:
    """Quantize a float value on a grid of about a scale."""
    grid = net.grid(dtype, scale)
    net.grids[net.one("QuantizeLinear", [value.name, *grid.names]).name] = grid


def qmove(net: Net) -> None:
    """What moves integers and keeps their grid."""
    rng = net.rng
    value, grid = picked(net)
    op = rng.choice(("Transpose", "Reshape", "MaxPool", "Slice", "Concat", "Pad", "Gather", "Relu"))
    if op == "Transpose":
        made = net.one(op, [value.name], perm=rng.sample(range(value.rank), value.rank))
    elif op == "Reshape":
        sizes = rng.choice(([-1], [1, -1], [*value.shape, 1], [value.size // max(1, value.shape[-1]), -1]))
        made = net.one(op, [value.name, net.whole(sizes)])
    elif op == "MaxPool":
        if value.rank not in (3, 4):
            raise ValueError("no image")
        size = value.rank - 2
        attrs = {"kernel_shape": [2] * size, "strides": [rng.choice((1, 2))] * size, "pads": [0] * size + [1] * size}
        made = net.one(op, [value.name], **attrs)
    elif op == "Slice":
        axis = net.axis(value)
        start = rng.randrange(max(1, value.shape[axis]))
        made = net.one(op, [value.name, *map(net.whole, ([start], [value.shape[axis]], [axis], [1]))])
    elif op == "Concat":
        limits = np.iinfo(value.dtype)
        other = net.constant(net.numbers().integers(limits.min, limits.max, value.shape), value.dtype)
        made = net.one(op, rng.sample([value.name, other], 2), axis=net.axis(value))
    elif op == "Pad":
        made = net.one(op, [value.name, net.whole([rng.choice((0, 1)) for _ in range(2 * value.rank)]), grid.names[1]])
    elif op == "Gather":
        axis = net.axis(value)
        index = net.constant(net.numbers().integers(0, value.shape[axis], 3), np.int64)
        made = net.one(op, [value.name, index], axis=axis)
    else:
        made = net.one("Max", [value.name, grid.names[1]])
    net.grids[made.name] = grid


def qfunction(net: Net) -> None:
    """DequantizeLinear, an elementwise function or a reduction, QuantizeLinear."""
    value, grid = picked(net)
    real = net.one("DequantizeLinear", [value.name, *grid.names])
    kinds = ("Sigmoid", "Tanh", "HardSwish", "Relu", "LeakyRelu", "Softmax", "GlobalAveragePool", "ReduceMean")
    op = net.rng.choice(kinds)
    attrs: dict[str, Any] = {"axis": net.axis(value)} if op == "Softmax" else {}
    made = net.one(op, [real.name], **attrs)
    rounded(net, made, value.dtype, 1 / 250 if op in ("Sigmoid", "Softmax", "Tanh") else grid.scale)


def product(net: Net) -> None:
    """MatMulInteger or ConvInteger; its int32 as float on a scale, sometimes quantized again."""
    (made,) = draw_case(net, net.rng.choice(("MatMulInteger", "ConvInteger")))
    scaled = net.one("Mul", [net.one("Cast", [made.name], to=1).name, net.constant(1e-4, np.float32)])
    if net.rng.random() < 0.5:
        rounded(net, scaled, net.rng.choice(KINDS), 0.01)


def dynamic(net: Net) -> None:
    """DynamicQuantizeLinear and a product with constant weights, as onnxruntime's dynamic quantizer writes it."""
    value = net.pick(rank=net.rng.choice((2, 3)))
    if not value.size:
        raise ValueError("no weights")
    codes, scale, zero = net.add("DynamicQuantizeLinear", [value.name], 3)
    weights = net.constant(net.numbers().integers(-64, 64, (value.shape[-1], net.rng.randint(1, 6))), np.int8)
    real = net.one("Cast", [net.one("MatMulInteger", [codes.name, weights, zero.name]).name], to=1)
    net.one("Mul", [real.name, net.one("Mul", [scale.name, net.constant(0.01, np.float32)]).name])


def arithmetic(net: Net) -> None:
    """Arithmetic of int32, int64, and bits."""
    rng = net.rng
    dtype = rng.choice((np.int32, np.int32, np.int64))
    value = net.pick(dtype)
    op = rng.choice(("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Abs", "Neg", "ReduceSum", "ReduceMax", "Clip"))
    if op in ("Abs", "Neg"):
        net.one(op, [value.name])
    elif op.startswith("Reduce"):
        axes = rng.sample(range(value.rank), rng.randint(0, value.rank))
        net.one(op, [value.name, net.whole(axes)] if axes else [value.name], keepdims=rng.randint(0, 1))
    elif op == "Clip":
        net.one(op, [value.name, net.constant(-20, dtype), net.constant(30, dtype)])
    else:
        shape = rng.choice(((), value.shape, value.shape[-1:]))
        data = net.numbers().integers(1, 9, shape) * rng.choice((1, -1))
        net.one(op, [value.name, net.constant(data, dtype)])


DRAWS: tuple[tuple[Draw, int], ...] = (
    (_of("QLinearConv"), 8), (_of("QLinearMatMul"), 6), (_of("QLinearAdd", MICROSOFT), 3),
    (_of("QLinearMul", MICROSOFT), 3), (qmove, 7), (qfunction, 5), (product, 5), (dynamic, 2), (arithmetic, 3),
)  # fmt: skip
