"""The Wren of examples/accelerator: its simulator, built, and networks that it computes a part of."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import networks
import onnx

from mtool.backends import BackendSpec

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


def simulated(**options: str) -> BackendSpec:
    return spec(simulator=f"{simulator()} {{binary}} {{inputs}} {{outputs}}", **options)


def detector() -> onnx.ModelProto:
    """Return a detector of int8: a backbone with activations that the Wren has not, and two heads at two sizes."""
    net = networks.Quantised(11, networks.np.int8)
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
    quantised = net.name()
    numbers = [net.constant(networks.F32(scale)), net.constant(net.dtype(zero))]
    net.nodes.append(onnx.helper.make_node("QuantizeLinear", [made, *numbers], [quantised]))
    return str(net.floats(quantised, net.shapes[made], scale, zero))


def _head(net: Any, value: str, size: int) -> str:
    made = net.conv(value, 3, 1, depthwise=False, dead=0.0)
    shape = net.constant(networks.np.array([1, 3, size * size], networks.np.int64))
    return str(net.op("Reshape", [made, shape], (1, 3, size * size)))
