"""The scale and zero point of an input or output are told, whatever moves it before it is dequantised or after."""

from typing import Any

import models
import numpy as np
import onnx
import pytest
from graphs import compiled, model
from onnx import helper

from mtool import codegen, frontend
from mtool.ir import DType
from mtool.manifest import Manifest
from mtool.passes.lower import lower

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
    for line in ("X_SCALE 0.25f", "X_ZERO_POINT -7", "Y_SCALE 0.5f", "Y_ZERO_POINT 9"):
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


def test_a_grid_of_a_part_is_not_that_of_the_whole() -> None:
    nodes = [
        helper.make_node("Slice", ["x", "one", "two"], ["part"]),
        helper.make_node("DequantizeLinear", ["part", "s", "z"], ["y"]),
    ]
    constants = {"s": F(0.1), "z": np.int8(0), "one": np.array([0]), "two": np.array([2])}
    _, manifest = described(model(nodes, {"x": (np.int8, (4, 3))}, ["y"], constants))
    assert manifest.inputs[0].scale is None


@models.needed
@pytest.mark.parametrize("name", ["ad/ad_int8_qdq", "ic/ic_int8_qdq", "kws/kws_int8_qdq", "vww/vww_int8_qdq"])
def test_quantised_inputs_of_the_shared_models_have_their_grids(name: str) -> None:
    graph = lower(frontend.load(models.path(name)))
    for value in (*graph.inputs, *graph.outputs):
        assert graph.types[value].dtype is DType.INT8 and graph.quant[value].axis is None
