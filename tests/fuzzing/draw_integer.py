"""Operators of quantised networks in integer form (QLinear…, …Integer), and plain arithmetic of integers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzzing.networks import Net, Value

Draw = Callable[["Integers"], object]
KINDS = (np.uint8, np.int8)


@dataclass(frozen=True, slots=True)
class Grid:
    """A scale and a zero point, as constants of the network."""

    scale: float
    zero: int
    scale_name: str
    zero_name: str


class Integers:
    """A network whose int8 and uint8 values stand on grids."""

    def __init__(self, net: Net) -> None:
        self.net, self.grids = net, dict[str, Grid]()

    def grid(self, dtype: Any, scale: float) -> Grid:
        """Make a grid of about this scale; now and then one of a power of two, on which ties are frequent."""
        rng = self.net.rng
        scale = float(np.float32(2.0 ** round(np.log2(scale)) if rng.random() < 0.15 else scale))
        middle = 128 if np.dtype(dtype) == np.uint8 else 0
        zero = rng.choice((middle, middle, middle + rng.randint(-100, 100)))
        return Grid(scale, zero, self.net.constant(scale, np.float32), self.net.constant(zero, dtype))

    def pick(self, rank: int | None = None, dtype: Any = None) -> tuple[Value, Grid]:
        """Choose a value that has a grid.

        Raises:
            ValueError: there is none.
        """
        found = [
            value
            for name in self.grids
            if (value := self.net.values[name]) and (rank is None or value.rank == rank)
            and (dtype is None or value.dtype == dtype)
        ]  # fmt: skip
        if not found:
            raise ValueError("nothing of that kind")
        value = found[-1] if self.net.rng.random() < 0.5 else self.net.rng.choice(found[-5:])
        return value, self.grids[value.name]

    def weights(self, shape: tuple[int, ...], axis: int | None, like: Any) -> tuple[str, str, str, float]:
        """Draw weights of 7 bits, which products of uint8 and int8 can't saturate; their scales, zero points, spread.

        Args:
            shape: of the weights.
            axis: along which scales may lie; None: one for all.
            like: the type of the other side, which theirs must be where that is int8.

        Raises:
            ValueError: there are no weights; onnxruntime does not write the results of an integer product over zero
                elements, so that they are whatever was in its memory.
        """
        if 0 in shape:
            raise ValueError("no weights")
        net, rng, draw = self.net, self.net.rng, self.net.numbers()
        dtype = np.int8 if np.dtype(like) == np.int8 or rng.random() < 0.7 else np.uint8
        zero = 0 if dtype == np.int8 and rng.random() < 0.8 else rng.choice((3, 64, 7))
        data = draw.integers(-64, 64, shape) if dtype == np.int8 else draw.integers(0, 128, shape)
        count = shape[axis] if axis is not None and rng.random() < 0.5 else None
        scales = draw.uniform(0.002, 0.02, count)
        zeros = np.full(() if count is None else count, zero)
        name = net.constant(data, dtype)
        return name, net.constant(scales, np.float32), net.constant(zeros, dtype), float(np.mean(scales)) * 37

    def keep(self, value: Value, grid: Grid) -> Value:
        """Note a value's grid."""
        self.grids[value.name] = grid
        return value


def qconv(ints: Integers) -> None:
    """QLinearConv: groups, dilations, asymmetric padding, a bias."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick(rank=rng.choice((3, 4, 4, 4)))
    channels, spatial = value.shape[1], value.rank - 2
    group = rng.choice([g for g in (1, 1, 1, 2, channels) if channels and channels % g == 0])
    out = group * rng.choice((1, 2, 3, 4))
    kernel = [rng.choice((1, 2, 3, 3)) for _ in range(spatial)]
    weights, scales, zeros, spread = ints.weights((out, channels // group, *kernel), 0, value.dtype)
    fan = channels // group * int(np.prod(kernel))
    top = ints.grid(value.dtype, grid.scale * 73 * spread * fan**0.5 * 3 / 127)
    inputs = [value.name, grid.scale_name, grid.zero_name, weights, scales, zeros, top.scale_name, top.zero_name]
    if rng.random() < 0.7:
        inputs.append(net.constant(net.numbers().integers(-2000, 2000, out), np.int32))
    attrs = {
        "group": group,
        "strides": [rng.choice((1, 1, 2)) for _ in kernel],
        "dilations": [rng.choice((1, 1, 2)) for _ in kernel],
        "pads": [rng.choice((0, 0, 1)) if kernel[n % spatial] > 1 else 0 for n in range(2 * spatial)],
    }
    ints.keep(net.one("QLinearConv", inputs, **attrs), top)


def qmatmul(ints: Integers) -> None:
    """QLinearMatMul with a constant."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick(rank=rng.choice((2, 2, 3)))
    depth = value.shape[-1]
    weights, scales, zeros, spread = ints.weights((depth, rng.randint(1, 9)), 1, value.dtype)
    top = ints.grid(value.dtype, grid.scale * 73 * spread * max(1, depth) ** 0.5 * 3 / 127)
    inputs = [value.name, grid.scale_name, grid.zero_name, weights, scales, zeros, top.scale_name, top.zero_name]
    ints.keep(net.one("QLinearMatMul", inputs), top)


def qbinary(ints: Integers) -> None:
    """QLinearAdd or QLinearMul of a value with another or with a constant."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick()
    same = [(net.values[n], g) for n, g in ints.grids.items() if net.values[n].dtype == value.dtype]
    fitting = [(v, g) for v, g in same if v.shape == value.shape and v.name != value.name]
    if fitting and rng.random() < 0.6:
        other, second = rng.choice(fitting)
        name = other.name
    else:
        limits = np.iinfo(value.dtype)
        second = ints.grid(value.dtype, rng.uniform(0.005, 0.05))
        shape = rng.choice((value.shape, value.shape[-1:], ()))
        name = net.constant(net.numbers().integers(limits.min, limits.max, shape), value.dtype)
    op = rng.choice(("QLinearAdd", "QLinearMul"))
    scale = max(grid.scale, second.scale) * 1.5 if op == "QLinearAdd" else grid.scale * second.scale * 80
    top = ints.grid(value.dtype, scale)
    inputs = [value.name, grid.scale_name, grid.zero_name, name, second.scale_name, second.zero_name]
    made = net.declare(op, [*inputs, top.scale_name, top.zero_name], value.dtype, value.shape)
    ints.keep(made, top)


def qmove(ints: Integers) -> None:
    """What moves integers and keeps their grid."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick()
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
        made = net.one(op, [value.name, net.whole([rng.choice((0, 1)) for _ in range(2 * value.rank)]), grid.zero_name])
    elif op == "Gather":
        axis = net.axis(value)
        index = net.constant(net.numbers().integers(0, value.shape[axis], 3), np.int64)
        made = net.one(op, [value.name, index], axis=axis)
    else:
        made = net.one("Max", [value.name, grid.zero_name])
    ints.keep(made, grid)


def qfunction(ints: Integers) -> None:
    """DequantizeLinear, an elementwise function or a reduction, QuantizeLinear."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick()
    real = net.one("DequantizeLinear", [value.name, grid.scale_name, grid.zero_name])
    op = rng.choice(("Sigmoid", "Tanh", "HardSwish", "Relu", "LeakyRelu", "Softmax", "GlobalAveragePool", "ReduceMean"))
    attrs: dict[str, Any] = {"axis": net.axis(value)} if op == "Softmax" else {}
    made = net.one(op, [real.name], **attrs)
    top = ints.grid(value.dtype, 1 / 250 if op in ("Sigmoid", "Softmax", "Tanh") else grid.scale)
    ints.keep(net.one("QuantizeLinear", [made.name, top.scale_name, top.zero_name]), top)


def product(ints: Integers) -> None:
    """MatMulInteger or ConvInteger; its int32 as float on a scale, sometimes quantised again."""
    net, rng = ints.net, ints.net.rng
    value, grid = ints.pick(rank=rng.choice((2, 3, 4)))
    if value.rank == 4:
        shape = (rng.randint(1, 4), value.shape[1], 2, rng.choice((1, 3)))
        weights, _, _, spread = ints.weights(shape, None, value.dtype)
        zero = [net.constant(rng.choice((0, 3)), net.constants[weights].dtype)] if rng.random() < 0.5 else []
        made = net.one("ConvInteger", [value.name, weights, grid.zero_name, *zero], pads=[1, 0, 0, 1])
        fan = value.shape[1] * 4
    else:
        fan = value.shape[-1]
        weights, _, zeros, spread = ints.weights((fan, rng.randint(1, 7)), None, value.dtype)
        made = net.one("MatMulInteger", [value.name, weights, grid.zero_name, zeros][: rng.choice((3, 4))])
    real = net.one("Cast", [made.name], to=1)
    step = net.constant(grid.scale * 0.01, np.float32)
    scaled = net.one("Mul", [real.name, step])
    if rng.random() < 0.5:
        top = ints.grid(value.dtype, grid.scale * spread * 70 * max(1, fan) ** 0.5 / 40)
        ints.keep(net.one("QuantizeLinear", [scaled.name, top.scale_name, top.zero_name]), top)


def dynamic(ints: Integers) -> None:
    """DynamicQuantizeLinear and a product with constant weights, as onnxruntime's dynamic quantiser writes it."""
    net, rng = ints.net, ints.net.rng
    value = net.pick(rank=rng.choice((2, 3)))
    quantised, scale, zero = net.add("DynamicQuantizeLinear", [value.name], 3)
    weights, scales, zeros, _ = ints.weights((value.shape[-1], rng.randint(1, 6)), None, np.uint8)
    made = net.one("MatMulInteger", [quantised.name, weights, zero.name, zeros])
    real = net.one("Cast", [made.name], to=1)
    net.one("Mul", [real.name, net.one("Mul", [scale.name, scales]).name])


def arithmetic(ints: Integers) -> None:
    """Arithmetic of int32, int64, and bits."""
    net, rng = ints.net, ints.net.rng
    dtype = rng.choice((np.int32, np.int32, np.int64))
    try:
        value = net.pick(dtype)
    except ValueError:
        value = net.input(dtype, net.shape(rng.choice((1, 2, 3))))
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
    (qconv, 8), (qmatmul, 6), (qbinary, 6), (qmove, 7), (qfunction, 5), (product, 5), (dynamic, 2), (arithmetic, 3),
)  # fmt: skip
