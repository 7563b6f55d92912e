"""TFLite files: types, refused files, damage of every kind."""

import random
import re
from pathlib import Path
from typing import Any

import amount
import models
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tflite_cases import compute
from tflite_models import Array, Op, T, litert, model

from mtool.base.errors import ModelError, UsageError
from mtool.compiler import codegen, frontend, passes
from mtool.compiler.frontend import ModelOptions
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan

HOST = Target("host", frozenset())
R = np.random.default_rng(3)
CONV = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}


def save(folder: Path, data: bytes, name: str = "model.tflite") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def to_c(path: Path) -> str:
    plan = make_plan(passes.run(frontend.load(path), HOST), HOST)
    files, _ = codegen.generate(plan, path.name, "0" * 64)
    return files.text(f"{path.stem}.c")


def small() -> bytes:
    """A quantized network of five operators."""
    tensors = [
        T("x", [1, 8, 8, 2], np.int8, 0.05, 3),
        T("w", [4, 3, 3, 2], np.int8, R.uniform(0.01, 0.02, 4), 0, 0, R.integers(-127, 128, [4, 3, 3, 2])),
        T("b", [4], np.int32, data=R.integers(-99, 99, 4)),
        T("c", [1, 8, 8, 4], np.int8, 0.07, -128),
        T("p", [1, 4, 4, 4], np.int8, 0.07, -128),
        T("r", [1, 64], np.int8, 0.07, -128),
        T("shape", [2], np.int32, data=np.asarray([1, 64])),
        T("v", [3, 64], np.int8, 0.01, 0, 0, R.integers(-127, 128, [3, 64])),
        T("d", [1, 3], np.int8, 0.1, 5),
        T("y", [1, 3], np.int8, 1 / 256, -128),
    ]
    window = {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2, "Padding": 1}
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["c"], "Conv2DOptions", {**CONV, "FusedActivationFunction": 1}),
        Op("AVERAGE_POOL_2D", ["c"], ["p"], "Pool2DOptions", window),
        Op("RESHAPE", ["p", "shape"], ["r"], "ReshapeOptions", {}),
        Op("FULLY_CONNECTED", ["r", "v", ""], ["d"], "FullyConnectedOptions", {}),
        Op("SOFTMAX", ["d"], ["y"], "SoftmaxOptions", {"Beta": 1.0}),
    ]
    return model(tensors, ops, ["x"], ["y"])


SMALL = small()


def test_every_layer_stays_nhwc(tmp_path: Path) -> None:
    assert "transpose" not in to_c(save(tmp_path, SMALL))


def test_the_format_is_recognized_by_the_bytes_too(tmp_path: Path) -> None:
    assert frontend.load(save(tmp_path, SMALL, "model.bin")).inputs == ("x",)


def test_quantization_of_inputs_and_outputs_is_the_files(tmp_path: Path) -> None:
    for rounding in ("onnx", "tflite"):
        quant = frontend.load(save(tmp_path, SMALL), ModelOptions(rounding=rounding)).quant
        assert (quant["x"].scale[0], quant["x"].zero_point) == (pytest.approx(0.05), (3,))
        assert (quant["y"].scale[0], quant["y"].zero_point) == (1 / 256, (-128,))


def test_quantization_along_an_axis_is_the_files(tmp_path: Path) -> None:
    tensors = [T("x", [1, 3], np.int8, [0.1, 0.2, 0.3], 4, 1), T("y", [1, 3])]
    graph = frontend.load(save(tmp_path, model(tensors, [Op("DEQUANTIZE", ["x"], ["y"])], ["x"], ["y"])))
    assert (graph.quant["x"].zero_point, graph.quant["x"].axis) == ((4, 4, 4), 1)
    assert graph.quant["x"].scale == pytest.approx((0.1, 0.2, 0.3))
    whole = frontend.load(save(tmp_path, SMALL)).quant
    assert whole["x"].axis is None


def test_weights_stored_as_float16(tmp_path: Path) -> None:
    weights = R.standard_normal([5, 8]).astype(np.float16)
    tensors = [T("x", [2, 8]), T("h", [5, 8], np.float16, data=weights), T("w", [5, 8]), T("y", [2, 5])]
    ops = [
        Op("DEQUANTIZE", ["h"], ["w"], "DequantizeOptions", {}),
        Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", {}),
    ]
    data = model(tensors, ops, ["x"], ["y"])
    feeds: dict[str, Array] = {"x": R.standard_normal([2, 8]).astype(np.float32)}
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, litert(data, feeds)[0], rtol=1e-5, atol=1e-5)


def test_an_input_made_a_constant(tmp_path: Path) -> None:
    data = model(
        [T("a", [2]), T("b", [2]), T("y", [2])], [Op("ADD", ["a", "b"], ["y"], "AddOptions")], ["a", "b"], ["y"]
    )
    path = save(tmp_path, data)
    assert frontend.load(path, ModelOptions(constants={"b": np.asarray([1.0, 2.0])})).inputs == ("a",)
    with pytest.raises(UsageError, match="no input named c"):
        frontend.load(path, ModelOptions(constants={"c": np.asarray([1.0])}))
    with pytest.raises(UsageError, match="no symbolic dimension named batch"):
        frontend.load(path, ModelOptions(dims={"batch": 2}))


def test_everything_that_is_not_supported_is_listed_at_once(tmp_path: Path) -> None:
    tensors = [T("x", [1, 4]), T("a", [1, 4]), T("b", [1, 4]), T("y", [1, 4])]
    ops = [
        Op("LSH_PROJECTION", ["x"], ["a"]),
        Op("RELU", ["a"], ["b"]),
        Op("SVDF", ["x"], ["y"]),
    ]
    with pytest.raises(ModelError) as refused:
        frontend.load(save(tmp_path, model(tensors, ops, ["x"], ["b", "y"])))
    assert refused.value.what == "2 operators of model can't be compiled"
    assert [line.split()[0] for line in refused.value.details] == ["LSH_PROJECTION", "SVDF"]
    assert "a (LSH_PROJECTION 0)" in refused.value.details[0]


def test_rounding_tflite_refuses_what_it_would_not_do_exactly(tmp_path: Path) -> None:
    tensors = [T("x", [1, 4], np.int8, 0.1), T("y", [1, 4], np.int8, 0.2)]
    path = save(tmp_path, model(tensors, [Op("SQUARE", ["x"], ["y"])], ["x"], ["y"]))
    frontend.load(path)
    with pytest.raises(ModelError) as refused:
        frontend.load(path, ModelOptions(rounding="tflite"))
    assert "SQUARE" in refused.value.details[0] and "--rounding tflite" in refused.value.details[0]


def test_rounding_tflite_is_for_tflite_models(tmp_path: Path) -> None:
    path = save(tmp_path, b"", "model.onnx")
    with pytest.raises(UsageError, match=r"model\.onnx is not a TFLite model"):
        frontend.load(path, ModelOptions(rounding="tflite"))


def test_a_file_that_is_something_else(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a TFLite model"):
        frontend.load(save(tmp_path, b"hello"))
    with pytest.raises(UsageError, match="there is no file"):
        frontend.load(tmp_path / "missing.tflite")


def test_operators_out_of_order(tmp_path: Path) -> None:
    tensors = [T("x", [1, 4]), T("a", [1, 4]), T("y", [1, 4])]
    ops = [Op("RELU", ["a"], ["y"]), Op("RELU", ["x"], ["a"])]
    with pytest.raises(ModelError, match="not in execution order"):
        frontend.load(save(tmp_path, model(tensors, ops, ["x"], ["y"])))


def test_a_shape_that_is_not_what_the_operator_makes(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is inconsistent"):
        frontend.load(save(tmp_path, model([T("x", [1, 4]), T("y", [1, 5])], [Op("RELU", ["x"], ["y"])], ["x"], ["y"])))


def test_a_shape_is_held_against_the_file_behind_nodes_that_are_not_in_it(tmp_path: Path) -> None:
    tensors = [T("x", [1, 4]), T("a", [1, 4]), T("y", [1, 5])]
    ops = [
        Op("ADD", ["x", "x"], ["a"], "AddOptions", {"FusedActivationFunction": 3}),
        Op("RELU_N1_TO_1", ["a"], ["y"]),
    ]
    with pytest.raises(ModelError, match="is inconsistent") as refused:
        frontend.load(save(tmp_path, model(tensors, ops, ["x"], ["y"])))
    assert refused.value.details[0] == "tensor 'y' in the file: float32[1, 5]"


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -0.5])
def test_invalid_scales(scale: float, tmp_path: Path) -> None:
    tensors = [T("x", [4], np.int8, scale), T("y", [4], np.int8, 0.1)]
    with pytest.raises(ModelError, match="damaged"):
        frontend.load(save(tmp_path, model(tensors, [Op("RELU", ["x"], ["y"])], ["x"], ["y"])))


def attempt(path: Path) -> None:
    """Compile; a clear error is fine too."""
    try:
        to_c(path)
    except (ModelError, UsageError) as refused:
        assert refused.what


@settings(
    max_examples=amount.of(300, 100), deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_bytes_changed(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    data = bytearray(SMALL)
    for place, value in edits:
        data[place] = value
    attempt(save(tmp_path, bytes(data)))


@settings(max_examples=amount.of(60, 20), deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(SMALL) - 1))
def test_cut_short(tmp_path: Path, size: int) -> None:
    path = save(tmp_path, SMALL[:size])
    try:
        to_c(path)
    except ModelError as refused:
        assert refused.what


@settings(max_examples=amount.of(60, 20), deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ModelError):
        frontend.load(save(tmp_path, b"\x1c\0\0\0TFL3" + data))


@pytest.mark.slow
@pytest.mark.product(3)
@models.needed
@pytest.mark.parametrize("name", ["kws/kws_int8", "kws/kws_float", "ad/ad_int8"])
def test_shared_models_damaged(name: str, tmp_path: Path) -> None:
    """Fields lie at the beginning and the end of a file, weights between; both are hit."""
    whole = (models.FOLDER / f"{name}.tflite").read_bytes()
    dice = random.Random(name)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 5)):
            place = dice.choice(
                [dice.randrange(4096), dice.randrange(len(data) - 9000, len(data)), dice.randrange(len(data))]
            )
            data[place] = dice.randrange(256)
        path = save(tmp_path, bytes(data))
        try:
            frontend.load(path)
        except ModelError as refused:
            assert refused.what


@pytest.mark.parametrize(
    ("kind", "options", "values", "words"),
    [
        ("ADD", "AddOptions", {"FusedActivationFunction": 4}, "TANH"),
        (
            "RESIZE_NEAREST_NEIGHBOR",
            "ResizeNearestNeighborOptions",
            {"AlignCorners": True, "HalfPixelCenters": True},
            "half_pixel",
        ),
        ("SOFTMAX", "SoftmaxOptions", {"Beta": -1.0}, "beta"),
        ("SQUEEZE", "SqueezeOptions", {}, "can't be reshaped to"),
    ],
)
def test_options_that_contradict_are_refused(
    kind: str, options: str, values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    tensors, inputs = [T("x", [1, 2, 2, 3]), T("y", [1, 2, 2, 3])], ["x"]
    if kind == "ADD":
        inputs = ["x", "x"]
    if kind == "RESIZE_NEAREST_NEIGHBOR":
        inputs = ["x", "size"]
        tensors = [T("x", [1, 2, 2, 3]), T("size", [2], np.int32, data=np.array([4, 4])), T("y", [1, 4, 4, 3])]
    if kind == "SQUEEZE":
        tensors = [T("x", [1, 2, 2, 3]), T("y", [])]
    with pytest.raises(ModelError, match=words):
        frontend.load(save(tmp_path, model(tensors, [Op(kind, inputs, ["y"], options, values)], ["x"], ["y"])))


def whole(name: str, *numbers: int) -> T:
    return T(name, [len(numbers)], np.int32, data=np.array(numbers))


@pytest.mark.parametrize(
    ("kind", "operand", "shape", "said"),
    [
        ("EXPAND_DIMS", [1], [1, 2, 3], "its input [2, 3] can't be reshaped to its output [1, 2, 3]"),
        ("EXPAND_DIMS", [0], [6], "to its output [6]"),
        ("EXPAND_DIMS", [0], [1, 3, 2], "to its output [1, 3, 2]"),
        ("EXPAND_DIMS", [5], [2, 3, 1], "its axis is 5; its input has 2 dimensions"),
        ("EXPAND_DIMS", [-1], [2, 3, 1], ""),
        ("RESHAPE", [3, 2], [6], "to its output [6]"),
        ("RESHAPE", [4], [6], "to its output [6]"),
        ("RESHAPE", [-1, 2], [3, 2], ""),
        ("SQUEEZE", None, [3, 2], "to its output [3, 2]"),
        ("SQUEEZE", None, [2, 3], ""),
    ],
)
def test_a_view_is_what_its_operand_says(
    kind: str, operand: list[int] | None, shape: list[int], said: str, tmp_path: Path
) -> None:
    """LiteRT goes by the operand, whatever shape the file gives the output."""
    tensors = [T("x", [2, 3]), T("y", shape), *([whole("n", *operand)] if operand else [])]
    data = model(tensors, [Op(kind, ["x", "n"] if operand else ["x"], ["y"])], ["x"], ["y"])
    if not said:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert litert(data, {"x": x})[0].shape == tuple(shape)
        frontend.load(save(tmp_path, data))
        return
    with pytest.raises(ModelError, match=re.escape(said)):
        frontend.load(save(tmp_path, data))


@pytest.mark.parametrize("option", [2, 4, 0])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32])
def test_a_shape_has_the_type_of_its_option(dtype: Any, option: int, tmp_path: Path) -> None:
    op = Op("SHAPE", ["x"], ["y"], "ShapeOptions", {"OutType": option})
    data = model([T("x", [2, 3]), T("y", [2], dtype)], [op], ["x"], ["y"])
    if {2: np.int32, 4: np.int64}.get(option) == dtype:
        assert litert(data, {"x": np.zeros((2, 3), np.float32)})[0].dtype == dtype
        frontend.load(save(tmp_path, data))
        return
    with pytest.raises(ModelError, match="is inconsistent" if option else "its out_type is 0"):
        frontend.load(save(tmp_path, data))
