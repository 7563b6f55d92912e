"""Float activations with int8 weights: the results of LiteRT's reference kernels, or of float arithmetic."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tflite_cases import Case, compute, one_model
from tflite_models import Array, Graph, Op, T, litert, model

from mtool import commands
from mtool.base.errors import ModelError, UsageError
from mtool.base.option_values import Hybrid, Rounding
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

R = np.random.default_rng(11)
TARGETS = [
    Target("host", frozenset({"fpu"})),
    Target("cortex-m3", frozenset()),
    Target("cortex-m4", frozenset({"fpu", "dsp"})),
    Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
]
WINDOW = {"StrideH": 2, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
IMAGE = [1, 9, 7, 6]


def case(kind: str, x: list[int], w: list[int], y: list[int], axis: int, scales: int, **values: Any) -> Case:
    """Return an operator with weights of one scale, or of one a channel."""
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
    scale = R.uniform(0.002, 0.03, scales) if scales > 1 else 0.0113
    weights = T("w", w, np.int8, scale, 0, axis, R.integers(-127, 128, w).astype(np.int8))
    bias = [T("b", [w[axis]], data=R.standard_normal(w[axis]).astype(np.float32))] if "NoBias" not in values else []
    values.pop("NoBias", None)
    name = f"{kind}{scales}" + "".join(f"{key}{value}" for key, value in values.items())
    inputs = ["x", "w", *(tensor.name for tensor in bias)]
    op = Op(kind, inputs, ["y"], options.get(kind, "FullyConnectedOptions"), values)
    return Case(name, op, [T("x", x), weights, *bias, T("y", y)])


def cases() -> list[Case]:
    """Return one operator of each form: scales, ranges around zero or not, rows, groups, strides, activations."""
    conv, image = {**WINDOW, "FusedActivationFunction": 1}, [1, 5, 7]
    dense, flat = "FULLY_CONNECTED", {"AsymmetricQuantizeInputs": True}
    return [
        case(dense, [3, 50], [11, 50], [3, 11], 0, 1),
        case(dense, [3, 50], [11, 50], [3, 11], 0, 1, **flat, FusedActivationFunction=1),
        case(dense, [1, 64], [16, 64], [1, 16], 0, 16, NoBias=True),
        case(dense, [1, 33], [8, 33], [1, 8], 0, 8, **flat),
        case(dense, [1, 2, 3, 8], [4, 8], [1, 2, 3, 4], 0, 1, KeepNumDims=True),
        case("CONV_2D", IMAGE, [8, 3, 3, 6], [*image, 8], 0, 1, **conv),
        case("CONV_2D", IMAGE, [8, 3, 3, 6], [*image, 8], 0, 8, **conv),
        case("CONV_2D", [2, 9, 7, 6], [7, 3, 3, 6], [2, 5, 7, 7], 0, 7, **conv),
        case("CONV_2D", IMAGE, [6, 3, 3, 3], [*image, 6], 0, 6, **conv),
        case("CONV_2D", [1, 9, 7, 6], [5, 1, 1, 6], [1, 9, 7, 5], 0, 5, **{**WINDOW, "StrideH": 1}),
        case("DEPTHWISE_CONV_2D", IMAGE, [1, 3, 3, 6], [*image, 6], 3, 6, **conv, DepthMultiplier=1),
        case("DEPTHWISE_CONV_2D", [1, 9, 7, 6], [1, 3, 3, 12], [1, 5, 7, 12], 3, 12, **WINDOW, DepthMultiplier=2),
    ]


def rows(tensor: T) -> Array:
    """Return numbers of another range in each row, some of which are halves of a step, and zeros alone in the last."""
    data = (R.standard_normal(tensor.shape) * 3 + R.uniform(-2, 2)).astype(np.float32)
    data[0].reshape(-1)[:3] = (127, 12.5, -0.5)  # of steps of 1 around zero, where nothing is farther out
    if len(data) > 2:
        data[-1] = 0
    return data


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_the_numbers_are_those_of_the_reference_kernels(target: Target, tmp_path: Path) -> None:
    """Each rounding has them: nothing is rounded to a grid that the file has."""
    rounding: Rounding = "onnx" if target.cpu == "cortex-m3" else "tflite"
    data, inputs, outputs = one_model(cases())
    feeds = {tensor.name: rows(tensor) for tensor in inputs}
    expected = litert(data, feeds, reference=True)
    found = compute(data, feeds, tmp_path, rounding, target)
    furthest = {n: float(np.abs(f - e).max()) for n, f, e in zip(outputs, found, expected, strict=True)}
    assert furthest == dict.fromkeys(outputs, 0.0)


def product(kind: str) -> tuple[bytes, Array, Array]:
    """Return a model of one layer without padding, an input, and the result by real numbers."""
    conv = kind == "CONV_2D"
    integers = R.integers(-127, 128, [5, 1, 1, 8] if conv else [5, 8])
    scale = R.uniform(0.01, 0.02, 5) if conv else 0.013
    x, y = ([1, 3, 3, 8], [1, 3, 3, 5]) if conv else ([2, 8], [2, 5])
    tensors = [T("x", x), T("w", integers.shape, np.int8, scale, 0, 0, integers), T("y", y)]
    tensors.append(T("b", [5], data=np.zeros(5)))
    options = "Conv2DOptions" if conv else "FullyConnectedOptions"
    values = {**WINDOW, "StrideH": 1} if conv else {}
    data = model(tensors, [Op(kind, ["x", "w", "b"], ["y"], options, values)], ["x"], ["y"])
    feed = R.standard_normal(x).astype(np.float32)
    weights = integers.reshape(5, 8) * np.reshape(np.float32(scale), (-1, 1))
    return data, feed, feed @ weights.T


@pytest.mark.parametrize("hybrid", ["float", "float32"])
@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D"])
def test_in_float_the_activations_keep_all_their_bits(kind: str, hybrid: Hybrid, tmp_path: Path) -> None:
    data, feed, real = product(kind)
    (found,) = compute(data, {"x": feed}, tmp_path, "onnx", TARGETS[0], hybrid)
    np.testing.assert_allclose(found, real, rtol=1e-5, atol=1e-5)
    assert np.abs(litert(data, {"x": feed}, reference=True)[0] - real).max() > 1e-3


@pytest.mark.parametrize(("hybrid", "least", "most"), [("auto", 40, 120), ("float", 40, 120), ("float32", 160, 300)])
def test_weights_are_stored_as_requested(hybrid: Hybrid, least: int, most: int, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(product("FULLY_CONNECTED")[0])
    target = Target("cortex-m4", frozenset({"fpu"}))
    plan = make_plan(passes.run(frontend.load(path, ModelOptions(hybrid=hybrid)), target), target)
    _, manifest = codegen.generate(plan, path.name, "0" * 64)
    assert least <= manifest.constant_bytes <= most


def test_an_onnx_model_has_its_own_way_to_quantize_activations(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:])), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="not a TFLite model; --hybrid int8 needs one"):
        frontend.load(tmp_path / "m.onnx", ModelOptions(hybrid="int8"))


def test_float_arithmetic_has_no_rounding_of_tflite(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(product("FULLY_CONNECTED")[0])
    with pytest.raises(UsageError, match="--rounding tflite and --hybrid float exclude each other"):
        frontend.load(path, ModelOptions(rounding="tflite", hybrid="float"))


def test_a_batched_product_has_no_rounding_of_tflite(tmp_path: Path) -> None:
    weights = T("w", [8, 5], np.int8, 0.01, 0, 0, R.integers(-127, 128, [8, 5]))
    op = Op("BATCH_MATMUL", ["x", "w"], ["y"], "BatchMatMulOptions", {})
    path = tmp_path / "m.tflite"
    path.write_bytes(model([T("x", [2, 3, 8]), weights, T("y", [2, 3, 5])], [op], ["x"], ["y"]))
    assert frontend.load(path).nodes
    with pytest.raises(ModelError) as refused:
        frontend.load(path, ModelOptions(rounding="tflite"))
    assert "not supported for it with --rounding tflite" in str(refused.value.details)


def test_a_layer_in_a_branch_is_verified_by_the_reference_kernels(tmp_path: Path) -> None:
    weights = T("w", [4, 4], np.int8, 0.01, 0, 0, R.integers(-127, 128, [4, 4]))
    layer = Op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions", {})
    then = Graph([T("x", [1, 4]), weights, T("y", [1, 4])], [layer], ["x"], ["y"])
    other = Graph([T("x", [1, 4]), T("y", [1, 4])], [Op("ABS", ["x"], ["y"])], ["x"], ["y"])
    either = Op("IF", ["yes", "x"], ["y"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})
    path = tmp_path / "m.tflite"
    path.write_bytes(
        model([T("x", [1, 4]), T("yes", [], bool), T("y", [1, 4])], [either], ["x", "yes"], ["y"], then, other)
    )
    commands.verify(path, board="host", deployment=commands.Deployment(tmp_path / "project")).check()
