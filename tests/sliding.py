"""Random networks over a window of time, as ONNX models."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from graphs import model
from networks import F32, Array, Quantized, Shape

from mtool.compiler.ir import Graph, Slide

HOPS = (1, 1, 2, 2, 4, 3)


class Windowed(Quantized):
    """A network of floats (`dtype` is float32) or integers, whose tensors are [1, channels, time, features]."""

    def proto(self, outputs: Sequence[str]) -> onnx.ModelProto:
        return model(self.nodes, self.inputs, list(dict.fromkeys(outputs)), self.constants, opset=21)

    def grid(self, value: str) -> str:
        return value if self.dtype is F32 else super().grid(value)

    def middle_of(self, source: str) -> float:
        return F32(self.grids[source][0]) if source in self.grids else F32(1)

    def span(self, size: int, *, wide: bool) -> tuple[int, int, int, int, int, int]:
        """Return a kernel's size, stride, dilation and pads along an axis, and the size of its result."""
        chance = self.chance
        kernel = min(chance.choice([1, 2, 3, 3, 5] if wide else [1, 1, 3]), size)
        dilation = chance.choice([1, 1, 2, 3]) if wide and kernel > 1 else 1
        dilation = dilation if (kernel - 1) * dilation < size else 1
        reach = (kernel - 1) * dilation + 1
        before, behind = chance.choice([(0, 0), (0, 0), (reach // 2, reach // 2), (reach - 1, 0), (0, reach // 2)])
        stride = chance.choice([1, 1, 1, 2]) if wide else 1
        made = (size + before + behind - reach) // stride + 1
        return kernel, stride, dilation, before, behind, made

    def window(self, source: str) -> tuple[dict[str, Any], tuple[int, int]]:
        """Return attributes of a window over time and features, and the size of its result."""
        _, _, time, features = self.shapes[source]
        (k, s, d, a, b, rows), (k1, s1, d1, a1, b1, columns) = (
            self.span(time, wide=True),
            self.span(features, wide=False),
        )
        attrs = {"kernel_shape": [k, k1], "strides": [s, s1], "dilations": [d, d1], "pads": [a, a1, b, b1]}
        return attrs, (rows, columns)

    def convolved(self, source: str) -> str:
        channels, (attrs, size) = self.shapes[source][1], self.window(source)
        is_depthwise = self.chance.random() < 0.4
        made = channels if is_depthwise else self.chance.choice([3, 4, 8])
        form = (made, 1 if is_depthwise else channels, *attrs["kernel_shape"])
        if self.dtype is F32:
            weights = self.constant(self.rng.uniform(-0.5, 0.5, form).astype(F32))
            bias = self.constant(self.rng.uniform(-0.5, 0.5, made).astype(F32))
        else:
            scales = self.rng.uniform(0.003, 0.006, made)
            weights = self.weights(self.rng.integers(-90, 91, form).astype(np.int8), scales)
            steps = self.rng.integers(-2000, 2000, made).astype(np.int32)
            bias = self.weights(steps, self.middle_of(source) * scales.astype(F32))
        group = channels if is_depthwise else 1
        out = self.op("Conv", [source, weights, bias], (1, made, *size), group=group, **attrs)
        return self.grid(self.op("Relu", [out], self.shapes[out]) if self.chance.random() < 0.4 else out)

    def pooled(self, source: str) -> str:
        attrs, size = self.window(source)
        kind, channels = self.chance.choice(["MaxPool", "AveragePool"]), self.shapes[source][1]
        if kind == "AveragePool":
            del attrs["dilations"]
            kernel = attrs["kernel_shape"]
            pads = attrs["pads"] = [min(pad, kernel[n % 2] - 1) for n, pad in enumerate(attrs["pads"])]
            size = tuple(
                (have + pads[n] + pads[2 + n] - kernel[n]) // attrs["strides"][n] + 1
                for n, have in enumerate(self.shapes[source][2:])
            )
            attrs["count_include_pad"] = self.chance.randrange(2)
        return self.grid(self.op(kind, [source], (1, channels, *size), **attrs))

    def joined(self, source: str) -> str:
        """Join or add a value of the same rows, such as a residual."""
        shape = self.shapes[source]
        alike = [one for one, form in self.shapes.items() if form[2:] == shape[2:] and one in self.known]
        other = self.chance.choice(alike)
        if self.shapes[other] == shape and self.chance.random() < 0.6:
            return self.grid(self.op(self.chance.choice(["Add", "Sub", "Mul"]), [source, other], shape))
        channels = shape[1] + self.shapes[other][1]
        if channels > 16:
            return source
        return self.grid(self.op("Concat", [source, other], (1, channels, *shape[2:]), axis=1))

    def changed(self, source: str) -> str:
        shape, kind = self.shapes[source], self.chance.choice(["Sigmoid", "Tanh", "add", "cut", "pad", "multiply"])
        if kind == "add":
            form = self.chance.choice([(), (shape[1], 1, 1), (shape[2], 1)])
            return self.grid(self.op("Add", [source, self.constant(self.rng.uniform(-1, 1, form).astype(F32))], shape))
        if kind == "cut" and shape[2] > 6:
            first, end = self.chance.choice([(1, shape[2]), (0, shape[2] - 1), (shape[2] - 3, shape[2])])
            bounds = [self.constant(np.array([number], np.int64)) for number in (first, end, 2)]
            return self.grid(self.op("Slice", [source, *bounds], (*shape[:2], end - first, shape[3])))
        if kind == "pad":
            pads = self.constant(np.array([0, 0, 2, 0, 0, 0, 0, 0], np.int64))
            return self.grid(self.op("Pad", [source, pads], (*shape[:2], shape[2] + 2, shape[3])))
        if kind == "multiply" and self.dtype is F32:
            weights = self.constant(self.rng.uniform(-0.5, 0.5, (shape[3], 3)).astype(F32))
            return self.op("MatMul", [source, weights], (*shape[:3], 3))
        return self.grid(self.op(kind if kind in ("Sigmoid", "Tanh") else "Relu", [source], shape))

    def ended(self, source: str) -> str:
        """Append what needs all rows at once, or nothing."""
        _, channels, time, features = self.shapes[source]
        kind = self.chance.choice(["mean", "dense", "last", ""])
        if kind == "mean":
            return self.grid(self.op("GlobalAveragePool", [source], (1, channels, 1, 1)))
        if kind == "dense":
            count = channels * time * features
            flat = self.op("Flatten", [source], (1, count), axis=1)
            return self.op("MatMul", [flat, self.constant(self.rng.uniform(-0.1, 0.1, (count, 3)).astype(F32))], (1, 3))
        if kind == "last":
            bounds = [self.constant(np.array([number], np.int64)) for number in (time - 1, time, 2)]
            return self.op("Slice", [source, *bounds], (1, channels, 1, features))
        return source

    @property
    def known(self) -> set[str]:
        """The values that are on a grid; of floats, all."""
        return {*self.shapes} if self.dtype is F32 else {*self.grids}


def network(seed: int) -> tuple[onnx.ModelProto, Slide]:
    """Return a network, and how its input `x` slides."""
    dtype: Any = (np.int8, F32, np.int8, np.uint8, np.int16)[seed % 5]
    net = Windowed(seed, dtype)
    chance = net.chance
    shape: Shape = (1, chance.choice([1, 2, 4]), chance.choice([16, 21, 24, 32]), chance.choice([1, 1, 2, 4]))
    order = chance.choice([(0, 1, 2, 3), (0, 2, 3, 1)])
    outside = tuple(shape[place] for place in order)
    net.inputs["x"] = dtype, outside
    if dtype is F32:
        net.shapes["x"] = outside
        value = "x"
    else:
        value = net.floats("x", outside, 0.04, 3 + net.middle)
    if order != (0, 1, 2, 3):
        value = net.op("Transpose", [value], shape, perm=[0, 3, 1, 2])
        value = net.grid(value)
    for _ in range(chance.randrange(2, 7)):
        if min(net.shapes[value][2:]) < 1 or net.shapes[value][2] < 4:
            break
        value = chance.choice([net.convolved, net.convolved, net.pooled, net.joined, net.changed])(value)
    hop = chance.choice(HOPS)
    outputs = [net.ended(value), *([value] if chance.random() < 0.2 else [])]
    return net.proto(outputs), Slide("x", hop, order.index(2))


def keeping(proto: onnx.ModelProto, slide: Slide, seed: int) -> tuple[onnx.ModelProto, Array]:
    """Return a network that keeps its window `x` itself, as a state, with the input `new`; and the first state."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    (value,) = (one for one in made.graph.input if one.name == "x")
    kind, shape = value.type.tensor_type, [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    assert slide.axis is not None
    kept, new = (
        [*shape[: slide.axis], rows, *shape[slide.axis + 1 :]] for rows in (shape[slide.axis] - slide.hop, slide.hop)
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    first = np.random.default_rng(seed).integers(1, 9, kept).astype(dtype)
    nodes = [
        onnx.helper.make_node("Concat", ["kept", "new"], ["x"], axis=slide.axis),
        onnx.helper.make_node("Slice", ["x", "from", "to", "along"], ["next"]),
        *made.graph.node,
    ]
    bounds = {"from": slide.hop, "to": shape[slide.axis], "along": slide.axis}
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    made.graph.input.remove(value)
    made.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, kind.elem_type, form) for name, form in (("new", new), ("kept", kept))
    )
    made.graph.output.append(onnx.helper.make_tensor_value_info("next", kind.elem_type, kept))
    constants = {**{name: np.int64([number]) for name, number in bounds.items()}, "kept": first}
    made.graph.initializer.extend(onnx.numpy_helper.from_array(data, name) for name, data in constants.items())
    onnx.helper.set_model_props(made, {"mtool.states": '[["next", "kept"]]'})
    return made, first


def sequence(graph: Graph, slide: Slide, calls: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield the new rows of each call, and the whole window."""
    assert slide.axis is not None
    (noted,), kind, rng = graph.slides, graph.types[slide.value], np.random.default_rng(seed)
    window = np.full(kind.shape, noted.zero, kind.dtype.numpy)
    form = (*kind.shape[: slide.axis], slide.hop, *kind.shape[slide.axis + 1 :])
    for _ in range(calls):
        if kind.dtype.is_float:
            new = rng.uniform(-2, 2, form).astype(F32)
        else:
            low, high = kind.dtype.limits
            new = rng.integers(low, high + 1, form).astype(kind.dtype.numpy)
        window = np.concatenate([window, new], slide.axis).take(range(slide.hop, noted.rows + slide.hop), slide.axis)
        yield new, window
