"""Models of one layer each, for scripts/bench_layers.py: int8 behind QDQ, as quantizers write them."""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from flatbuffers import flexbuffers
from onnx import helper

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from graphs import Array
from graphs import model as graph_model
from tflite_models import Op, T
from tflite_models import model as tflite_model

import mtool

F, I8 = np.float32, np.int8
M0, M3, M4, M55, RV32 = "mps2_an383", "mps2_an385", "mps2_an386", "mps3_an547", "qemu_riscv32"
M7, M33 = "mps2_an500", "mps2_an505"
CORES = {M0: "M0+", M3: "M3", M4: "M4", M7: "M7", M33: "M33", M55: "M55", RV32: "RV32IMC"}
SMALL = (1, 16, 16, 16)
CALIBRATED = (0.0213, 0.0347, 0.0451)  # scales of two inputs and the output: no sum lies halfway between two results
BYTES, FOUR_BITS, TWO_BITS, TERNARY, BINARY = range(-127, 128), range(-8, 8), range(-2, 2), (-1, 0, 1), (-1, 1)
ROUND = (0.02, 0.03, 0.04)  # many sums lie halfway


@dataclass(frozen=True, slots=True)
class Layer:
    """A model, the number of units (MACs or elements; 1: the whole) and what other code needs for a unit.

    bound: instructions a unit that loads, multiplies and stores need on a core. peer: the backend to compare with.
    """

    name: str
    make: Callable[[], onnx.ModelProto | bytes]
    units: int
    unit: str
    boards: Sequence[str]
    bound: Mapping[str, float]
    peer: str = "cmsis_nn"


class Qdq:
    """An ONNX model that grows node by node; every float value is quantized to int8 again."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[type, Sequence[int]]] = {}
        self.random = np.random.default_rng(7)

    def constant(self, data: Array) -> str:
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data)
        return name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an operator; return its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def dequantized(self, value: str, scale: float | Array, zero: int | Array = 0, axis: int = 0) -> str:
        """Return the float value of integers."""
        more = {"axis": axis} if np.ndim(scale) else {}
        zeros = self.constant(np.asarray(zero, I8) + np.zeros(np.shape(scale), I8))
        return self.node("DequantizeLinear", [value, self.constant(np.asarray(scale, F)), zeros], **more)

    def quantized(self, value: str, scale: float, zero: int = 0) -> str:
        """Return the integers of a float value."""
        return self.node("QuantizeLinear", [value, self.constant(F(scale)), self.constant(I8(zero))])

    def input(self, shape: Sequence[int], scale: float = CALIBRATED[0], zero: int = 3) -> str:
        """Add an input of int8; return its float value."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (I8, shape)
        return self.dequantized(name, scale, zero)

    def weights(self, shape: Sequence[int], values: Sequence[int] = BYTES) -> tuple[str, str]:
        """Return weights with a scale a channel, and the int32 biases of an input of the first calibrated scale."""
        data = self.random.choice(values, shape).astype(I8)
        scales = (self.random.uniform(0.002, 0.006, shape[0]) * 127 / max(values)).astype(F)
        biases = self.constant(self.random.integers(-4000, 4000, shape[0]).astype(np.int32))
        of_sums = self.constant(scales * F(CALIBRATED[0]))
        return self.dequantized(self.constant(data), scales), self.node("DequantizeLinear", [biases, of_sums], axis=0)

    def model(self, result: str) -> onnx.ModelProto:
        """Return the model with one output."""
        return graph_model(self.nodes, self.inputs, [result], self.constants)


def _binary(op: str, scales: Sequence[float], **attributes: Any) -> onnx.ModelProto:
    net = Qdq()
    a, b = net.input(SMALL, scales[0], 3), net.input(SMALL, scales[1], -7)
    return net.model(net.quantized(net.node(op, [a, b], **attributes), scales[2], 5))


def _unary(op: str, shape: Sequence[int], scale: float, zero: int, *more: Array, **attributes: Any) -> onnx.ModelProto:
    net = Qdq()
    made = net.node(op, [net.input(shape), *(net.constant(each) if each.size else "" for each in more)], **attributes)
    return net.model(net.quantized(made, scale, zero))


def _convolution(
    shape: Sequence[int],
    outputs: int,
    kernel: Sequence[int],
    group: int = 1,
    stride: int = 1,
    values: Sequence[int] = BYTES,
) -> Any:
    """Return what makes a convolution whose input and output are NHWC already, and its MACs."""
    batch, channels, height, width = shape

    def make() -> onnx.ModelProto:
        net = Qdq()
        pads = [*(size // 2 for size in kernel), *((size - 1) // 2 for size in kernel)]
        x = net.node("Transpose", [net.input((batch, height, width, channels))], perm=[0, 3, 1, 2])
        inputs = [x, *net.weights((outputs, channels // group, *kernel), values)]
        made = net.node("Conv", inputs, group=group, pads=pads, strides=[stride, stride], kernel_shape=list(kernel))
        made = net.dequantized(net.quantized(made, 0.11), 0.11)
        return net.model(net.quantized(net.node("Transpose", [made], perm=[0, 2, 3, 1]), 0.11))

    pixels = -(-height // stride) * -(-width // stride)
    return make, pixels * outputs * (channels // group) * prod(kernel)


def _dense(inputs: int, outputs: int, values: Sequence[int] = BYTES) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        net = Qdq()
        made = net.node("Gemm", [net.input((1, inputs)), *net.weights((outputs, inputs), values)], transB=1)
        return net.model(net.quantized(made, 0.11))

    return make


def _requantized() -> onnx.ModelProto:
    net = Qdq()
    return net.model(net.quantized(net.input(SMALL), 0.0338, -11))


def _from_float() -> onnx.ModelProto:
    net = Qdq()
    net.inputs["x"] = (F, SMALL)
    return net.model(net.quantized("x", 0.0338, -11))


def _float_transform(length: int) -> Callable[[], onnx.ModelProto]:
    node = helper.make_node("DFT", ["x", "length", "axis"], ["y"], onesided=1)
    constants = {"length": np.int64(length), "axis": np.int64(1)}
    return lambda: graph_model([node], {"x": (F, (1, length, 1))}, ["y"], constants, opset=20)


def _int16_transform(length: int) -> Callable[[], bytes]:
    tensors = [T("x", (length,), np.int16), T("y", (length + 2,), np.int16)]
    op = Op("CUSTOM SignalRfft", ["x"], ["y"], custom=flexbuffers.Dumps({"T": 7, "fft_length": length}))
    return lambda: tflite_model(tensors, [op], ["x"], ["y"])


def _front(kind: str, features: int) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        with tempfile.TemporaryDirectory(prefix="mtool-layers-") as folder:
            path = Path(folder) / "row.onnx"
            node = helper.make_node("Identity", ["x"], ["y"])
            onnx.save(graph_model([node], {"x": (F, (1, features))}, ["y"]), path)
            return onnx.load(mtool.preprocess(kind, path, output=Path(folder) / "front.onnx").path)

    return make


def _transposed(perm: Sequence[int]) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        node = helper.make_node("Transpose", ["x"], ["y"], perm=list(perm))
        return graph_model([node], {"x": (I8, (1, 16, 24, 24))}, ["y"])

    return make


def _curve(op: str) -> onnx.ModelProto:
    return graph_model([helper.make_node(op, ["x"], ["y"])], {"x": (F, SMALL)}, ["y"])


def _layer_norm() -> onnx.ModelProto:
    net = Qdq()
    scale, bias = (net.constant(net.random.uniform(0.5, 1.5, 64).astype(F)) for _ in range(2))
    made = net.node("LayerNormalization", [net.input((1, 32, 64)), scale, bias], axis=-1)
    return net.model(net.quantized(made, 0.03))


def _product() -> onnx.ModelProto:
    net = Qdq()
    made = net.node("MatMul", [net.input((1, 32, 64)), net.input((1, 64, 32), 0.02, 0)])
    return net.model(net.quantized(made, 0.2))


def _attention() -> onnx.ModelProto:
    """Return a block: x + Attention(LayerNorm(x)) of 4 heads, T = 32, d = 64."""
    net, steps, width, heads = Qdq(), 32, 64, 4
    x = net.input((steps, width), 0.03, 0)
    ones = net.constant(np.ones(width, F))
    normal = net.node("LayerNormalization", [x, ones, net.constant(np.zeros(width, F))], axis=-1)
    normal = net.dequantized(net.quantized(normal, 0.03), 0.03)
    parts = []
    for _ in range(3):
        made = net.node("MatMul", [normal, _matrix(net, width, width)])
        made = net.dequantized(net.quantized(made, 0.1), 0.1)
        made = net.node("Reshape", [made, net.constant(np.array([steps, heads, width // heads]))])
        parts.append(made)
    q, k, v = (
        net.node("Transpose", [part], perm=perm)
        for part, perm in zip(parts, ([1, 0, 2], [1, 2, 0], [1, 0, 2]), strict=True)
    )
    scores = net.node("MatMul", [q, k])
    scores = net.dequantized(net.quantized(scores, 0.4), 0.4)
    scores = net.node("Mul", [scores, net.constant(F(0.25))])
    share = net.node("Softmax", [net.dequantized(net.quantized(scores, 0.1), 0.1)], axis=-1)
    share = net.dequantized(net.quantized(share, 1 / 256, -128), 1 / 256, -128)
    mixed = net.dequantized(net.quantized(net.node("MatMul", [share, v]), 0.05), 0.05)
    mixed = net.node("Transpose", [mixed], perm=[1, 0, 2])
    mixed = net.node("Reshape", [mixed, net.constant(np.array([steps, width]))])
    made = net.dequantized(net.quantized(net.node("MatMul", [mixed, _matrix(net, width, width)]), 0.06), 0.06)
    return net.model(net.quantized(net.node("Add", [x, made]), 0.07))


def _matrix(net: Qdq, rows: int, columns: int) -> str:
    data = net.random.integers(-127, 128, (rows, columns)).astype(I8)
    return net.dequantized(net.constant(data), 0.003)


def _lstm() -> bytes:
    """Return TFLite's int8 LSTM: 28 steps, 28 inputs, 20 cells, as TensorFlow Lite Micro's MNIST example has."""
    random, steps, inputs, cells = np.random.default_rng(7), 28, 28, 20

    def constant(name: str, shape: list[int], dtype: type, scale: float) -> T:
        limit = 127 if dtype is I8 else 4000
        return T(name, shape, dtype, scale, 0, data=random.integers(-limit, limit, shape).astype(dtype))

    weights = [constant(f"w{gate}", [cells, inputs], I8, 0.006) for gate in range(4)]
    weights += [constant(f"r{gate}", [cells, cells], I8, 0.006) for gate in range(4)]
    biases = [constant(f"b{gate}", [cells], np.int32, 0.00012) for gate in range(4)]
    states = [
        T("h", [1, cells], I8, 0.0078, 2, variable=True),
        T("c", [1, cells], np.int16, 2.0**-11, 0, variable=True),
    ]
    between = [T(f"i{n}", [0], np.int16, 0.01, 0) for n in range(4)] + [T("i4", [0], I8, 0.0078, 2)]
    tensors = [T("x", [1, steps, inputs], I8, 0.02, -3), *weights, *biases, *states, *between]
    tensors.append(T("y", [1, steps, cells], I8, 0.0078, 2))
    names = ["x", *(one.name for one in weights), "", "", "", *(one.name for one in biases), "", "", "h", "c"]
    values = {"TimeMajor": False, "FusedActivationFunction": 4}
    kind, options = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions"
    return tflite_model(tensors, [Op(kind, names, ["y"], options, values, [one.name for one in between])], ["x"], ["y"])


def _resize(mode: str) -> Callable[[], onnx.ModelProto]:
    place = {"nearest": "asymmetric", "linear": "half_pixel"}[mode]
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}

    def make() -> onnx.ModelProto:
        scales = np.array([1, 1, 2, 2], F)
        return _unary(
            "Resize", (1, 16, 12, 12), CALIBRATED[0], 3, np.empty(0), scales, mode=mode,
            coordinate_transformation_mode=place, **more,
        )  # fmt: skip

    return make


def _conv(name: str, boards: Sequence[str], bound: Mapping[str, float], *how: Any, **more: Any) -> Layer:
    make, units = _convolution(*how, **more)
    return Layer(name, make, units, "MAC", boards, bound)


ALL = (M0, M3, M4, M55)
CORES_ALL = (*ALL, RV32)
SIGNALS = (M4, M7, M33, M55, RV32)
TRANSFORM, ROW = "real FFT of ", "a row of "
FEW_BITS = {"": BYTES, ", 4 bits": FOUR_BITS, ", 2 bits": TWO_BITS, ", ternary": TERNARY, ", binary": BINARY}
ELEMENTS = prod(SMALL)
LAYERS = (
    Layer("Add, calibrated scales", lambda: _binary("Add", CALIBRATED), ELEMENTS, "element", ALL, {M4: 7, M55: 2.3}),
    Layer("Add, scales 0.02, 0.03, 0.04", lambda: _binary("Add", ROUND), ELEMENTS, "element", ALL, {}),
    Layer("Sub", lambda: _binary("Sub", CALIBRATED), ELEMENTS, "element", ALL, {}),
    Layer("Mul", lambda: _binary("Mul", CALIBRATED), ELEMENTS, "element", ALL, {}),
    Layer("Max", lambda: _binary("Max", CALIBRATED), ELEMENTS, "element", ALL, {}),
    Layer("Concat with rescaling", lambda: _binary("Concat", CALIBRATED, axis=1), 2 * ELEMENTS, "element", ALL, {}),
    Layer("requantize", _requantized, ELEMENTS, "element", ALL, {}),
    Layer("softmax of 32", lambda: _unary("Softmax", (1, 64, 32), 1 / 256, -128, axis=-1), 2048, "element", ALL, {}),
    Layer("bilinear resize ×2", _resize("linear"), 4 * 16 * 144, "element", (M4, M55), {}),
    Layer("nearest resize ×2", _resize("nearest"), 4 * 16 * 144, "element", (M4, M55), {}),
    Layer("LSTM int8, 28 steps, 28 → 20", _lstm, 1, "whole", (M0, M3, M4, M55, RV32), {}),
    *(
        Layer(f"{TRANSFORM}{length:,}, {kind}", make(length), 1, "whole", SIGNALS, {}, "cmsis_dsp")
        for kind, make in (("float", _float_transform), ("int16", _int16_transform))
        for length in (256, 512, 1024, 2048)
    ),
    *(
        Layer(f"{ROW}{kind}", _front(kind, features), 1, "whole", SIGNALS, {}, "")
        for kind, features in (
            ("log_mel", 40), ("log_mel:like=librosa,rows=1", 128), ("mfcc", 13), ("mlperf_wake_word:rows=1", 40),
            ("micro_wake_word:rows=1", 40),
        )
    ),
    Layer("logarithm of a float", lambda: _curve("Log"), ELEMENTS, "element", CORES_ALL, {}),
    Layer("exponential of a float", lambda: _curve("Exp"), ELEMENTS, "element", CORES_ALL, {}),
    Layer("transpose NCHW to NHWC", _transposed((0, 2, 3, 1)), 16 * 576, "element", (M4, M55), {}),
    Layer("float to int8", _from_float, ELEMENTS, "element", (M4, M55), {}),
    Layer("LayerNorm of 64", _layer_norm, 32 * 64, "element", (M4, M55), {}),
    Layer("MatMul of two variables", _product, 32 * 64 * 32, "MAC", (M4, M55), {}),
    Layer("attention block T = 32, d = 64", _attention, 1, "whole", (M4, M55), {}),
    _conv("1×1 64→64", (M0, M3, M4, M55, RV32), {M4: 0.92, M55: 0.149}, (1, 64, 12, 12), 64, (1, 1)),
    *(_conv(f"1×1 64→64{name}", CORES_ALL, {}, (1, 64, 12, 12), 64, (1, 1), values=FEW_BITS[name])
      for name in (", 2 bits", ", ternary", ", binary")),
    *(Layer(f"dense 128→128{name}", _dense(128, 128, values), 128 * 128, "MAC", CORES_ALL, {})
      for name, values in FEW_BITS.items()),
    _conv("3×3 16→16", (M0, M3, M4, M55, RV32), {M55: 0.127}, (1, 16, 16, 16), 16, (3, 3)),
    _conv("5×5 8→16", (M4, M55), {M4: 0.81, M55: 0.12}, (1, 8, 16, 16), 16, (5, 5)),
    _conv("3×3 of 4 groups", (M4, M55), {M4: 0.90, M55: 0.145}, (1, 32, 16, 16), 32, (3, 3), 4),
    _conv("first 3×3 of one channel", (M4, M55), {M4: 1.87, M55: 0.39}, (1, 1, 48, 48), 8, (3, 3), 1, 2),
    _conv("depthwise 3×3", (M0, M3, M4, M55, RV32), {}, (1, 64, 16, 16), 64, (3, 3), 64),
    _conv("depthwise 5×5 stride 2", (M4, M55), {M4: 1.65, M55: 0.46}, (1, 32, 24, 24), 32, (5, 5), 32, 2),
    _conv("depthwise 7×7", (M4, M55), {M4: 1.45, M55: 0.41}, (1, 32, 16, 16), 32, (7, 7), 32),
    _conv("depthwise 1×9", (M4, M55), {M4: 2.36, M55: 0.64}, (1, 32, 1, 64), 32, (1, 9), 32),
)  # fmt: skip
