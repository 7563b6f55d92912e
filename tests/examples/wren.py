"""The Wren of examples/accelerator: its built simulator, and networks that it computes partly."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
from tflite_models import Graph, Op, T, model

from mtool.compiler.backends import BackendSpec

FOLDER = Path(__file__).parents[2] / "examples" / "accelerator"
DEVICE = FOLDER / "wren.toml"
_COMPILER = f"{sys.executable} {FOLDER}/wrencc.py {{nodes}} {{constants}} -o {{output}} --report {{report}}"


@functools.cache
def simulator() -> Path:
    """Build the simulator as its first lines say, with every warning."""
    made = Path(tempfile.mkdtemp(prefix="wren-")) / "wrensim"
    sources = [FOLDER / "simulator" / "wrensim.c", *sorted((FOLDER / "driver").glob("*.c"))]
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-ffp-contract=off"]
    flags += ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["cc", *flags, f"-I{FOLDER / 'driver'}", *map(str, sources), "-o", str(made)], check=True)
    return made


def spec(**options: str) -> BackendSpec:
    return BackendSpec("json", options={"device": str(DEVICE), "compiler": _COMPILER, **options})


def small_tflite() -> bytes:
    """Return a TFLite model of int8 with every operator that the Wren has in that rounding."""
    rng = np.random.default_rng(7)
    int8, made, ops = np.int8, [], []

    def tensor(name: str, shape: list[int], scale: float, zero: int = 3) -> str:
        made.append(T(name, shape, int8, scale, zero))
        return name

    def weights(name: str, shape: list[int], scales: list[float], axis: int = 0) -> str:
        made.append(T(name, shape, int8, scales, 0, axis, rng.integers(-127, 128, shape)))
        return name

    def bias(name: str, count: int, scales: list[float]) -> str:
        made.append(T(name, [count], np.int32, scales, 0, 0, rng.integers(-900, 900, count)))
        return name

    each = [0.01 * (1 + n / 7) for n in range(6)]
    tensor("x", [1, 8, 6, 3], 0.05)
    ops.append(Op("CONV_2D", ["x", weights("w", [6, 3, 3, 3], each), bias("b", 6, [0.05 * one for one in each])],
                  [tensor("c", [1, 8, 6, 6], 0.11)], "Conv2DOptions",
                  {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1,
                   "FusedActivationFunction": 3}))  # fmt: skip
    ops.append(Op("DEPTHWISE_CONV_2D", ["c", weights("v", [1, 3, 3, 6], each, 3),
                                        bias("d", 6, [0.11 * one for one in each])],
                  [tensor("e", [1, 8, 6, 6], 0.07, -5)], "DepthwiseConv2DOptions",
                  {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1,
                   "DepthMultiplier": 1}))  # fmt: skip
    ops.append(
        Op("ADD", ["c", "e"], [tensor("s", [1, 8, 6, 6], 0.13, 9)], "AddOptions", {"FusedActivationFunction": 1})
    )
    pool = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    ops.append(Op("MAX_POOL_2D", ["s"], [tensor("m", [1, 4, 3, 6], 0.13, 9)], "Pool2DOptions", pool))
    pool = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 3, "FilterWidth": 3}
    ops.append(Op("AVERAGE_POOL_2D", ["m"], [tensor("a", [1, 2, 1, 6], 0.13, 9)], "Pool2DOptions", pool))
    made.append(T("perm", [4], np.int32, data=np.array([0, 3, 2, 1])))
    ops.append(Op("TRANSPOSE", ["a", "perm"], [tensor("t", [1, 6, 1, 2], 0.13, 9)], "TransposeOptions"))
    made.append(T("flat", [2], np.int32, data=np.array([1, 12])))
    ops.append(Op("RESHAPE", ["t", "flat"], [tensor("r", [1, 12], 0.13, 9)], "ReshapeOptions"))
    ops.append(Op("FULLY_CONNECTED", ["r", weights("u", [5, 12], [0.0113]), bias("f", 5, [0.13 * 0.0113])],
                  [tensor("l", [1, 5], 0.0931, -7)], "FullyConnectedOptions", {}))  # fmt: skip
    ops.append(Op("SOFTMAX", ["l"], [tensor("y", [1, 5], 1 / 256, -128)], "SoftmaxOptions", {"Beta": 1.0}))
    return model(made, ops, ["x"], ["y"])


def decimal_tflite() -> bytes:
    """Return a TFLite model of a dense layer whose scales make sums that are nearly ties."""
    rng = np.random.default_rng(3)
    tensors = [
        T("x", [1, 5], np.int8, 0.15, 9),
        T("w", [400, 5], np.int8, 0.01, 0, 0, rng.integers(-9, 10, [400, 5])),
        T("b", [400], np.int32, 0.0015, 0, 0, rng.integers(-50, 50, 400)),
        T("y", [1, 400], np.int8, 0.1, -8),
    ]
    return model(tensors, [Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], "FullyConnectedOptions", {})], ["x"], ["y"])


def simulated(**options: str) -> BackendSpec:
    return spec(simulator=f"{simulator()} {{binary}} {{inputs}} {{outputs}}", **options)


def control_tflite() -> bytes:
    """Return a TFLite model of int8 with a loop and a branch."""
    int8, rng = np.int8, np.random.default_rng(1)

    def tensor(name: str, scale: float = 0.1) -> T:
        return T(name, [1, 8], int8, scale, 3)

    def weights(name: str) -> T:
        return T(name, [8, 8], int8, 0.01, 0, 0, rng.integers(-127, 128, [8, 8]))

    bias = T("b", [8], np.int32, 0.001, 0, 0, rng.integers(-500, 500, 8))
    add, dense = Op("ADD", ["t", "t"], ["u"], "AddOptions", {"FusedActivationFunction": 1}), "FullyConnectedOptions"
    then = Graph([tensor("t"), tensor("u", 0.15)], [add], ["t"], ["u"])
    product = Op("FULLY_CONNECTED", ["e", "w", "b"], ["f"], dense)
    otherwise = Graph([tensor("e"), weights("w"), bias, tensor("f", 0.15)], [product], ["e"], ["f"])
    three = T("three", [], np.int32, data=np.array(3))
    less = Op("LESS", ["n", "three"], ["less"], "LessOptions")
    condition = Graph([T("n", [], np.int32), tensor("c"), three, T("less", [], bool)], [less], ["n", "c"], ["less"])
    one, numbers = T("one", [], np.int32, data=np.array(1)), [T(name, [], np.int32) for name in ("m", "next")]
    steps = [
        Op("ADD", ["m", "one"], ["next"], "AddOptions"),
        Op("ADD", ["i", "i"], ["s"], "AddOptions"),
        Op("FULLY_CONNECTED", ["s", "v"], ["o"], dense),
    ]
    tensors = [*numbers, one, tensor("i"), tensor("s", 0.13), tensor("o"), weights("v")]
    body = Graph(tensors, steps, ["m", "i"], ["next", "o"])
    outer = [T("flag", [1], bool), T("k", [], np.int32), tensor("x"), T("end", [], np.int32), tensor("h")]
    ops = [
        Op("WHILE", ["k", "x"], ["end", "h"], "WhileOptions", {"CondSubgraphIndex": 3, "BodySubgraphIndex": 4}),
        Op("IF", ["flag", "h"], ["y"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}),
    ]
    whole = [*outer, tensor("y", 0.15)]
    return model(whole, ops, ["flag", "k", "x"], ["y"], then, otherwise, condition, body)


def detector() -> onnx.ModelProto:
    """Return a detector of int8: a backbone with activations that the Wren has not, and two heads at two sizes."""
    net = networks.Quantized(11, networks.np.int8)
    net.inputs["x"] = (networks.np.int8, (1, 4, 8, 8))
    value = net.floats("x", (1, 4, 8, 8), 0.04, 3)
    value = _block(net, value)
    value = net.grid(net.op("HardSwish", [value], net.shapes[value]))  # the first border
    value = _block(net, value)
    value = net.grid(net.op("Tanh", [value], net.shapes[value]))  # the second
    large = _block(net, value)
    heads = [_head(net, large, 8), _head(net, _halved(net, large), 4)]  # the third: behind it the heads are joined
    boxes = net.op("Concat", heads, (1, 3, 80), axis=2)
    return net.proto([boxes])


def floats() -> onnx.ModelProto:
    """Return a network of float32 with every operator that the Wren has."""
    net = networks.Network(3)
    net.inputs["x"] = (networks.F32, (1, 3, 8, 8))
    weights = [
        net.rng.uniform(-0.4, 0.4, shape).astype(networks.F32) for shape in ((6, 3, 3, 3), (6, 1, 3, 3), (96, 5))
    ]
    biases = [net.rng.uniform(-0.2, 0.2, size).astype(networks.F32) for size in (6, 6, 5)]
    filters, depthwise, matrix = map(net.constant, weights)
    first, second, third = map(net.constant, biases)
    wide = net.op("Conv", ["x", filters, first], (1, 6, 8, 8), pads=[1] * 4)
    positive = net.op("Relu", [wide], (1, 6, 8, 8))
    deep = net.op("Conv", [positive, depthwise, second], (1, 6, 8, 8), pads=[1] * 4, group=6)
    both = net.op("Add", [positive, deep], (1, 6, 8, 8))
    small = net.op("MaxPool", [net.op("Relu", [both], (1, 6, 8, 8))], (1, 6, 4, 4), kernel_shape=[2, 2], strides=[2, 2])
    mean = net.op("AveragePool", [small], (1, 6, 4, 4), kernel_shape=[1, 1])
    flat = net.op("Flatten", [mean], (1, 96), axis=1)
    return net.proto([net.op("Gemm", [flat, matrix, third], (1, 5))])


def _block(net: Any, value: str) -> str:
    inner = net.conv(value, 8, 3, depthwise=False, dead=0.1)
    outer = net.conv(inner, 8, 3, depthwise=True, dead=0.0)
    return str(net.grid(net.op("Add", [inner, outer], net.shapes[inner])))


def _halved(net: Any, value: str) -> str:
    n, c, h, w = net.shapes[value]
    made = net.op("MaxPool", [value], (n, c, h // 2, w // 2), kernel_shape=[2, 2], strides=[2, 2])
    scale, zero = net.grids[value]
    quantized = net.name()
    numbers = [net.constant(networks.F32(scale)), net.constant(net.dtype(zero))]
    net.nodes.append(onnx.helper.make_node("QuantizeLinear", [made, *numbers], [quantized]))
    return str(net.floats(quantized, net.shapes[made], scale, zero))


def _head(net: Any, value: str, size: int) -> str:
    made = net.conv(value, 3, 1, depthwise=False, dead=0.0)
    shape = net.constant(networks.np.array([1, 3, size * size], networks.np.int64))
    return str(net.op("Reshape", [made, shape], (1, 3, size * size)))
