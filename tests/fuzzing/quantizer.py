"""Turn a float network into one with QuantizeLinear and DequantizeLinear, as static quantizers write it."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tests.fuzzing.networks import Array, Net, Value, feeds

WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "MatMul": None, "Gemm": None}  # the axis of the output channels
KEEP_GRID = {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Slice", "Gather", "Split", "Concat"}


def quantized(net: Net, share: float, *, few_bits: bool = False) -> Net:
    """Return a network of which this share of the float values stands on grids, with the ranges of one run.

    With `few_bits`, weights have 8 to 1 bits by layers, a third of the values 16; in some networks many are signs.

    Raises:
        ValueError: onnxruntime can't run the network.
    """
    return _Quantizer(net, share, few_bits).run()


class _Quantizer:
    def __init__(self, net: Net, share: float, few_bits: bool) -> None:
        self.old, self.share, self.rng, self.few_bits = net, share, net.rng, few_bits
        self.new = replace(
            net, inputs=list(net.inputs), nodes=[], constants=dict(net.constants), values=dict(net.values)
        )
        self.real: dict[str, str] = {}  # what is read in place of a value
        self.grid: dict[str, tuple[str, str]] = {}  # of a value that is read dequantized
        self.kind = self.rng.choice((np.int8, np.int8, np.uint8))
        self.signs = self.rng.choice((0.0, 0.6)) if few_bits else 0.0

    def run(self) -> Net:
        ranges = _ranges(self.old)
        for value in self.old.inputs:
            self.put(value, ranges[value.name])
        for node in self.old.nodes:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            for place, name in enumerate(node.input):
                made.input[place] = self.real.get(name, name)
            if node.op_type in WEIGHTED and self.rng.random() < 0.9:
                self.weigh(made)
            self.new.nodes.append(made)
            for name in node.output:
                same = node.op_type in KEEP_GRID and self.rng.random() < 0.8
                self.put(self.old.values[name], ranges[name], self.grid.get(node.input[0]) if same else None)
        return self.new

    def put(self, value: Value, data: Array, grid: tuple[str, str] | None = None) -> None:
        """Quantize a value and dequantize it again, unless it is left as it is."""
        if value.dtype != np.float32 or self.rng.random() > self.share or not np.isfinite(data).all():
            return
        scale, zero = grid or self.make_grid(data)
        if self.rng.random() < self.signs:
            self.sign(value, data)
            return
        quantized, real = self.new.fresh("q"), self.new.fresh("d")
        self.append("QuantizeLinear", [value.name, scale, zero], quantized, self.new.constants[zero].dtype, value.shape)
        self.append("DequantizeLinear", [quantized, scale, zero], real, np.float32, value.shape)
        self.real[value.name], self.grid[value.name] = real, (scale, zero)

    def sign(self, value: Value, data: Array) -> None:
        """Make a value 1 or -1 on a grid, by a number that no sum is equal to in one order of additions alone."""
        middle = float(np.median(data)) if data.size else 0.0
        least = middle + float(self.rng.uniform(-0.1, 0.1)) * float(data.std() if data.size else 1)
        one = float(self.rng.choice((1, 0.1)))
        numbers = [self.new.constant(number, np.float32) for number in (least, one, -one)]
        names = [self.new.fresh("s") for _ in range(4)]
        scale, zero = self.new.constant(one / self.rng.choice((1, 127)), np.float32), self.new.constant(0, np.int8)
        self.append(self.rng.choice(("GreaterOrEqual", "Less")), [value.name, numbers[0]], names[0], bool, value.shape)
        self.append("Where", [names[0], *numbers[1:]], names[1], np.float32, value.shape)
        self.append("QuantizeLinear", [names[1], scale, zero], names[2], np.int8, value.shape)
        self.append("DequantizeLinear", [names[2], scale, zero], names[3], np.float32, value.shape)
        self.real[value.name], self.grid[value.name] = names[3], (scale, zero)

    def make_grid(self, data: Array) -> tuple[str, str]:
        low, high = min(0.0, float(data.min(initial=0))), max(0.0, float(data.max(initial=0)))
        wide = self.new.opset >= 21 and self.rng.random() < (0.3 if self.few_bits else 0.1)
        dtype = np.dtype(np.int16 if wide else self.kind)
        limits = np.iinfo(dtype)
        if wide or (dtype == np.int8 and self.rng.random() < 0.4):
            scale, zero = max(-low, high, 1e-3) / limits.max, 0
        else:
            scale = max(high - low, 1e-3) / (limits.max - limits.min)
            zero = int(np.clip(round(limits.min - low / scale), limits.min, limits.max))
        roll = self.rng.random()
        if roll < 0.15:
            scale = 2.0 ** round(np.log2(scale))  # ties are frequent
        elif roll < 0.25:
            scale /= 3  # many values saturate
        return self.new.constant(scale, np.float32), self.new.constant(zero, dtype)

    def weigh(self, node: onnx.NodeProto) -> None:
        """Quantize the weights of a product, and its bias where its input is quantized."""
        places = [place for place in (0, 1) if node.input[place] in self.old.constants]
        if not places:
            return
        place = places[-1]
        data = self.old.constants[node.input[place]]
        axis = WEIGHTED[node.op_type]
        if node.op_type == "Gemm":
            axis = 0 if any(attr.name == "transB" and attr.i for attr in node.attribute) else 1
        elif node.op_type == "MatMul" and data.ndim == 2 and place == 1:
            axis = 1
        if not data.size or (node.op_type == "ConvTranspose" and data.shape[1] == 1):
            return
        several = axis is not None and self.rng.random() < 0.6
        others = tuple(n for n in range(data.ndim) if n != axis)
        top = np.maximum(abs(data).max(others) if several else abs(data).max(), 1e-3)
        kept = np.expand_dims(top, others) if several else top
        most = (127, 127, 7, 1)[data.size % 4]  # some have 4 or 2 bits, which are packed
        is_binary = False
        if self.few_bits:
            most, is_binary = self.rng.choice(((127, False), (7, False), (3, False), (1, False), (1, True)))
            most, is_binary = (1, True) if self.rng.random() < self.signs else (most, is_binary)
        scale = np.float32(top / most)
        stored = np.clip(np.rint(data / (kept / most)), -most, most)
        if is_binary:
            stored = np.where(data < 0, -1, 1)
        names = [
            self.new.constant(stored, np.int8),
            self.new.constant(scale, np.float32),
            self.new.constant(np.zeros(scale.shape), np.int8),
        ]
        real = self.new.fresh("d")
        attrs = {"axis": axis} if several else {}
        self.append("DequantizeLinear", names, real, np.float32, data.shape, **attrs)
        source = next((old for old, new in self.real.items() if new == node.input[0]), None)
        node.input[place] = real
        if len(node.input) > 2 and source is not None and node.input[2] in self.old.constants and place == 1:
            self.bias(node, float(self.new.constants[self.grid[source][0]]), scale)

    def bias(self, node: onnx.NodeProto, x_scale: float, scale: Any) -> None:
        data = self.old.constants[node.input[2]]
        if data.ndim != 1 or any(attr.name == "beta" and attr.f != 1 for attr in node.attribute):
            return
        step = np.float32(x_scale) * np.float32(scale)
        if step.ndim and step.shape != data.shape:
            return
        zero = np.zeros(step.shape)
        names = [
            self.new.constant(np.clip(np.rint(data / step), -(2**30), 2**30), np.int32),
            self.new.constant(step, np.float32),
            self.new.constant(zero, np.int32),
        ]
        real = self.new.fresh("d")
        self.append("DequantizeLinear", names, real, np.float32, data.shape, **({"axis": 0} if step.ndim else {}))
        node.input[2] = real

    def append(self, op: str, inputs: list[str], output: str, dtype: Any, shape: tuple[int, ...], **attrs: Any) -> None:
        self.new.nodes.append(helper.make_node(op, inputs, [output], name=self.new.fresh("n"), **attrs))
        self.new.values[output] = Value(output, np.dtype(dtype), tuple(shape))


def _ranges(net: Net) -> dict[str, Array]:
    """Return all values of one run."""
    from tests.fuzzing.networks import to_model

    made = [net.values[name] for node in net.nodes for name in node.output]
    model = to_model(net.nodes, net.inputs, made, net.constants, net.values, net.opset)
    given = feeds(model, 1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run([value.name for value in made], given)
    except Exception as refused:  # onnxruntime's errors share no base
        raise ValueError(str(refused)) from None
    return given | dict(zip((value.name for value in made), found, strict=True))
