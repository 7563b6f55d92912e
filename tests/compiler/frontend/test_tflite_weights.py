"""Weights as converters store them: float16 or int8 with DEQUANTIZE, sparse with or without DENSIFY."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import compute
from tflite_models import Array, Op, Sparse, T, litert, model

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load
from mtool.compiler.kernels.target import Target

R = np.random.default_rng(3)
HOST = Target("host", frozenset())
WINDOW = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
LAYERS: dict[str, tuple[str, dict[str, Any], list[int], list[int], list[int]]] = {
    "CONV_2D": ("Conv2DOptions", WINDOW, [1, 4, 4, 3], [5, 3, 3, 3], [1, 4, 4, 5]),
    "DEPTHWISE_CONV_2D": ("DepthwiseConv2DOptions", WINDOW, [1, 4, 4, 3], [1, 3, 3, 3], [1, 4, 4, 3]),
    "TRANSPOSE_CONV": ("TransposeConvOptions", {"StrideH": 2, "StrideW": 2}, [1, 4, 4, 3], [5, 3, 3, 3], [1, 8, 8, 5]),
    "FULLY_CONNECTED": ("FullyConnectedOptions", {}, [2, 3], [5, 3], [2, 5]),
}


def layer(kind: str, weights: T, expanded: Op, bias: list[T], more: list[Op]) -> tuple[bytes, dict[str, Array]]:
    """Return a model of one layer whose weights w an operator makes, and an input."""
    options, values, x, w, y = LAYERS[kind]
    tensors = [T("x", x), weights, T("w", w), T("y", y), *bias]
    names = ["x", "w", "b"]
    if kind == "TRANSPOSE_CONV":
        tensors.append(T("shape", [4], np.int32, data=np.array(y)))
        names = ["shape", "w", "x", "b"]
    data = model(tensors, [expanded, *more, Op(kind, names, ["y"], options, values)], ["x"], ["y"])
    return data, {"x": R.standard_normal(x).astype(np.float32)}


@pytest.mark.parametrize("kind", LAYERS)
def test_weights_and_bias_of_float16(kind: str, tmp_path: Path) -> None:
    shape, channels = LAYERS[kind][3], LAYERS[kind][4][-1]
    weights = T("h", shape, np.float16, data=R.standard_normal(shape))
    bias = [T("bh", [channels], np.float16, data=R.standard_normal(channels)), T("b", [channels])]
    expand = [Op("DEQUANTIZE", [a], [b], "DequantizeOptions", {}) for a, b in (("h", "w"), ("bh", "b"))]
    data, feeds = layer(kind, weights, expand[0], bias, expand[1:])
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, litert(data, feeds, reference=True)[0], rtol=1e-5, atol=1e-5)
    (found,) = compute(data, feeds, tmp_path, "tflite", HOST)
    np.testing.assert_allclose(found, litert(data, feeds, reference=True)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.product(3)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_weights_of_int8_behind_dequantize_stay_integers(kind: str, several: bool, tmp_path: Path) -> None:
    shape, channels = LAYERS[kind][3], LAYERS[kind][4][-1]
    along = shape.index(channels) if kind != "DEPTHWISE_CONV_2D" else 3
    scale = R.uniform(0.01, 0.02, channels) if several else 0.013
    weights = T("h", shape, np.int8, scale, 0 if several else 4, along, R.integers(-127, 128, shape))
    bias = [T("b", [channels], data=R.standard_normal(channels))]
    data, feeds = layer(kind, weights, Op("DEQUANTIZE", ["h"], ["w"], "DequantizeOptions", {}), bias, [])
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, litert(data, feeds, reference=True)[0], rtol=1e-4, atol=1e-5)
    (tmp_path / "m.tflite").write_bytes(data)
    constants = load(tmp_path / "m.tflite").constants.values()
    assert any(each.dtype == np.int8 and each.size == np.prod(shape) for each in constants)


def test_weights_that_are_moved_behind_dequantize(tmp_path: Path) -> None:
    tensors = [T("x", [2, 3]), T("h", [3, 5], np.int8, 0.02, 3, 0, R.integers(-127, 128, [3, 5])), T("f", [3, 5])]
    tensors += [T("p", [2], np.int32, data=np.array([1, 0])), T("w", [5, 3]), T("y", [2, 5])]
    ops = [
        Op("DEQUANTIZE", ["h"], ["f"], "DequantizeOptions", {}),
        Op("TRANSPOSE", ["f", "p"], ["w"], "TransposeOptions", {}),
        Op("FULLY_CONNECTED", ["x", "w", ""], ["y"], "FullyConnectedOptions", {}),
    ]
    data = model(tensors, ops, ["x"], ["y"])
    feeds: dict[str, Array] = {"x": R.standard_normal([2, 3]).astype(np.float32)}
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_allclose(found, litert(data, feeds)[0], rtol=1e-5, atol=1e-5)


ROWS = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 4]])
SPARSE_ROWS = Sparse([0, 1], [3, ([0, 2, 2, 4], [1, 3, 0, 3])])
BLOCKS = np.array([[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]])
SPARSE_BLOCKS = Sparse([0, 1, 2, 3], [2, ([0, 1, 2], [0, 1]), 2, 2], [0, 1])
COLUMNS = np.array([[0, 5], [6, 0], [7, 0]])
SPARSE_COLUMNS = Sparse([1, 0], [2, ([0, 2, 3], [1, 2, 0])])


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize(
    ("whole", "held", "sparse"),
    [
        (ROWS, [1, 2, 3, 4], SPARSE_ROWS),
        (BLOCKS, [1, 2, 3, 4, 5, 6, 7, 8], SPARSE_BLOCKS),
        (COLUMNS, [6, 7, 5], SPARSE_COLUMNS),
    ],
    ids=["rows", "blocks", "columns"],
)
def test_sparse_weights_are_litert_s(whole: Array, held: list[int], sparse: Sparse, dtype: Any, tmp_path: Path) -> None:
    scale = 0.1 if dtype is np.int8 else None
    tensors = [T("s", whole.shape, dtype, scale, data=np.array(held), sparse=sparse), T("x", whole.shape, dtype, scale)]
    tensors += [T("w", whole.shape, dtype, scale), T("y", whole.shape, dtype, scale)]
    ops = [Op("DENSIFY", ["s"], ["w"]), Op("ADD", ["x", "w"], ["y"], "AddOptions")]
    data = model(tensors, ops, ["x"], ["y"])
    feeds: dict[str, Array] = {"x": np.zeros(whole.shape, dtype)}
    (found,) = compute(data, feeds, tmp_path, "tflite", HOST)
    np.testing.assert_array_equal(found, whole)
    if len(sparse.levels) == 2 or dtype is np.float32:
        np.testing.assert_array_equal(found, litert(data, feeds, reference=True)[0])


def test_sparse_weights_of_a_layer(tmp_path: Path) -> None:
    tensors = [T("x", [1, 4]), T("s", [3, 4], data=np.array([1, 2, 3, 4]), sparse=SPARSE_ROWS), T("y", [1, 3])]
    data = model(tensors, [Op("FULLY_CONNECTED", ["x", "s", ""], ["y"], "FullyConnectedOptions", {})], ["x"], ["y"])
    feeds: dict[str, Array] = {"x": np.array([[1, 10, 100, 1000]], np.float32)}
    (found,) = compute(data, feeds, tmp_path, "onnx", HOST)
    np.testing.assert_array_equal(found, [[2010, 0, 4003]])


@pytest.mark.parametrize(
    ("sparse", "words"),
    [
        (Sparse([0, 1], [3, ([0, 2, 2, 3], [1, 3, 0, 3])]), "has indices outside dimension"),
        (Sparse([0, 1], [3, ([0, 2, 2], [1, 3, 0, 3])]), "has indices outside dimension"),
        (Sparse([0, 1], [3, ([0, 2, 2, 4], [1, 4, 0, 3])]), "has indices outside dimension"),
        (Sparse([0, 1], [3, ([0, 2, 2, 4], [1, -1, 0, 3])]), "has indices outside dimension"),
        (Sparse([0, 1], [3, ([0, 3, 2, 4], [1, 3, 0, 3])]), "has indices outside dimension"),
        (Sparse([0, 1], [4, ([0, 2, 2, 4], [1, 3, 0, 3])]), "4 for a dimension of 3"),
        (Sparse([0, 1], [3, 4]), "4 for a dimension of 4, with 4 elements"),
        (Sparse([0, 0], [3, 4]), "has order"),
        (Sparse([0], [3]), "has order"),
        (Sparse([0, 1, 2], [3, 2, 2], [7]), "has order"),
        (Sparse([0, 1, 2], [3, 2, 3], [1]), "has blocks of 3"),
        (Sparse([0, 1, 2], [3, 2, 2**31 - 1], [1]), "has blocks of 2,147,483,647"),
    ],
)
def test_a_sparse_encoding_that_is_none(sparse: Sparse, words: str, tmp_path: Path) -> None:
    tensors = [T("s", [3, 4], data=np.array([1, 2, 3, 4]), sparse=sparse), T("y", [3, 4])]
    (tmp_path / "m.tflite").write_bytes(model(tensors, [Op("DENSIFY", ["s"], ["y"])], [], ["y"]))
    with pytest.raises(ModelError, match="is damaged") as refused:
        load(tmp_path / "m.tflite")
    assert words in refused.value.details[0]


def test_a_sparse_tensor_is_as_large_as_the_budget_allows(tmp_path: Path) -> None:
    """Five numbers can stand for two gigabytes."""
    sparse = Sparse([0, 1], [2**14, ([0] * (2**14) + [1], [3])])
    tensors = [T("s", [2**14, 2**14], data=np.array([1]), sparse=sparse), T("y", [2**14, 2**14])]
    (tmp_path / "m.tflite").write_bytes(model(tensors, [Op("DENSIFY", ["s"], ["y"])], [], ["y"]))
    with pytest.raises(ModelError, match="limit 'constants'"):
        load(tmp_path / "m.tflite", ModelOptions())
