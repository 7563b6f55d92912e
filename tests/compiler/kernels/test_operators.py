"""Operators end to end: ONNX -> C -> the host, against onnxruntime, with realistic shapes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, compiled, model, reference, run_c
from onnx import helper

pytestmark = pytest.mark.long

RNG = np.random.default_rng(7)
F = np.float32


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(F)


def check(
    proto: onnx.ModelProto, feeds: dict[str, Any], tmp_path: Path, rtol: float = 1e-5, atol: float = 1e-5
) -> None:
    got = run_c(compiled(proto, HOST), feeds, tmp_path)
    for mine, theirs in zip(got, reference(proto, feeds), strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        if np.issubdtype(mine.dtype, np.floating):
            np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(mine, theirs)


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 9), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 9, 8), (5, 3, 3, 3), {"strides": [2, 2]}),
    ((1, 4, 7, 7), (6, 4, 1, 1), {}),
    ((1, 8, 7, 7), (4, 8, 1, 1), {"strides": [2, 2]}),
    ((1, 4, 9, 9), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 4, 9, 9), (8, 1, 3, 3), {"group": 4, "pads": [0, 1, 1, 0], "strides": [2, 1]}),
    ((1, 4, 9, 9), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((1, 2, 11, 11), (3, 2, 3, 3), {"dilations": [2, 3], "pads": [2, 2, 2, 2]}),
    ((1, 3, 10, 10), (2, 3, 5, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 3, 10, 10), (2, 3, 4, 4), {"auto_pad": "SAME_LOWER"}),
    ((2, 3, 6, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 6, 6), (4, 1, 3, 3), {"group": 4}),
    ((1, 4, 20), (6, 4, 5), {"pads": [2, 2], "strides": [2]}),
    ((1, 4, 20), (4, 1, 3), {"group": 4}),
    ((1, 3, 5, 5), (7, 3, 5, 5), {}),
    ((1, 6, 6, 6), (6, 1, 5, 5), {"group": 6, "pads": [2, 2, 2, 2]}),
]


@pytest.mark.product(4)
@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("bias", [True, False])
def test_conv(case: Any, bias: bool, tmp_path: Path) -> None:
    x_shape, w_shape, attrs = case
    constants = {"w": floats(*w_shape)} | ({"b": floats(w_shape[0])} if bias else {})
    proto = model([helper.make_node("Conv", ["x", *constants], ["y"], **attrs)], {"x": (F, x_shape)}, ["y"], constants)
    check(proto, {"x": floats(*x_shape)}, tmp_path)


@pytest.mark.parametrize("ends", ["Gelu", "Swish", "before", "two biases"])
def test_a_bias_that_is_used_more_than_once(ends: str, tmp_path: Path) -> None:
    """The sum goes into the kernel's bias once, and only where nothing reads the product without it."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["c"])]
    if ends == "Gelu":
        nodes += [helper.make_node("Gelu", ["c"], ["y"])]
    elif ends == "Swish":
        nodes += [helper.make_node("Sigmoid", ["c"], ["d"]), helper.make_node("Mul", ["c", "d"], ["y"])]
    elif ends == "before":
        nodes += [helper.make_node("Tanh", ["c"], ["d"]), helper.make_node("Add", ["a", "d"], ["y"])]
    else:
        nodes += [helper.make_node("Add", ["c", "b2"], ["d"]), helper.make_node("Softsign", ["d"], ["y"])]
    constants = {"w": floats(6, 9), "b": floats(9), "b2": floats(9)}
    proto = model(nodes, {"x": (F, (4, 6))}, ["y"], constants, opset=20)
    check(proto, {"x": floats(4, 6)}, tmp_path)


@pytest.mark.product(2)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ],
)
def test_pool(op: str, attrs: dict[str, Any], tmp_path: Path) -> None:
    proto = model([helper.make_node(op, ["x"], ["y"], **attrs)], {"x": (F, (2, 3, 9, 10))}, ["y"])
    check(proto, {"x": floats(2, 3, 9, 10)}, tmp_path)


def test_average_pool_that_counts_its_padding(tmp_path: Path) -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    check(model([node], {"x": (F, (1, 2, 6, 6))}, ["y"]), {"x": floats(1, 2, 6, 6)}, tmp_path)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool(op: str, tmp_path: Path) -> None:
    check(
        model([helper.make_node(op, ["x"], ["y"])], {"x": (F, (1, 5, 6, 7))}, ["y"]),
        {"x": floats(1, 5, 6, 7)},
        tmp_path,
    )


@pytest.mark.parametrize(
    ("a", "b"), [((1, 7), (7, 5)), ((3, 300), (300, 4)), ((2, 3, 6), (6, 5)), ((6,), (6, 3)), ((1, 600), (600, 9))]
)
def test_matmul_with_constant_weights(a: tuple[int, ...], b: tuple[int, ...], tmp_path: Path) -> None:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F, a)}, ["y"], {"w": floats(*b)})
    check(proto, {"x": floats(*a)}, tmp_path, atol=1e-4)


def test_matmul_of_two_activations(tmp_path: Path) -> None:
    inputs = {"a": (F, (2, 1, 4, 5)), "b": (F, (3, 5, 6))}
    proto = model([helper.make_node("MatMul", ["a", "b"], ["y"])], inputs, ["y"])
    check(proto, {"a": floats(2, 1, 4, 5), "b": floats(3, 5, 6)}, tmp_path)


@pytest.mark.parametrize("attrs", [{}, {"transB": 1}, {"transA": 1, "alpha": 0.5}, {"transB": 1, "beta": 2.0}])
def test_gemm(attrs: dict[str, Any], tmp_path: Path) -> None:
    x_shape = (5, 2) if attrs.get("transA") else (2, 5)
    constants = {"w": floats(4, 5) if attrs.get("transB") else floats(5, 4), "c": floats(4)}
    proto = model([helper.make_node("Gemm", ["x", "w", "c"], ["y"], **attrs)], {"x": (F, x_shape)}, ["y"], constants)
    check(proto, {"x": floats(*x_shape)}, tmp_path)


UNARY = [
    "Relu",
    "Sigmoid",
    "Tanh",
    "LeakyRelu",
    "HardSigmoid",
    "HardSwish",
    "Elu",
    "Exp",
    "Abs",
    "Neg",
    "Floor",
    "Ceil",
    "Softplus",
    "Erf",
]


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, tmp_path: Path) -> None:
    check(
        model([helper.make_node(op, ["x"], ["y"])], {"x": (F, (2, 3, 4))}, ["y"]), {"x": floats(2, 3, 4) * 3}, tmp_path
    )


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((1, 4), (2, 3, 1)), ((2,), ())])
def test_binary_broadcasts(op: str, shapes: Any, tmp_path: Path) -> None:
    a, b = shapes
    proto = model([helper.make_node(op, ["a", "b"], ["y"])], {"a": (F, a), "b": (F, b)}, ["y"])
    check(proto, {"a": floats(*a), "b": floats(*b) + F(3)}, tmp_path)


@pytest.mark.parametrize(("opset", "axis"), [(17, -1), (17, 1), (11, 1), (11, 2), (7, 1)])
def test_softmax_before_and_after_opset_13(opset: int, axis: int, tmp_path: Path) -> None:
    proto = model([helper.make_node("Softmax", ["x"], ["y"], axis=axis)], {"x": (F, (2, 3, 4))}, ["y"], opset=opset)
    check(proto, {"x": floats(2, 3, 4)}, tmp_path)


def test_a_small_cnn_with_batch_norm_branches_and_a_flatten(tmp_path: Path) -> None:
    constants = {
        "w1": floats(6, 3, 3, 3), "scale": floats(6), "shift": floats(6), "mean": floats(6),
        "var": np.abs(floats(6)) + F(0.5),
        "w2": floats(6, 6, 1, 1), "w3": floats(10, 6 * 4 * 4) / F(8), "b3": floats(10),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Add", ["c2", "r1"], ["a"]),
        helper.make_node("Concat", ["a", "c2"], ["cat"], axis=1),
        helper.make_node("Relu", ["a"], ["r2"]),
        helper.make_node("Flatten", ["r2"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["g"], transB=1),
        helper.make_node("Softmax", ["g"], ["y"]),
        helper.make_node("Transpose", ["cat"], ["z"], perm=[0, 2, 3, 1]),
    ]
    proto = model(nodes, {"x": (F, (1, 3, 8, 8))}, ["y", "z"], constants)
    plan = compiled(proto)
    assert not [step for step in plan.steps if "batch" in getattr(step.node.attrs, "label", "")]
    check(proto, {"x": floats(1, 3, 8, 8)}, tmp_path)


def test_a_convolution_that_is_an_output_itself_is_not_folded_away(tmp_path: Path) -> None:
    constants = {"w": floats(3, 2, 3, 3), "v": np.array([1, 2, 3], F)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "v", "v", "v", "v"], ["y"]),
    ]
    check(model(nodes, {"x": (F, (1, 2, 5, 5))}, ["y", "c"], constants), {"x": floats(1, 2, 5, 5)}, tmp_path)


@pytest.mark.parametrize("outputs", [["x2"], ["y", "y2"], ["k"]])
def test_outputs_that_are_inputs_constants_or_twice_the_same(outputs: list[str], tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["x2"]),
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Reshape", ["y", "shape"], ["y2"]),
        helper.make_node("Neg", ["c"], ["k"]),
    ]
    constants = {"shape": np.array([6], np.int64), "c": floats(3)}
    check(model(nodes, {"x": (F, (2, 3))}, outputs, constants), {"x": floats(2, 3)}, tmp_path)
