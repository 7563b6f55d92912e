"""ConvTranspose as a convolution by phases, float and integer, against onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, compiled, lowered, model, reference, run_c
from onnx import helper

from mtool.compiler.ir import DType

F = np.float32
SHAPES = [  # kernel, strides, pads, output_padding, size of the input
    ((2, 2), (2, 2), (0, 0, 0, 0), (0, 0), (3, 4)),
    ((4, 4), (2, 2), (1, 1, 1, 1), (0, 0), (4, 3)),
    ((6, 3), (3, 3), (2, 0, 1, 0), (0, 0), (3, 5)),
    ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (4, 5)),
    ((3, 5), (1, 2), (0, 1, 2, 1), (0, 1), (5, 3)),
    ((1, 2), (2, 3), (0, 0, 0, 0), (1, 0), (3, 3)),
    ((4,), (2,), (1, 1), (0,), (7,)),
    ((2,), (2,), (0, 0), (0,), (5,)),
    ((5,), (3,), (4, 4), (0,), (4,)),
]


def attributes(kernel: Any, strides: Any, pads: Any, output_padding: Any) -> dict[str, Any]:
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "output_padding": output_padding}


@pytest.mark.product(3)
@pytest.mark.parametrize(("kernel", "strides", "pads", "output_padding", "size"), SHAPES)
def test_float(kernel: Any, strides: Any, pads: Any, output_padding: Any, size: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(23)
    node = helper.make_node(
        "ConvTranspose", ["x", "w", "b"], ["y"], **attributes(kernel, strides, pads, output_padding)
    )
    constants = {"w": rng.standard_normal((6, 5, *kernel)).astype(F), "b": rng.standard_normal(5).astype(F)}
    proto = model([node], {"x": (F, (1, 6, *size))}, ["y"], constants)
    x = rng.standard_normal((1, 6, *size)).astype(F)
    (mine,), (theirs,) = run_c(compiled(proto), {"x": x}, tmp_path), reference(proto, {"x": x})
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def quantized(kernel: Any, strides: Any, pads: Any, output_padding: Any, size: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(29)
    scales = np.linspace(0.00313, 0.00617, 6, dtype=F)
    constants: dict[str, Any] = {
        "xs": F(0.031), "xz": np.int8(-9), "w": rng.integers(-127, 128, (8, 6, *kernel)).astype(np.int8),
        "ws": scales, "wz": np.zeros(6, np.int8), "b": rng.integers(-999, 999, 6).astype(np.int32),
        "bs": F(0.031) * scales, "bz": np.zeros(6, np.int32), "ys": F(0.0871), "yz": np.int8(4),
    }  # fmt: skip
    attrs = attributes(kernel, strides, pads, output_padding)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        helper.make_node("ConvTranspose", ["xf", "wf", "bf"], ["c"], **attrs),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, 8, *size))}, ["y"], constants)


@pytest.mark.product(3)
@pytest.mark.parametrize(("kernel", "strides", "pads", "output_padding", "size"), SHAPES[:-1])
def test_integers_go_through_the_convolution(
    kernel: Any, strides: Any, pads: Any, output_padding: Any, size: Any, tmp_path: Path
) -> None:
    proto = quantized(kernel, strides, pads, output_padding, size)
    graph = lowered(proto)
    assert "conv2d" in [node.op for node in graph.nodes]
    assert not any(graph.types[out].dtype is DType.FLOAT32 for node in graph.nodes for out in node.outputs)
    x = np.random.default_rng(31).integers(-128, 128, (1, 8, *size)).astype(np.int8)
    (mine,), (theirs,) = run_c(compiled(proto, HOST), {"x": x}, tmp_path), reference(proto, {"x": x})
    np.testing.assert_array_equal(mine, theirs)


def test_a_tap_that_is_not_there_does_not_meet_infinity(tmp_path: Path) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    proto = model([node], {"x": (F, (1, 1, 3, 3))}, ["y"], {"w": np.ones((1, 1, 3, 3), F)})
    x = np.zeros((1, 1, 3, 3), F)
    x[0, 0, 1, 1] = np.inf
    (mine,), (theirs,) = run_c(compiled(proto), {"x": x}, tmp_path), reference(proto, {"x": x})
    np.testing.assert_array_equal(mine, theirs)
