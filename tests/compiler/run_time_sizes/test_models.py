"""Models with run-time sizes against onnxruntime, at every size, in one library each, with each core's schedules."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, NO_FPU
from single_pass import DSP, MVE
from sized import RNG, Shape, build, check, floats, mlp, node

from mtool.base.errors import ModelError
from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

TARGETS = {"host": HOST, "dsp": DSP, "mve": MVE, "no_fpu": NO_FPU}


def quantized(value: str, name: str) -> list[Any]:
    """Return the nodes that put a value on the grid of `x_s`, `x_z`, and take it off again."""
    return [
        node("QuantizeLinear", f"{value} x_s x_z", f"{name}_q"),
        node("DequantizeLinear", f"{name}_q x_s x_z", name),
    ]


def quantized_mlp(channels: int = 8, outputs: int = 5) -> onnx.ModelProto:
    """int8 rows, as many as are given; the last layer leaves the grid, so that its results are staged."""
    constants = {
        "x_s": np.float32(0.0397), "x_z": np.int8(3), "w_s": np.float32(0.00931), "z": np.int8(0),
        "w": RNG.integers(-127, 128, (channels, 12)).astype(np.int8),
        "v": RNG.integers(-127, 128, (12, outputs)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        *quantized("x", "xf"), node("DequantizeLinear", "w w_s z", "wf"), node("DequantizeLinear", "v w_s z", "vf"),
        node("MatMul", "xf wf", "a"), node("Relu", "a", "r"), *quantized("r", "rf"),
        node("MatMul", "rf vf", "b"), *quantized("b", "bf"), node("Tanh", "bf", "y"),
    ]  # fmt: skip
    return build(nodes, {"x": ("n", channels)}, {"y": ("n", outputs)}, constants)


def cnn() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w b", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p d", "c", group=4, pads=[1, 1, 1, 1]), node("GlobalAveragePool", "c", "g"),
        node("Flatten", "g", "f"), node("Gemm", "f v", "l"), node("Softmax", "l", "y"),
    ]  # fmt: skip
    constants = {"w": floats(4, 3, 3, 3), "b": floats(4), "d": floats(4, 1, 3, 3), "v": floats(4, 5)}
    return build(nodes, {"x": ("batch", 3, 6, 6)}, {"y": ("batch", 5)}, constants)


def temporal() -> onnx.ModelProto:
    """Convolutions along time, with a stride, and a mean over what is there."""
    nodes = [
        node("Conv", "x w b", "a", pads=[1, 1], strides=[2]), node("Relu", "a", "r"),
        node("Conv", "r v", "c", pads=[2, 2], dilations=[2]), node("ReduceMean", "c", "m", axes=[2], keepdims=0),
        node("ReduceMax", "c", "h", axes=[2], keepdims=0),
    ]  # fmt: skip
    constants = {"w": floats(6, 4, 3), "b": floats(6), "v": floats(5, 6, 3)}
    outputs: dict[str, Shape] = {"c": (1, 5, "half"), "m": (1, 5), "h": (1, 5)}
    return build(nodes, {"x": (1, 4, "n")}, outputs, constants)


def quantized_mean() -> onnx.ModelProto:
    """Integers along time, with a stride, and means over what is there: one is an integer, one a float."""
    constants = {
        "x_s": np.float32(0.0397), "x_z": np.int8(3), "w_s": np.float32(0.00931), "z": np.int8(0),
        "y_s": np.float32(0.0123), "y_z": np.int8(-4), "w": RNG.integers(-127, 128, (6, 4, 3)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        *quantized("x", "xf"), node("DequantizeLinear", "w w_s z", "wf"),
        node("Conv", "xf wf", "a", pads=[1, 1], strides=[2]), *quantized("a", "af"),
        node("GlobalAveragePool", "af", "m"), node("QuantizeLinear", "m y_s y_z", "q"),
        node("DequantizeLinear", "q y_s y_z", "y"), node("GlobalAveragePool", "xf", "z0"),
    ]  # fmt: skip
    return build(nodes, {"x": (1, 4, "n")}, {"y": (1, 6, 1), "z0": (1, 4, 1)}, constants)


def recurrent(op: str, direction: str) -> onnx.ModelProto:
    hidden, gates, ways = 5, {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    constants = {
        "w": floats(ways, gates * hidden, 3), "r": floats(ways, gates * hidden, hidden),
        "b": floats(ways, 2 * gates * hidden),
    }  # fmt: skip
    nodes = [
        node(op, "x w r b", "s h", hidden_size=hidden, direction=direction),
        node("ReduceMean", "s", "m", axes=[0]),
    ]
    outputs: dict[str, Shape] = {"s": ("n", ways, "b", hidden), "h": (ways, "b", hidden), "m": (1, ways, "b", hidden)}
    return build(nodes, {"x": ("n", "b", 3)}, outputs, constants)


def transformer() -> onnx.ModelProto:
    """A block of an encoder: positions and a mask are cut to the length, heads are split off by a Reshape."""
    width, heads, most = 16, 2, 20
    constants: dict[str, Any] = {
        "pos": floats(1, most, width), "mask": np.triu(np.full((most, most), -1e9, np.float32), 1)[None, None],
        "split": np.array([0, 0, heads, width // heads]), "joined": np.array([0, 0, width]), "i0": np.array([0]),
        "i1": np.array([1]), "i00": np.array([0, 0]), "i23": np.array([2, 3]), "root": np.float32(0.35),
        "half": np.float32(0.5), "one": np.float32(1), "two": np.float32(np.sqrt(2)), "g1": floats(width, scale=1),
        "g2": floats(width, scale=1), "o1": floats(width), "o2": floats(width), "up": floats(width, 24),
        "upb": floats(24), "down": floats(24, width), "out": floats(width, width),
        **{f"w{name}": floats(width, width) for name in "qkv"},
    }  # fmt: skip
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape i1", "n"), node("Slice", "pos i0 n i1", "here"),
        node("Add", "x here", "x0"), node("LayerNormalization", "x0 g1 o1", "a", axis=-1),
        node("Concat", "n n", "nn", axis=0), node("Slice", "mask i00 nn i23", "causal"),
    ]  # fmt: skip
    for name, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [node("MatMul", f"a w{name}", f"{name}0"), node("Reshape", f"{name}0 split", f"{name}1")]
        nodes += [node("Transpose", f"{name}1", f"{name}2", perm=perm)]
    nodes += [
        node("MatMul", "q2 k2", "s0"), node("Mul", "s0 root", "s1"), node("Add", "s1 causal", "s2"),
        node("Softmax", "s2", "p", axis=-1), node("MatMul", "p v2", "h0"),
        node("Transpose", "h0", "h1", perm=[0, 2, 1, 3]), node("Reshape", "h1 joined", "h2"),
        node("MatMul", "h2 out", "h3"), node("Add", "h3 x0", "r1"),
        node("LayerNormalization", "r1 g2 o2", "b", axis=-1), node("MatMul", "b up", "u0"), node("Add", "u0 upb", "u1"),
        node("Div", "u1 two", "e0"), node("Erf", "e0", "e1"), node("Add", "e1 one", "e2"), node("Mul", "u1 e2", "e3"),
        node("Mul", "e3 half", "e4"), node("MatMul", "e4 down", "d"), node("Add", "d r1", "y"),
        node("ReduceMean", "y", "pooled", axes=[1], keepdims=0),
    ]  # fmt: skip
    outputs: dict[str, Shape] = {"y": (1, "n", width), "p": (1, heads, "n", "n"), "pooled": (1, width)}
    return build(nodes, {"x": (1, "n", width)}, outputs, constants)


def moved() -> onnx.ModelProto:
    """Movements along the open dimension, and across it."""
    nodes = [
        node("Concat", "x c x", "twice", axis=0), node("Transpose", "twice", "turned", perm=[1, 0]),
        node("Slice", "x first last axis", "tail"), node("Gather", "x ids", "chosen", axis=1),
        node("Pad", "x pads", "padded"), node("Reshape", "turned flat", "row"), node("Softmax", "x", "share", axis=0),
        node("CumSum", "x zero", "sums"), node("ArgMax", "x", "best", axis=0, keepdims=0),
    ]  # fmt: skip
    constants = {
        "c": floats(2, 3), "first": np.array([-1]), "last": np.array([-100]), "axis": np.array([0]),
        "ids": np.array([2, 0]), "pads": np.array([2, 0, 0, 1]), "flat": np.array([-1]), "zero": np.array(0),
    }  # fmt: skip
    nodes[2] = node("Slice", "x first last axis axis_step", "tail")
    constants["axis_step"] = np.array([-1])
    outputs: dict[str, Shape] = {
        "row": ("r",), "tail": ("n", 3), "chosen": ("n", 2), "padded": ("m", 4), "share": ("n", 3), "sums": ("n", 3),
        "best": (3,),
    }  # fmt: skip
    return build(nodes, {"x": ("n", 3)}, outputs, constants, best=onnx.TensorProto.INT64)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.product
def test_rows_of_a_dense_network(target: Target, tmp_path: Path) -> None:
    check(mlp(), {"batch": 9}, tmp_path, target)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [8, 5])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.product
def test_rows_of_integers_leave_any_remainder_of_a_tile(target: Target, channels: int, tmp_path: Path) -> None:
    check(quantized_mlp(channels), {"n": 14}, tmp_path, target, tolerance=1e-5 if target is not NO_FPU else 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("most", [{"n": 6, "b": 5}, {"n": 9, "b": 1}])
@pytest.mark.parametrize("target", [HOST, DSP], ids=["host", "dsp"])
@pytest.mark.product(2)
def test_rows_of_two_sizes(target: Target, most: dict[str, int], tmp_path: Path) -> None:
    """What is left over of a tile depends on both: it is right, or refused."""
    constants = {
        "x_s": np.float32(0.0397), "x_z": np.int8(3), "w_s": np.float32(0.00931), "z": np.int8(0),
        "w": RNG.integers(-127, 128, (8, 12)).astype(np.int8),
    }  # fmt: skip
    nodes = [*quantized("x", "xf"), node("DequantizeLinear", "w w_s z", "wf"), node("MatMul", "xf wf", "a")]
    proto = build([*nodes, *quantized("a", "y")], {"x": ("n", "b", 8)}, {"y": ("n", "b", 12)}, constants)
    try:
        check(proto, most, tmp_path, target, tolerance=1e-5)
    except ModelError as refused:
        assert "does not support run-time sizes" in str(refused)
    floating = build([node("MatMul", "x w", "y")], {"x": ("n", "b", 8)}, {"y": ("n", "b", 3)}, {"w": floats(8, 3)})
    (tmp_path / "float").mkdir()  # a library of the same path would not be loaded again
    check(floating, most, tmp_path / "float", target)


@pytest.mark.parametrize("target", [HOST, DSP, MVE], ids=["host", "dsp", "mve"])
@pytest.mark.product(2)
def test_a_batch_of_images(target: Target, tmp_path: Path) -> None:
    check(cnn(), {"batch": 5}, tmp_path, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", [HOST, DSP, MVE], ids=["host", "dsp", "mve"])
@pytest.mark.product(2)
def test_convolutions_along_time(target: Target, tmp_path: Path) -> None:
    library = check(temporal(), {"n": 23}, tmp_path, target)
    assert [tensor.dims for tensor in library.manifest.outputs if tensor.dims] == [("1", "5", "(n + 1) // 2")]


@pytest.mark.slow
@pytest.mark.parametrize("target", [HOST, DSP, MVE], ids=["host", "dsp", "mve"])
@pytest.mark.product(2)
def test_means_of_integers_over_the_size(target: Target, tmp_path: Path) -> None:
    check(quantized_mean(), {"n": 15}, tmp_path, target)


@pytest.mark.product(2)
@pytest.mark.parametrize(
    ("op", "direction"), [("LSTM", "forward"), ("LSTM", "bidirectional"), ("GRU", "reverse"), ("RNN", "bidirectional")]
)
def test_recurrent_layers_of_two_sizes(op: str, direction: str, tmp_path: Path) -> None:
    check(recurrent(op, direction), {"n": 6, "b": 3}, tmp_path)


@pytest.mark.slow
@pytest.mark.product(2)
@pytest.mark.parametrize("target", [HOST, MVE], ids=["host", "mve"])
def test_a_block_of_an_encoder(target: Target, tmp_path: Path) -> None:
    check(transformer(), {"n": 20}, tmp_path, target)


def test_movements_along_and_across_the_size(tmp_path: Path) -> None:
    check(moved(), {"n": 8}, tmp_path)


@pytest.mark.parametrize("most", [16, 17, 18])
def test_remainders_that_few_sizes_leave(most: int, tmp_path: Path) -> None:
    """A window of 3 rows in steps of 3, the last of which may be cut: each remainder of the size counts."""
    nodes = [node("AveragePool", "x", "y", kernel_shape=[2, 3], strides=[1, 3], ceil_mode=1)]
    check(build(nodes, {"x": (1, 3, "n", "n")}, {"y": (1, 3, "a", "b")}, {}), {"n": most}, tmp_path)


def ends() -> onnx.ModelProto:
    """Rows from the end of the open dimension, and padding behind it."""
    nodes = [
        node("Gather", "x last", "row", axis=1), node("Gather", "x several", "rows", axis=1),
        node("Gather", "row several", "fixed", axis=1), node("Pad", "x ends", "zeros"),
        node("Pad", "x ends", "mirrored", mode="reflect"), node("Pad", "x ends", "repeated", mode="edge"),
        node("Pad", "x ends nine", "nines"), *quantized("x", "g"), node("Pad", "g ends", "h"), *quantized("h", "steps"),
    ]  # fmt: skip
    constants = {
        "last": np.array(-1), "several": np.array([[-2], [0], [-1]]), "ends": np.array([0, 1, 2, 0, 2, 1]),
        "nine": np.float32(9), "x_s": np.float32(0.0397), "x_z": np.int8(3),
    }  # fmt: skip
    outputs: dict[str, Shape] = {"row": (1, 4), "rows": (1, 3, 1, 4), "fixed": (1, 3, 1)}
    outputs |= dict.fromkeys(("zeros", "mirrored", "repeated", "nines", "steps"), (1, "m", 7))
    return build(nodes, {"x": (1, "n", 4)}, outputs, constants)


def test_rows_from_the_end_and_padding_behind_it(tmp_path: Path) -> None:
    library = check(ends(), {"n": 8}, tmp_path)
    assert [tensor.range.least for tensor in library.manifest.sizes if tensor.range] == [3]


@pytest.mark.slow
def test_padding_of_two_open_dimensions(tmp_path: Path) -> None:
    """A row of zeros is a constant of as many as the other size is."""
    proto = build(
        [node("Pad", "x ends", "y")], {"x": ("n", "m", 5)}, {"y": ("a", "m", 5)}, {"ends": np.array([0, 0, 0, 1, 0, 0])}
    )
    check(proto, {"n": 5, "m": 4}, tmp_path)


def test_bytes_that_are_a_product_of_several_formulas(tmp_path: Path) -> None:
    """An output of n * n * n elements."""
    nodes = [node("Unsqueeze", "x a12", "a"), node("Unsqueeze", "x a01", "b"), node("Add", "a b", "ab"),
             node("Unsqueeze", "x a02", "c"), node("Mul", "ab c", "y")]  # fmt: skip
    axes = {f"a{i}{j}": np.array([i, j]) for i, j in ((0, 1), (0, 2), (1, 2))}
    check(build(nodes, {"x": ("n",)}, {"y": ("n", "n", "n")}, axes), {"n": 7}, tmp_path)


@pytest.mark.product(2)
@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize(
    "chosen", [codegen.conventions("c"), codegen.conventions("step"), codegen.conventions("c", "values")]
)
def test_conventions(chosen: codegen.Conventions, io: Any, tmp_path: Path) -> None:
    if chosen.operators == "typed":
        check(mlp(), {"batch": 4}, tmp_path, conventions=chosen, io=io)
