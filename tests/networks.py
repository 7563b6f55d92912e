"""Random small networks as ONNX models: float ones that move, join and transpose tensors, and quantized ones."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from graphs import model
from onnx import helper

from mtool.compiler import frontend
from mtool.compiler.ir import Graph

F32 = np.float32
Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class Network:
    """A network that grows operator by operator; `shapes` has the float tensors that are there."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[type, Shape]] = {}
        self.shapes: dict[str, Shape] = {}

    def name(self) -> str:
        return f"v{len(self.nodes) + len(self.constants)}"

    def constant(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data)
        return name

    def op(self, op: str, inputs: Sequence[str], shape: Shape, **attrs: Any) -> str:
        out = self.name()
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        self.shapes[out] = shape
        return out

    def any(self, rank: int = 0) -> str:
        """Return some tensor, a late one rather than an early one."""
        found = [value for value, shape in self.shapes.items() if not rank or len(shape) == rank]
        return found[max(self.chance.randrange(len(found)), self.chance.randrange(len(found)))] if found else ""

    def proto(self, outputs: Sequence[str]) -> onnx.ModelProto:
        return model(self.nodes, self.inputs, list(dict.fromkeys(outputs)), self.constants)


def feeds_of(graph: Graph, seed: int, calls: int = 1) -> list[dict[str, Array]]:
    """Return random numbers for the inputs that the caller gives."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(calls):
        fed = {}
        for value in graph.caller_inputs:
            kind = graph.types[value]
            if kind.dtype.is_float:
                fed[value] = rng.uniform(-2, 2, kind.shape).astype(kind.dtype.numpy)
            else:
                low, high = kind.dtype.limits
                fed[value] = rng.integers(low, high + 1, kind.shape).astype(kind.dtype.numpy)
        made.append(fed)
    return made


def _turned(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    perm = list(range(len(shape)))
    net.chance.shuffle(perm)
    if len(shape) == 4 and net.chance.random() < 0.6:
        perm = net.chance.choice([[0, 2, 3, 1], [0, 3, 1, 2]])
    net.op("Transpose", [source], tuple(shape[place] for place in perm), perm=perm)


def _reshaped(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    forms = [(1, *shape), tuple(size for size in shape if size != 1) or (1,), (int(np.prod(shape)),), shape]
    if len(shape) > 1:
        forms += [(shape[0] * shape[1], *shape[2:]), (*shape[:-2], shape[-2] * shape[-1])]
    wanted = net.chance.choice([form for form in forms if len(form) <= 5])
    net.op("Reshape", [source, net.constant(np.array(wanted, np.int64))], wanted)


def _elementwise(net: Network) -> None:
    source = net.any()
    kind = net.chance.choice(["Relu", "Sigmoid", "Neg", "Abs", "Identity", "HardSwish", "Mul", "Add", "Sub", "Square"])
    shape = net.shapes[source]
    if kind == "Square":
        net.op("Mul", [source, source], shape)
    elif kind in ("Add", "Sub", "Mul"):
        same = [value for value, other in net.shapes.items() if other == shape]
        form = net.chance.choice([(), shape[-1:], (*shape[:1], *[1] * (len(shape) - 1))])
        constant = net.constant(net.rng.uniform(-1, 1, form).astype(F32))
        net.op(kind, [source, net.chance.choice([constant, *same, *same])], shape)
    else:
        net.op(kind, [source], shape)


def _joined(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    axis = net.chance.randrange(len(shape))
    fits = [
        value
        for value, other in net.shapes.items()
        if len(other) == len(shape)
        and all(a == b for n, (a, b) in enumerate(zip(other, shape, strict=True)) if n != axis)
    ]
    values = [source, *net.chance.choices(fits, k=net.chance.randrange(1, 3))]
    total = sum(net.shapes[value][axis] for value in values)
    if total <= 24:
        net.op("Concat", values, (*shape[:axis], total, *shape[axis + 1 :]), axis=axis)


def _cut(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    axis = net.chance.randrange(len(shape))
    if shape[axis] < 2:
        return
    first = net.chance.randrange(shape[axis] - 1)
    end = net.chance.randrange(first + 1, shape[axis] + 1)
    bounds = [net.constant(np.array([number], np.int64)) for number in (first, end, axis)]
    net.op("Slice", [source, *bounds], (*shape[:axis], end - first, *shape[axis + 1 :]))


def _padded(net: Network) -> None:
    source = net.any(4)
    if source:
        n, c, h, w = net.shapes[source]
        if h * w <= 40:
            net.op("Pad", [source, net.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.int64))], (n, c, h + 1, w + 1))


def _convolved(net: Network) -> None:
    source = net.any(4)
    if not source:
        return
    n, c, h, w = net.shapes[source]
    size = net.chance.choice([1, 3]) if min(h, w) > 1 else 1
    depthwise = net.chance.random() < 0.4
    channels = c if depthwise else net.chance.choice([2, 4, 5])
    filters = net.rng.uniform(-0.5, 0.5, (channels, 1 if depthwise else c, size, size)).astype(F32)
    bias = net.rng.uniform(-0.5, 0.5, channels).astype(F32)
    pad = size // 2
    inputs = [source, net.constant(filters), net.constant(bias)]
    made = net.op("Conv", inputs, (n, channels, h, w), pads=[pad] * 4, group=c if depthwise else 1)
    if net.chance.random() < 0.4:
        numbers = [net.rng.uniform(0.5, 1.5, channels).astype(F32) for _ in range(4)]
        net.op("BatchNormalization", [made, *map(net.constant, numbers)], net.shapes[made])


def _pooled(net: Network) -> None:
    source = net.any(4)
    if source and min(net.shapes[source][2:]) > 1:
        n, c, h, w = net.shapes[source]
        kind = net.chance.choice(["MaxPool", "AveragePool"])
        net.op(kind, [source], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])


def _multiplied(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    if shape[-1] <= 40:
        weights = net.constant(net.rng.uniform(-0.5, 0.5, (shape[-1], 4)).astype(F32))
        net.op("MatMul", [source, weights], (*shape[:-1], 4))


def _reduced(net: Network) -> None:
    source = net.any()
    shape = net.shapes[source]
    axis = net.chance.randrange(len(shape))
    net.op("ReduceMean", [source], (*shape[:axis], 1, *shape[axis + 1 :]), axes=[axis], keepdims=1)


def _normalised(net: Network) -> None:
    source = net.any()
    net.op("Softmax", [source], net.shapes[source], axis=-1)


def _folded(net: Network) -> None:
    """Arithmetic of constants."""
    data = net.constant(net.rng.uniform(-1, 1, (2, 3)).astype(F32))
    turned = net.op("Transpose", [data], (3, 2), perm=[1, 0])
    net.op("Exp", [turned], (3, 2))


MOVES = (_turned, _turned, _reshaped, _reshaped, _elementwise, _elementwise, _joined, _cut)
KERNELS = (_convolved, _convolved, _pooled, _multiplied, _reduced, _normalised, _padded, _folded)


def floats(seed: int, operators: int = 12) -> onnx.ModelProto:
    """Return a float network; inputs may be outputs, and some tensors have several readers."""
    net = Network(seed)
    for number in range(net.chance.choice([1, 1, 2])):
        shape = net.chance.choice([(1, 3, 4, 5), (1, 4, 6, 6), (2, 2, 3, 4), (1, 3, 4, 5), (3, 4), (1, 6, 1, 4)])
        net.inputs[f"x{number}"] = (F32, shape)
        net.shapes[f"x{number}"] = shape
    many = net.chance.random() < 0.5
    for _ in range(operators):
        net.chance.choice((*MOVES, *MOVES) if many else (*MOVES, *KERNELS))(net)
    if not net.nodes:
        _elementwise(net)
    made = [value for value in net.shapes if value.startswith("v")]
    read = {value for node in net.nodes for value in node.input}
    outputs = [value for value in made if value not in read]
    outputs += net.chance.sample(made, min(len(made), net.chance.randrange(2)))
    return net.proto(outputs)


class Quantized(Network):
    """A network of integers: each tensor is on a grid of its own; `grids` has scale and zero point."""

    def __init__(self, seed: int, dtype: type) -> None:
        super().__init__(seed)
        self.dtype = dtype
        self.grids: dict[str, tuple[float, int]] = {}

    def grid(self, value: str) -> str:
        """Put a float tensor on a grid; return what is dequantized."""
        scale, zero = float(F32(self.rng.uniform(0.02, 0.08))), self.chance.randrange(-9, 10) + self.middle
        quantized = self.name()
        numbers = [self.constant(F32(scale)), self.constant(self.dtype(zero))]
        self.nodes.append(helper.make_node("QuantizeLinear", [value, *numbers], [quantized]))
        return self.floats(quantized, self.shapes[value], scale, zero)

    @property
    def middle(self) -> int:
        return 128 if self.dtype is np.uint8 else 0

    def floats(self, quantized: str, shape: Shape, scale: float, zero: int) -> str:
        numbers = [self.constant(F32(scale)), self.constant(self.dtype(zero))]
        made = self.op("DequantizeLinear", [quantized, *numbers], shape)
        self.grids[made] = scale, zero
        return made

    def weights(self, data: Array, scales: Array) -> str:
        out = self.name()
        numbers = [
            self.constant(data),
            self.constant(scales.astype(F32)),
            self.constant(np.zeros(len(scales), data.dtype)),
        ]
        self.nodes.append(helper.make_node("DequantizeLinear", numbers, [out], axis=0))
        return out

    def conv(self, source: str, channels: int, size: int, *, depthwise: bool, dead: float) -> str:
        """Append a convolution, of whose filters and of whose inputs a part is dead."""
        n, c, h, w = self.shapes[source]
        channels = c if depthwise else channels
        data = self.rng.integers(-90, 91, (channels, 1 if depthwise else c, size, size)).astype(np.int8)
        data[self.rng.random(channels) < dead] = 0
        data[:, self.rng.random(data.shape[1]) < dead / 2] = 0
        scales = self.rng.uniform(0.003, 0.006, channels)
        bias = self.rng.integers(-2000, 2000, channels).astype(np.int32)
        inputs = [
            source,
            self.weights(data, scales),
            self.weights(bias, F32(self.grids[source][0]) * scales.astype(F32)),
        ]
        made = self.op("Conv", inputs, (n, channels, h, w), pads=[size // 2] * 4, group=c if depthwise else 1)
        return self.grid(self.op("Relu", [made], self.shapes[made]) if self.chance.random() < 0.4 else made)


def integers(seed: int, *, dtype: type = np.int8, dead: float = 0.0, operators: int = 7) -> onnx.ModelProto:
    """Return a quantized network; `dead` is the share of filters that are zeros."""
    net = Quantized(seed, dtype)
    net.inputs["x"] = (dtype, (1, 4, 5, 5))
    value = net.floats("x", (1, 4, 5, 5), 0.04, 3 + net.middle)
    for _ in range(operators):
        shape = net.shapes[value]
        kind = net.chance.choice(["conv", "conv", "conv", "depthwise", "pool", "add", "act", "concat", "pad", "mean"])
        if kind in ("conv", "depthwise"):
            size = net.chance.choice([1, 3])
            value = net.conv(value, net.chance.choice([6, 8, 9]), size, depthwise=kind == "depthwise", dead=dead)
        elif kind == "pool" and min(shape[2:]) > 1:
            halved = (*shape[:2], shape[2] // 2, shape[3] // 2)
            how = net.chance.choice(["MaxPool", "AveragePool"])
            value = net.op(how, [value], halved, kernel_shape=[2, 2], strides=[2, 2])
            net.grids[value] = net.grids[next(iter(net.grids))]
            value = net.grid(value)
        elif kind == "add":
            others = [other for other, form in net.shapes.items() if form == shape and other in net.grids]
            value = net.grid(
                net.op(net.chance.choice(["Add", "Sub", "Mul"]), [value, net.chance.choice(others)], shape)
            )
        elif kind == "act":
            value = net.grid(net.op(net.chance.choice(["Sigmoid", "LeakyRelu", "HardSwish", "Tanh"]), [value], shape))
        elif kind == "concat" and shape[1] < 16:
            others = [o for o, form in net.shapes.items() if o in net.grids and form[2:] == shape[2:] and form[1] < 12]
            other = net.chance.choice([*others, value])
            channels = shape[1] + net.shapes[other][1]
            value = net.grid(net.op("Concat", [value, other], (1, channels, *shape[2:]), axis=1))
        elif kind == "pad" and shape[2] * shape[3] <= 36:
            pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 0, 0], np.int64))
            value = net.grid(net.op("Pad", [value, pads], (*shape[:2], shape[2] + 1, shape[3] + 1)))
        elif kind == "mean":
            other = net.op("ReduceMean", [value], (*shape[:2], 1, 1), axes=[2, 3], keepdims=1)
            value = net.grid(net.op("Add", [value, net.grid(other)], shape))
    flat = net.op("Flatten", [value], (1, int(np.prod(net.shapes[value]))), axis=1)
    return net.proto([flat, *([value] if net.chance.random() < 0.3 else [])])


def imported(proto: onnx.ModelProto) -> Graph:
    """Return the graph that the frontend gives."""
    return frontend.from_proto(proto, "test")
