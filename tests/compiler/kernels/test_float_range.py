"""Functions over the whole float range, against onnxruntime: every exponent, both signs, 0, infinities, NaN.

Tolerance: 1e-5 relative, 5e-7 absolute (onnxruntime's own sigmoid, Elu and Gelu are no better near 0), and no infinity
or NaN where onnxruntime has none. Between int8 numbers, where the functions are tables, results are equal.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

F = np.float32
Array = np.ndarray[Any, Any]

FUNCTIONS: list[tuple[str, dict[str, Any]]] = [
    *[(op, {}) for op in (
        "Softplus", "Mish", "Gelu", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh", "Elu", "Selu", "Celu", "Softsign",
        "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Asinh", "Acosh", "Atanh", "Sinh", "Cosh", "Asin", "Acos", "Atan",
        "Sin", "Cos", "LeakyRelu", "ThresholdedRelu", "Shrink", "Relu", "Abs", "Neg", "Floor", "Ceil", "Round", "Sign",
    )],
    ("Gelu", {"approximate": "tanh"}), ("Elu", {"alpha": 2.5}), ("Celu", {"alpha": 0.5}), ("Selu", {"gamma": 3.0}),
]  # fmt: skip
CONSTANTS = {"two": F(2), "half": F(0.5), "minus": F(-0.5), "odd": F(1.7), "zero": F(0)}
OPERANDS = [("Pow", "two"), ("Pow", "half"), ("Pow", "minus"), ("Pow", "odd"), ("Max", "half"), ("Div", "zero")]


def every_exponent() -> Array:
    """Return floats of all exponents with several mantissas, and those around which functions overflow or vanish."""
    rng = np.random.default_rng(0)
    mantissas = np.concatenate([np.array([0, 1, 0x400000, 0x7FFFFF]), rng.integers(0, 1 << 23, 2)])
    bits = (np.arange(255)[:, None] << 23 | mantissas).reshape(-1).astype(np.uint32)
    edges = [16.6, 17, 17.4, 20, 87.3, 88, 88.72, 88.73, 89, 103.9, 105, 0.5, 1, 1 - 2**-24, 1 + 2**-23, np.inf, 0]
    x = np.concatenate([bits.view(F), np.linspace(0, 20, 97, dtype=F), np.array(edges, F)])
    return np.concatenate([x, -x, np.array([np.nan], F)])


def nodes_of(source: str) -> tuple[list[onnx.NodeProto], list[str]]:
    nodes = [helper.make_node(op, [source], [f"{op}{n}"], **attrs) for n, (op, attrs) in enumerate(FUNCTIONS)]
    nodes += [helper.make_node(op, [source, operand], [f"{op}_{operand}"]) for op, operand in OPERANDS]
    return nodes, [node.output[0] for node in nodes]


def test_functions_of_every_float(tmp_path: Path) -> None:
    x = every_exponent()
    nodes, outputs = nodes_of("x")
    proto = model(nodes, {"x": (F, x.shape)}, outputs, CONSTANTS, opset=22)
    for name, mine, theirs in zip(
        outputs, run_c(compiled(proto), {"x": x}, tmp_path), reference(proto, {"x": x}), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=5e-7, err_msg=name)


def test_softplus_and_mish_lose_no_digits(tmp_path: Path) -> None:
    """Against float64, relative: also far below 0, where onnxruntime's sigmoid is 0."""
    x = np.linspace(-80, 80, 3201).astype(F)
    wide = x.astype(np.float64)
    exact = np.logaddexp(wide, 0)
    nodes = [helper.make_node(op, ["x"], [op]) for op in ("Softplus", "Mish")]
    proto = model(nodes, {"x": (F, x.shape)}, ["Softplus", "Mish"], opset=20)
    for mine, wanted in zip(run_c(compiled(proto), {"x": x}, tmp_path), (exact, wide * np.tanh(exact)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=5e-7)


@pytest.mark.parametrize(
    ("scale", "point", "out_scale", "out_point"), [(0.1, 3, 0.05, -5), (2.0, 0, 1e-3, 0), (1e30, -20, 1e36, 7)]
)
def test_tables_of_functions_between_int8(
    scale: float, point: int, out_scale: float, out_point: int, tmp_path: Path
) -> None:
    """NaN, as of the logarithm of a negative number, is the lowest value, behind a Relu too."""
    x = np.arange(-128, 128).astype(np.int8)
    nodes, floats = nodes_of("f")
    nodes += [helper.make_node("Log", ["f"], ["log"]), helper.make_node("Relu", ["log"], ["relu"])]
    nodes += [helper.make_node("QuantizeLinear", [name, "so", "zo"], [f"{name}.q"]) for name in (*floats, "relu")]
    nodes.insert(0, helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]))
    outputs = [f"{name}.q" for name in (*floats, "relu")]
    grid = {"s": F(scale), "z": np.int8(point), "so": F(out_scale), "zo": np.int8(out_point)}
    proto = model(nodes, {"x": (np.int8, x.shape)}, outputs, CONSTANTS | grid, opset=20)
    plan = compiled(proto)
    assert all(data.dtype != F for data in plan.graph.constants.values())  # tables, no floats
    for name, mine, theirs in zip(outputs, run_c(plan, {"x": x}, tmp_path), reference(proto, {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


ROWS = np.array(
    [
        [1, 2, 3, 4], [1e20, 1e20, -1e20, 3], [3e38, 3e38, 1, 1], [-3e38, -3e38, -3e38, -3e38], [np.inf, 1, 2, 3],
        [-np.inf, 1, 2, 3], [-np.inf] * 4, [np.inf] * 4, [np.inf, -np.inf, 0, 0], [0, 0, 0, 0], [1e-30] * 4,
        [1e-45] * 4, [1e-23, 1e-23, 0, 0], [100, 200, 300, 400], [-1000, -2000, 0, 0], [88, 89, 90, 91],
        [-104, -103, -102, -88], [1e30, -1e30, 1e-30, 0],
    ],
    F,
)  # fmt: skip


def test_reductions_and_softmax_of_numbers_that_overflow(tmp_path: Path) -> None:
    kinds = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
    nodes = [helper.make_node(f"Reduce{kind}", ["x", "one"], [kind]) for kind in kinds]
    nodes += [helper.make_node(op, ["x"], [op], axis=1) for op in ("Softmax", "LogSoftmax", "Hardmax", "ArgMax")]
    nodes += [helper.make_node("LpNormalization", ["x"], [f"lp{p}"], axis=1, p=p) for p in (1, 2)]
    outputs = [node.output[0] for node in nodes]
    proto = model(nodes, {"x": (F, ROWS.shape)}, outputs, {"one": np.array([1])}, opset=20)
    for name, mine, theirs in zip(
        outputs, run_c(compiled(proto), {"x": ROWS}, tmp_path), reference(proto, {"x": ROWS}), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_place_of_a_nan_lies_in_the_tensor(tmp_path: Path) -> None:
    """ArgMax and Hardmax of what can't be compared: the first place, not one behind the last."""
    x = np.array([[np.nan, 1, 2], [1, np.nan, 0], [2, 1, np.nan]], F)
    nodes = [helper.make_node(op, ["x"], [op], axis=1) for op in ("ArgMax", "ArgMin", "Hardmax")]
    nodes.append(helper.make_node("ArgMax", ["x"], ["last"], axis=1, select_last_index=1))
    proto = model(nodes, {"x": (F, x.shape)}, ["ArgMax", "ArgMin", "Hardmax", "last"])
    most, least, hard, last = run_c(compiled(proto), {"x": x}, tmp_path)
    assert not most.any() and not least.any() and (last == 2).all()
    np.testing.assert_array_equal(hard.sum(axis=1), [1, 1, 1])


def test_equal_values_are_standardised_to_0(tmp_path: Path) -> None:
    """onnxruntime divides 0 by 0, and the variance of ONNX's reference, E[x^2] - E[x]^2, may be negative."""
    rows = np.array([[0.1] * 6, [0] * 6, [-1.3] * 6, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], F).reshape(1, 4, 2, 3)
    scale, zero = F(0.013), np.int8(5)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("MeanVarianceNormalization", ["d"], ["y"]),
    ]
    proto = model(nodes, {"x": (F, rows.shape)}, ["y"], {"s": scale, "z": zero})
    (found,) = run_c(compiled(proto), {"x": rows}, tmp_path)
    exact = np.rint(rows / scale).astype(np.float64) * scale
    centred = exact - exact.mean((0, 2, 3), keepdims=True)
    expected = centred / (exact.std((0, 2, 3), keepdims=True) + 1e-9)
    assert (found[0, :3] == 0).all()
    np.testing.assert_allclose(found[0, 3], expected[0, 3], rtol=1e-5, atol=1e-6)


ODD = F([-2, -1, -0.0, 0, 1, 2, np.nan, np.inf, -np.inf])


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1), (-1, np.nan), (np.nan, np.nan), (1, -1)])
def test_a_constant_nan_bounds_nothing(low: float, high: float, tmp_path: Path) -> None:
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"])]
    proto = model(nodes, {"x": (F, ODD.shape)}, ["y"], {"low": F(low), "high": F(high)})
    (expected,), (found,) = reference(proto, {"x": ODD}), run_c(compiled(proto), {"x": ODD}, tmp_path)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("alpha", [0.0, -0.0, np.nan, -1.0, 0.5])
def test_celu_of_any_alpha(alpha: float, tmp_path: Path) -> None:
    proto = model([helper.make_node("Celu", ["x"], ["y"], alpha=alpha)], {"x": (F, ODD.shape)}, ["y"])
    (expected,), (found,) = reference(proto, {"x": ODD}), run_c(compiled(proto), {"x": ODD}, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_nan_goes_through_a_maximum(tmp_path: Path) -> None:
    """As in ONNX's reference. onnxruntime's result depends on where among the elements it stands."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[2]),
        helper.make_node("ReduceMin", ["x"], ["least"], axes=[2]),
        helper.make_node("GlobalMaxPool", ["x"], ["pool"]),
    ]
    x = np.array([[[1, np.nan, 3], [np.nan, 1, 2], [3, 2, np.nan], [1, 2, 3]]], F)
    plan = compiled(model(nodes, {"x": (F, x.shape)}, ["most", "least", "pool"]))
    most, least, pool = run_c(plan, {"x": x}, tmp_path)
    for found, last in ((most, 3), (least, 1), (pool, 3)):
        np.testing.assert_array_equal(found.reshape(-1), [np.nan, np.nan, np.nan, last])


NORMALISATIONS = [
    helper.make_node("LayerNormalization", ["x", "s8", "z8"], ["layer", "means", "inverse"]),
    helper.make_node("GroupNormalization", ["x", "s4", "z4"], ["group"], num_groups=2),
    helper.make_node("InstanceNormalization", ["x", "s4", "z4"], ["instance"]),
    helper.make_node("MeanVarianceNormalization", ["x"], ["mvn"]),
]


def check_normalisations(
    before: list[onnx.NodeProto], x: Array, floats: Array, constants: dict[str, Any], rtol: float, atol: float, to: Path
) -> None:
    """Compare with float64 what is behind the nodes `before`, which make `floats` of `x`."""
    shape, name = floats.shape, "q" if before else "x"
    constants |= {f"{letter}{n}": np.full(n, letter == "s", F) for letter in "sz" for n in (4, 8)}
    outputs = [output for node in NORMALISATIONS for output in node.output]
    proto = model([*before, *NORMALISATIONS], {name: (x.dtype.type, shape)}, outputs, constants, opset=21)
    got = run_c(compiled(proto), {name: x}, to)
    wide, halves = floats.astype(np.float64), floats.astype(np.float64).reshape(2, 2, 2, *shape[2:])
    deviation = np.sqrt(wide.var(axis=-1, keepdims=True) + 1e-5)
    exact = [
        standard(wide, (-1,)), wide.mean(axis=-1, keepdims=True), 1 / deviation,
        standard(halves, (2, 3, 4)).reshape(shape), standard(wide, (2, 3)), standard(wide, (0, 2, 3), 0.0),
    ]  # fmt: skip
    for output, mine, wanted in zip(outputs, got, exact, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol, atol, err_msg=output)


@pytest.mark.parametrize("mean", [0, 10, 1000])
def test_normalisations_far_from_zero(mean: float, tmp_path: Path) -> None:
    """Against float64: the error is that of the mean's own rounding, not of a difference of squares."""
    x = (np.random.default_rng(0).standard_normal((2, 4, 6, 8)) + mean).astype(F)
    check_normalisations([], x, x, {}, 1e-6, 1e-6 + 1e-7 * mean, tmp_path)


@pytest.mark.parametrize(("dtype", "zero_point", "height"), [(np.int8, -128, 6), (np.uint8, 3, 260)])
def test_normalisations_of_integers(dtype: type, zero_point: int, height: int, tmp_path: Path) -> None:
    """Against float64: integers and their squares are summed up exactly; the squares of large sums take 64 bits."""
    x = np.random.default_rng(0).integers(120, 127, (2, 4, height, 8)).astype(dtype)
    floats = (x.astype(np.float64) - zero_point) * float(F(0.07))
    before = [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x"])]
    constants = {"scale": F(0.07), "zero": dtype(zero_point)}
    check_normalisations(before, x, floats, constants, 5e-7, 1e-9, tmp_path)


def standard(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + epsilon)


def test_group_normalization_as_onnxruntime_has_it(tmp_path: Path) -> None:
    """Scale and bias a channel, of types that onnx's shape inference does not know."""
    x = np.random.default_rng(1).standard_normal((2, 6, 5)).astype(F)
    constants = {"s": np.arange(1, 7, dtype=F), "z": np.arange(6, dtype=F)}
    nodes = [helper.make_node("GroupNormalization", ["x", "s", "z"], ["n"], num_groups=3, epsilon=1e-2)]
    proto = model([*nodes, helper.make_node("Relu", ["n"], ["y"])], {"x": (F, x.shape)}, ["y"], constants, opset=21)
    (mine,) = run_c(compiled(proto), {"x": x}, tmp_path)
    np.testing.assert_allclose(mine, reference(proto, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_a_sample_is_interpolated_before_its_weight_is_applied(tmp_path: Path) -> None:
    """Of DeformConv: twice the largest weight is not a float, half of that is."""
    node = helper.make_node("DeformConv", ["x", "w", "o"], ["y"], kernel_shape=[1, 1])
    feeds = {"x": np.full((1, 1, 2, 2), 2, F), "o": np.full((1, 2, 2, 2), 0.25, F)}
    feeds["x"][0, 0, 0] = 0
    weights = {"w": np.full((1, 1, 1, 1), 2e38, F)}
    inputs = {"x": (F, (1, 1, 2, 2)), "o": (F, (1, 2, 2, 2))}
    proto = model([node], inputs, ["y"], weights, opset=19)
    (found,), (expected,) = run_c(compiled(proto), feeds, tmp_path), reference(proto, feeds)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
