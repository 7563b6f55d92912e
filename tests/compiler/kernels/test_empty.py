"""Tensors without elements: as inputs, outputs, intermediate values, and as operands of reductions and products.

onnxruntime is the reference. Sums over nothing are 0, maxima -inf; where onnxruntime leaves its result unwritten
(integer products over nothing), the reference is what the arithmetic says.
"""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import FLAGS, compiled, model, reference, run_c
from onnx import helper

from mtool.base import resources
from mtool.base.errors import ModelError
from mtool.compiler import codegen
from mtool.compiler.frontend.onnx_file import import_graph

F = np.float32
LONG = np.int64
Feeds = dict[str, np.ndarray[Any, Any]]


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["" if name == "-" else name for name in inputs.split()], outputs.split(), **attrs)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


def longs(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, LONG)


def check(proto: onnx.ModelProto, feeds: Feeds, folder: Path) -> None:
    got = run_c(compiled(proto), feeds, folder)
    for value, mine, theirs in zip(proto.graph.output, got, reference(proto, feeds), strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, value.name
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, err_msg=value.name)


REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]


def test_reductions_of_nothing(tmp_path: Path) -> None:
    nodes = []
    for kind in REDUCTIONS:
        nodes.append(node(f"Reduce{kind}", "x", f"{kind}_all", keepdims=0))
        nodes.append(node(f"Reduce{kind}", "x one", f"{kind}_rows"))
        nodes.append(node(f"Reduce{kind}", "x nought", f"{kind}_none", keepdims=0))
    nodes += [node(f"Reduce{kind}", "i one", f"{kind}_int") for kind in ("Sum", "Mean", "Max", "Min", "Prod")]
    outputs = [name for each in nodes for name in each.output]
    constants = {"one": longs(1), "nought": longs(0)}
    proto = model(nodes, {"x": (F, (4, 0)), "i": (np.int32, (4, 0))}, outputs, constants, opset=20)
    check(proto, {"x": floats(4, 0), "i": np.zeros((4, 0), np.int32)}, tmp_path)


def test_products_over_nothing(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w", "m"),
        node("Add", "m b", "n"),
        node("Gemm", "x w c", "g", alpha=0.5),
        node("Gemm", "x w", "h"),
        node("Einsum", "x w b", "e", equation="ij,jk,k->ik"),
        node("MatMul", "q k", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p k2", "a"),
    ]
    inputs = {"x": (4, 0), "b": (2,), "c": (4, 2), "q": (2, 4, 3), "k": (2, 3, 0)}
    constants = {"w": floats(0, 2), "k2": floats(2, 0, 5)}
    proto = model(nodes, {name: (F, shape) for name, shape in inputs.items()}, [*"mnghe", "a"], constants)
    check(proto, {name: floats(*shape) for name, shape in inputs.items()}, tmp_path)


def test_a_convolution_of_no_channels_is_its_bias(tmp_path: Path) -> None:
    """What onnxruntime gives here was never written."""
    feeds = {"image": floats(1, 0, 5, 5), "b": floats(2)}
    inputs = {name: (F, data.shape) for name, data in feeds.items()}
    proto = model([node("Conv", "image filters b", "v")], inputs, ["v"], {"filters": floats(2, 0, 3, 3)})
    (got,) = run_c(compiled(proto), feeds, tmp_path)
    np.testing.assert_array_equal(got, np.broadcast_to(feeds["b"].reshape(1, 2, 1, 1), (1, 2, 3, 3)))


def test_products_of_integers_over_nothing(tmp_path: Path) -> None:
    """A sum of nothing is 0, which is the zero point."""
    nodes = [
        node("MatMulInteger", "x w", "i"),
        node("QLinearMatMul", "x s z w s z s z", "q"),
        node("DequantizeLinear", "x s z", "xf"),
        node("DequantizeLinear", "w s z", "wf"),
        node("MatMul", "xf wf", "f"),
        node("Relu", "f", "r"),
        node("QuantizeLinear", "r s z", "d"),
        node("DequantizeLinear", "d s z", "df"),
        node("DequantizeLinear", "v s z", "vf"),
        node("MatMul", "df vf", "y"),
    ]
    constants = {"w": np.zeros((0, 2), np.int8), "v": np.ones((2, 3), np.int8), "s": F(0.1), "z": np.int8(3)}
    proto = model(nodes, {"x": (np.int8, (4, 0))}, ["i", "q", "d", "y"], constants)
    got = run_c(compiled(proto), {"x": np.zeros((4, 0), np.int8)}, tmp_path)
    exact = (np.zeros((4, 2)), np.full((4, 2), 3), np.full((4, 2), 3), np.zeros((4, 3)))
    for mine, wanted in zip(got, exact, strict=True):
        np.testing.assert_array_equal(mine, wanted)


def test_empty_and_nonempty_operands(tmp_path: Path) -> None:
    """Parts without elements of a concatenation, scatters of no updates, slices that are empty, padding of nothing."""
    nodes = [
        node("Relu", "x", "r"),
        node("Concat", "e r e", "c", axis=0),
        node("ScatterND", "r i u", "nd"),
        node("ScatterElements", "r i2 u", "el"),
        node("Split", "r sizes", "none all", axis=0),
        node("ReduceSum", "none", "total"),
        node("Add", "all total", "sum"),
        node("Slice", "x five nine", "cut"),
        node("Concat", "cut x", "back", axis=0),
        node("Pad", "e pads v", "pad"),
        node("Gather", "x no", "g"),
        node("Concat", "g x", "gx", axis=0),
        node("TopK", "x nought", "t ti"),
        node("Neg", "e", "ne"),
        node("Identity", "e", "same"),
        node("Shape", "e", "shape"),
    ]
    constants = {
        "i": np.zeros((0, 1), LONG), "i2": np.zeros((0, 2), LONG), "sizes": longs(0, 3), "five": longs(5),
        "nine": longs(9), "pads": longs(1, 0, 1, 0), "no": longs(), "nought": longs(0),
    }  # fmt: skip
    inputs = {"x": (3, 2), "e": (0, 2), "u": (0, 2), "v": ()}
    outputs = ["c", "nd", "el", "sum", "back", "pad", "gx", "t", "ti", "ne", "same", "shape", "e"]
    proto = model(nodes, {name: (F, shape) for name, shape in inputs.items()}, outputs, constants)
    check(proto, {name: floats(*shape) for name, shape in inputs.items()}, tmp_path)


LAYERS = [
    node("Conv", "x w", "y"),
    node("ConvTranspose", "x w", "y"),
    node("MaxPool", "x", "y", kernel_shape=[2, 2]),
    node("GlobalAveragePool", "x", "y"),
    node("BatchNormalization", "x v v v v", "y"),
    node("Resize", "x - scales", "y"),
    node("DepthToSpace", "x", "y", blocksize=2),
    node("Transpose", "x", "y"),
    node("CumSum", "x one", "y"),
    node("Softmax", "x", "y"),
    node("ArgMax", "x", "y", axis=1),
    node("QuantizeLinear", "x s z", "y"),
]


def test_layers_of_an_empty_batch(tmp_path: Path) -> None:
    nodes = []
    for number, layer in enumerate(LAYERS):
        each = onnx.NodeProto()
        each.CopyFrom(layer)
        each.output[0] = f"y{number}"
        nodes.append(each)
    constants = {
        "w": floats(4, 4, 3, 3), "v": np.ones(4, F), "scales": F([1, 1, 2, 2]), "one": longs(1), "s": F(0.1),
        "z": np.int8(3),
    }  # fmt: skip
    outputs = [f"y{number}" for number in range(len(LAYERS))]
    check(model(nodes, {"x": (F, (0, 4, 6, 6))}, outputs, constants), {"x": floats(0, 4, 6, 6)}, tmp_path)


def test_a_recurrent_layer_of_no_steps_keeps_its_state(tmp_path: Path) -> None:
    constants = {"w": floats(1, 8, 3), "r": floats(1, 8, 2)}
    nodes = [node("LSTM", "x w r - - h0", "y h c", hidden_size=2)]
    proto = model(nodes, {"x": (F, (0, 1, 3)), "h0": (F, (1, 1, 2))}, ["y", "h", "c"], constants)
    feeds = {"x": floats(0, 1, 3), "h0": floats(1, 1, 2)}
    y, h, c = run_c(compiled(proto), feeds, tmp_path)
    assert y.shape == (0, 1, 1, 2) and not c.any()
    np.testing.assert_array_equal(h, feeds["h0"])


@pytest.mark.parametrize("dtype", [F, np.float16, np.int64, np.bool_])
def test_a_model_of_nothing_but_empty_tensors_has_an_arena_and_compiles_without_warnings(
    dtype: type, tmp_path: Path
) -> None:
    """An input and an output need an address, also with no element: in the arena, and where the caller keeps them."""
    proto = model([node("Identity", "x", "y"), node("Identity", "x", "z")], {"x": (dtype, (2, 0))}, ["y", "z"])
    plan = compiled(proto)
    assert plan.arena_bytes > 0
    files, manifest = codegen.generate(plan, "test.onnx", "0" * 64)
    assert [tensor.bytes for tensor in (*manifest.inputs, *manifest.outputs)] == [0, 0, 0]
    for name in files:
        (tmp_path / name).write_bytes(files[name])
    include = f"-I{resources.path('crt') / 'include'}"
    for compiler in ("gcc", "clang"):
        subprocess.run([compiler, *FLAGS, include, "-c", "test.c", "-o", "test.o"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [("ArgMax", (4, 0)), ("GlobalAveragePool", (1, 2, 0, 5)), ("GlobalMaxPool", (1, 2, 0, 5))],
)
def test_what_is_not_defined_of_nothing_is_refused(layer: str, shape: tuple[int, ...]) -> None:
    attrs = {"axis": 1} if layer == "ArgMax" else {}
    proto = model([node(layer, "x", "y", **attrs)], {"x": (F, shape)}, ["y"])
    with pytest.raises(ModelError, match=layer):
        import_graph(proto, "test")


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_padding_with_elements_that_are_not_there_is_refused(mode: str) -> None:
    nodes = [node("Pad", "x pads", "y", mode=mode)]
    with pytest.raises(ModelError, match="Pad"):
        import_graph(model(nodes, {"x": (F, (4, 0))}, ["y"], {"pads": longs(0, 1, 0, 1)}, opset=19), "test")


def test_what_the_reference_evaluator_can_not_compute_of_nothing_is_computed_on_the_device(tmp_path: Path) -> None:
    """It pads nothing by no negative number, and finds no largest element of nothing."""
    nodes = [
        node("Pad", "x cut", "padded"),
        node("Relu", "padded", "y"),
        node("DynamicQuantizeLinear", "m", "q scale z"),
    ]
    proto = model(nodes, {"x": (F, (0,)), "m": (F, (0, 3, 7))}, ["y", "z"], {"cut": longs(-1, 2)}, opset=21)
    check(proto, {"x": floats(0), "m": floats(0, 3, 7)}, tmp_path)
