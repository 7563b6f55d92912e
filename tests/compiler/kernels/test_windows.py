"""The number and places of a pool's windows, and Resize's sampling points: as in onnxruntime."""

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

from mtool.compiler.frontend.onnx_file import import_graph

F = np.float32
Array = np.ndarray[Any, Any]


def drawn(chance: random.Random, op: str, opset: int) -> tuple[onnx.NodeProto, list[int]]:
    """Return a pool and the shape of its input, of which every attribute takes part."""
    rank = chance.choice([1, 2, 2, 3])
    attrs: dict[str, Any] = {
        "kernel_shape": [chance.randint(1, 4) for _ in range(rank)],
        "strides": [chance.randint(1, 4) for _ in range(rank)],
    }  # fmt: skip
    if opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op] and chance.random() < 0.4:
        attrs["dilations"] = [chance.randint(1, 2) for _ in range(rank)]
    if opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op] and chance.random() < 0.7:
        attrs["ceil_mode"] = 1
    how = chance.random()
    if how < 0.5:
        attrs["pads"] = [chance.randint(0, attrs["kernel_shape"][n % rank] - 1) for n in range(2 * rank)]
    elif how < 0.75:
        attrs["auto_pad"] = chance.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if op == "AveragePool":
        attrs["count_include_pad"] = chance.randint(0, 1)
    if op == "LpPool":
        attrs["p"] = chance.choice([1, 2, 3])
    return helper.make_node(op, ["x"], ["y"], **attrs), [1, 2, *(chance.randint(5, 9) for _ in range(rank))]


def untyped(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Take the outputs' types away: onnxruntime then tells its own."""
    for value in proto.graph.output:
        value.ClearField("type")
    return proto


@pytest.mark.product(2)
@pytest.mark.parametrize(("op", "opset"), [("MaxPool", 12), ("MaxPool", 22), ("AveragePool", 11), ("AveragePool", 22)])
def test_windows_of_pools_at_the_edges(op: str, opset: int, tmp_path: Path) -> None:
    check_pools(op, opset, tmp_path)


def test_windows_of_lp_pools_at_the_edges(tmp_path: Path) -> None:
    check_pools("LpPool", 18, tmp_path)


def check_pools(op: str, opset: int, folder: Path) -> None:
    from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

    chance, rng = random.Random(opset), np.random.default_rng(opset)
    nodes, feeds, expected = [], {}, []
    for n in range(24):
        node, shape = drawn(chance, op, opset)
        x = rng.standard_normal(shape).astype(F)
        try:
            (wanted,) = reference(untyped(model([node], {"x": (F, shape)}, ["y"], opset=opset)), {"x": x})
        except RuntimeException:
            continue  # strides longer than windows, with SAME: onnxruntime refuses some
        node.input[0], node.output[0] = f"x{n}", f"y{n}"
        nodes.append(node)
        feeds[f"x{n}"] = x
        expected.append(wanted)
    outputs = [node.output[0] for node in nodes]
    proto = model(nodes, {name: (F, x.shape) for name, x in feeds.items()}, outputs, opset=opset)
    for node, mine, wanted in zip(nodes, run_c(compiled(proto), feeds, folder), expected, strict=True):
        assert mine.shape == wanted.shape, str(node)
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6, err_msg=str(node))


def test_the_indices_of_a_pool_with_ceil_mode(tmp_path: Path) -> None:
    attrs = {"kernel_shape": [1, 2], "strides": [4, 3], "ceil_mode": 1}
    x = np.random.default_rng(0).standard_normal((1, 2, 8, 9)).astype(F)
    proto = model([helper.make_node("MaxPool", ["x"], ["y", "i"], **attrs)], {"x": (F, x.shape)}, ["y", "i"], opset=12)
    got = run_c(compiled(proto), {"x": x}, tmp_path)
    for mine, wanted in zip(got, reference(untyped(proto), {"x": x}), strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize(
    "op", ["Celu", "Elu", "Selu", "Softplus", "Mish", "Gelu", "HardSwish", "ThresholdedRelu", "Shrink"]
)
def test_an_activation_of_a_scalar_is_a_scalar(op: str) -> None:
    proto = model(
        [helper.make_node(op, ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])], {"x": (F, ())}, ["y"], opset=22
    )
    graph = import_graph(untyped(proto), "test")
    assert graph.types["y"].shape == () == reference(untyped(proto), {"x": F(-0.5)})[0].shape


COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def test_where_resize_looks_when_scales_do_not_divide(tmp_path: Path) -> None:
    """Sizes are not whole multiples: what aligns with the last corner, and which neighbour is nearest."""
    x = np.random.default_rng(0).standard_normal((1, 2, 7, 5)).astype(F)
    scales = {"s": F([1, 1, 0.7, 0.5]), "t": F([1, 1, 1.3, 2]), "u": F([1, 1, 0.15, 3.1])}
    nodes = []
    for coordinate, scale in itertools.product(COORDINATES, scales):
        for attrs in (
            {"nearest_mode": "floor"},
            {"nearest_mode": "round_prefer_floor"},
            {"mode": "linear"},
            {"mode": "cubic"},
        ):
            attrs = {"coordinate_transformation_mode": coordinate, **attrs}
            nodes.append(helper.make_node("Resize", ["x", "", scale], [f"y{len(nodes)}"], **attrs))
    outputs = [node.output[0] for node in nodes]
    proto = model(nodes, {"x": (F, x.shape)}, outputs, scales, opset=19)
    got = run_c(compiled(proto), {"x": x}, tmp_path)
    for node, mine, wanted in zip(nodes, got, reference(proto, {"x": x}), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5, err_msg=str(node))
