"""An input's or output's scale and zero point are reported, also through moves before or after dequantization."""

from typing import Any

import models
import numpy as np
import onnx
import pytest
from graphs import compiled, model
from onnx import helper

from mtool.compiler import codegen, frontend
from mtool.compiler.ir import DType
from mtool.compiler.passes.lower import lower
from mtool.manifest import Manifest

F = np.float32


def described(proto: onnx.ModelProto) -> tuple[str, Manifest]:
    """Return the header and the manifest of a model."""
    files, manifest = codegen.generate(compiled(proto), "test.onnx", "0" * 64)
    return files["test.h"].decode(), manifest


@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("Transpose", {"perm": [0, 3, 1, 2]}, (1, 4, 4, 3)),
        ("Flatten", {}, (1, 4, 4, 3)),
        ("Identity", {}, (1, 4, 4, 3)),
        ("DepthToSpace", {"blocksize": 2}, (1, 4, 3, 3)),
        ("Squeeze", {}, (1, 48)),
    ],
)
def test_a_grid_survives_moves_on_both_sides(op: str, attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Moves of the input's integers, and of the output's."""
    nodes = [
        helper.make_node(op, ["x"], ["moved"], **attrs),
        helper.make_node("Reshape", ["moved", "flat"], ["row"]),
        helper.make_node("DequantizeLinear", ["row", "s", "z"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "t", "u"], ["q"]),
        helper.make_node("Reshape", ["q", "column"], ["c"]),
        helper.make_node("Transpose", ["c"], ["y"]),
    ]
    count = int(np.prod(shape))
    constants = {
        "s": F(0.25), "z": np.int8(-7), "t": F(0.5), "u": np.int8(9), "w": np.ones((count, 6), F),
        "flat": np.array([1, count]), "column": np.array([3, 2]),
    }  # fmt: skip
    header, manifest = described(model(nodes, {"x": (np.int8, shape)}, ["y"], constants))
    (given,), (returned,) = manifest.inputs, manifest.outputs
    assert (given.scale, given.zero_point) == ((0.25,), (-7,))
    assert (returned.scale, returned.zero_point) == ((0.5,), (9,))
    for line in ("X_SCALE 0.25f", "X_ZERO_POINT (-7)", "Y_SCALE 0.5f", "Y_ZERO_POINT 9"):
        assert f"#define TEST_{line}\n" in header


def test_a_grid_along_an_axis_is_turned_with_it() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        helper.make_node("DequantizeLinear", ["t", "s", "z"], ["y"], axis=0),
    ]
    constants = {"s": F([0.1, 0.2, 0.4]), "z": np.zeros(3, np.int8)}
    _, manifest = described(model(nodes, {"x": (np.int8, (2, 4, 3))}, ["y"], constants))
    (given,) = manifest.inputs
    assert given.axis == 2 and given.scale is not None and np.allclose(given.scale, [0.1, 0.2, 0.4])


def _parts(scales: tuple[float, float]) -> Any:
    """Return what is described of a model that dequantizes two parts of its input, and quantizes two of its output."""
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1),
        helper.make_node("Gather", ["a", "order"], ["a2"], axis=1),
        helper.make_node("DequantizeLinear", ["a2", "s0", "z"], ["fa"]),
        helper.make_node("DequantizeLinear", ["b", "s1", "z"], ["fb"]),
        helper.make_node("Add", ["fa", "fb"], ["sum"]),
        helper.make_node("Mul", ["fa", "fb"], ["product"]),
        helper.make_node("QuantizeLinear", ["sum", "s0", "z"], ["qa"]),
        helper.make_node("QuantizeLinear", ["product", "s1", "z"], ["qb"]),
        helper.make_node("Concat", ["qa", "qb"], ["c"], axis=1),
        helper.make_node("Slice", ["c", "one", "five", "axis"], ["y"]),
    ]
    constants = {
        "s0": F(scales[0]), "s1": F(scales[1]), "z": np.int8(-5), "order": np.array([2, 0, 1]),
        "one": np.array([1]), "five": np.array([5]), "axis": np.array([1]),
    }  # fmt: skip
    return described(model(nodes, {"x": (np.int8, (4, 6))}, ["y"], constants))


def test_a_grid_survives_cuts_and_joins() -> None:
    header, manifest = _parts((0.25, 0.25))
    for tensor in (*manifest.inputs, *manifest.outputs):
        assert (tensor.scale, tensor.zero_point) == ((0.25,), (-5,))
    assert "#define TEST_X_SCALE 0.25f\n" in header and "#define TEST_Y_ZERO_POINT (-5)\n" in header


def test_parts_of_different_grids_have_none_together() -> None:
    _, manifest = _parts((0.25, 0.5))
    assert all(tensor.scale is None for tensor in (*manifest.inputs, *manifest.outputs))


@pytest.mark.parametrize("is_read_too", [False, True])
def test_a_grid_of_a_part_is_that_of_the_whole_if_nothing_else_is_read(is_read_too: bool) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "one", "two"], ["part"]),
        helper.make_node("DequantizeLinear", ["part", "s", "z"], ["y"]),
        *([helper.make_node("Cast", ["x"], ["v"], to=1)] * is_read_too),
    ]
    constants = {"s": F(0.1), "z": np.int8(0), "one": np.array([0]), "two": np.array([2])}
    _, manifest = described(model(nodes, {"x": (np.int8, (4, 3))}, ["y", "v"][: 1 + is_read_too], constants))
    assert manifest.inputs[0].scale == (None if is_read_too else (float(F(0.1)),))


@models.needed
@pytest.mark.parametrize("name", ["ad/ad_int8_qdq", "ic/ic_int8_qdq", "kws/kws_int8_qdq", "vww/vww_int8_qdq"])
def test_quantized_inputs_of_the_shared_models_have_their_grids(name: str) -> None:
    graph = lower(frontend.load(models.path(name)))
    for value in (*graph.inputs, *graph.outputs):
        assert graph.types[value].dtype is DType.INT8 and graph.quant[value].axis is None
