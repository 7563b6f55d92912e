"""Quantized operators: QDQ and QOperator, signed and unsigned, per tensor and per channel, with and without an FPU."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, NO_FPU, compiled, lowered, model, reference, run_c
from onnx import helper, numpy_helper

from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.target import Target

RNG = np.random.default_rng(11)
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))  # its C runs on the host too: the runtime has it in plain C
F = np.float32


def difference(proto: onnx.ModelProto, feeds: dict[str, Any], tmp_path: Path, target: Target) -> int:
    (mine,), (theirs,) = run_c(compiled(proto, target), feeds, tmp_path), reference(proto, feeds)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    return int(np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).max())


def codes(dtype: Any, *shape: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def quantized_conv(dtype: Any, w_dtype: Any, per_channel: bool, act: str, group: int) -> onnx.ModelProto:
    channels, outputs = 8, 8 if group > 1 else 6
    w = codes(w_dtype, outputs, channels // group, 3, 3)
    count = outputs if per_channel else 1
    w_scale = (RNG.random(count) * 0.01 + 0.002).astype(F)
    w_zero = codes(w_dtype, count) // 8 if w_dtype == np.uint8 else np.zeros(count, w_dtype)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "xs": F(0.05), "xz": codes(dtype, 1)[0], "w": w, "ws": w_scale, "wz": w_zero,
        "b": RNG.integers(-2000, 2000, outputs).astype(np.int32),
        "bs": F(0.05) * w_scale, "bz": np.zeros(count, np.int32),
        "ys": F(0.11), "yz": codes(dtype, 1)[0], "lo": F(0), "hi": F(6),
    }  # fmt: skip
    if not per_channel:
        constants |= {key: constants[key].reshape(()) for key in ("ws", "wz", "bs", "bz")}
    axis = {"axis": 0} if per_channel else {}
    middle = {
        "none": [],
        "relu": [helper.make_node("Relu", ["c"], ["a"])],
        "clip": [helper.make_node("Clip", ["c", "lo", "hi"], ["a"])],
        "sigmoid": [helper.make_node("Sigmoid", ["c"], ["a"])],
    }[act]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], **axis),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], **axis),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1], group=group),
        *middle,
        helper.make_node("QuantizeLinear", ["a" if middle else "c", "ys", "yz"], ["y"]),
    ]
    return model(nodes, {"x": (dtype, (1, channels, 7, 6))}, ["y"], constants)


@pytest.mark.parametrize("target", [HOST, NO_FPU, DSP], ids=["fpu", "no_fpu", "dsp"])
@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("act", ["none", "relu", "clip"])
@pytest.mark.parametrize(
    ("dtype", "w_dtype", "per_channel"),
    [(np.int8, np.int8, True), (np.int8, np.int8, False), (np.uint8, np.int8, True), (np.uint8, np.uint8, False)],
)
@pytest.mark.product
def test_conv(
    dtype: Any, w_dtype: Any, per_channel: bool, act: str, group: int, target: Target, tmp_path: Path
) -> None:
    proto = quantized_conv(dtype, w_dtype, per_channel, act, group)
    plan = compiled(proto, target)
    assert [step.node.op for step in plan.steps if step.node.op == "conv2d"] == ["conv2d"]
    assert all(not plan.graph.types[v].dtype.is_float for s in plan.steps for v in s.node.outputs), "floats remain"
    assert difference(proto, {"x": codes(dtype, 1, 8, 7, 6)}, tmp_path, target) <= (1 if target is NO_FPU else 0)


@pytest.mark.parametrize("zero_points", [True, False])
def test_uint8_is_int8_inside_where_simd_needs_it(zero_points: bool, tmp_path: Path) -> None:
    proto = quantized_conv(np.uint8, np.int8, True, "relu", 1)
    (w,) = (tensor for tensor in proto.graph.initializer if tensor.name == "w")  # symmetric, as a quantizer's are
    w.CopyFrom(numpy_helper.from_array(np.maximum(numpy_helper.to_array(w), -127), "w"))
    if not zero_points:  # uint8 and 0 are what ONNX takes then
        for node in proto.graph.node:
            if node.name == "" and node.input[0] in ("x", "a"):
                del node.input[2]
    plan = compiled(proto, DSP)
    kinds = [[plan.graph.types[v].dtype.label for v in (s.node.inputs[0], *s.node.outputs)] for s in plan.steps]
    assert kinds[0][0] == kinds[-1][-1] == "uint8"
    assert ["int8", "int8"] in kinds or ["int8", "uint8"] in kinds
    assert [s.schedule.name for s in plan.steps if s.node.op == "conv2d"] == ["dsp_patch"]
    assert sum(tensor.size for tensor in plan.graph.constants.values() if tensor.shape == (256,)) == 0, "a table"
    x = codes(np.uint8, 1, 8, 7, 6)
    assert difference(proto, {"x": x}, tmp_path, DSP) == 0


def test_uint8_that_more_than_dequantizations_read_stays(tmp_path: Path) -> None:
    proto = quantized_conv(np.uint8, np.int8, True, "none", 1)
    proto.graph.node[-1].output[0] = "q"
    proto.graph.node.append(helper.make_node("Cast", ["q"], ["y"], to=onnx.TensorProto.INT32))
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    assert difference(proto, {"x": codes(np.uint8, 1, 8, 7, 6)}, tmp_path, DSP) == 0


def test_an_activation_after_a_convolution_becomes_a_table(tmp_path: Path) -> None:
    proto = quantized_conv(np.int8, np.int8, True, "sigmoid", 1)
    assert difference(proto, {"x": codes(np.int8, 1, 8, 7, 6)}, tmp_path, HOST) <= 1


def chain(nodes: list[onnx.NodeProto], x_scale: float, y_scale: float, shape: tuple[int, ...]) -> onnx.ModelProto:
    constants = {"xs": F(x_scale), "xz": np.int8(-7), "ys": F(y_scale), "yz": np.int8(11)}
    parts = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["f"]),
        *nodes,
        helper.make_node("QuantizeLinear", ["g", "ys", "yz"], ["y"]),
    ]
    return model(parts, {"x": (np.int8, shape)}, ["y"], constants)


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Exp"])
def test_unary_chains_are_256_byte_tables(op: str, tmp_path: Path) -> None:
    proto = chain([helper.make_node(op, ["f"], ["g"])], 0.04, 0.02, (256,))
    graph = lowered(proto)
    (node,) = graph.nodes
    assert [graph.types[v].shape for v in node.inputs if v in graph.constants] == [(256,)]
    feeds = {"x": np.arange(-128, 128).astype(np.int8)}
    assert difference(proto, feeds, tmp_path, HOST) == 0


def test_requantizing_to_the_same_scale_is_nothing() -> None:
    constants = {"s": F(0.1), "z": np.int8(3)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["y"]),
    ]
    graph = lowered(model(nodes, {"x": (np.int8, (3, 4))}, ["y"], constants))
    assert [Loop.of(node).label for node in graph.nodes] == ["transpose"]


@pytest.mark.parametrize("target", [HOST, NO_FPU], ids=["fpu", "no_fpu"])
def test_residual_add(target: Target, tmp_path: Path) -> None:
    constants = {
        "as": F(0.031),
        "az": np.int8(-5),
        "bs": F(0.077),
        "bz": np.int8(9),
        "ys": F(0.09),
        "yz": np.int8(-128),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "as", "az"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        helper.make_node("Add", ["af", "bf"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    a, b = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    proto = model(nodes, {"a": (np.int8, (256, 256)), "b": (np.int8, (256, 256))}, ["y"], constants)
    limit = 0 if target is HOST else 1
    assert difference(proto, {"a": a.astype(np.int8), "b": b.astype(np.int8)}, tmp_path, target) <= limit


@pytest.mark.parametrize("target", [HOST, NO_FPU], ids=["fpu", "no_fpu"])
def test_average_pool_rounds_ties_to_even(target: Target, tmp_path: Path) -> None:
    constants = {"s": F(0.25), "z": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, (1, 64, 2, 2))}, ["y"], constants)
    assert difference(proto, {"x": codes(np.int8, 1, 64, 2, 2) // 8}, tmp_path, target) == 0


def test_max_pool_works_on_the_integers() -> None:
    graph = lowered(chain([helper.make_node("MaxPool", ["f"], ["g"], kernel_shape=[2, 2])], 0.1, 0.1, (1, 2, 4, 4)))
    pool = next(node for node in graph.nodes if node.op == "pool2d")
    assert graph.types[pool.inputs[0]].dtype.label == "int8"


@pytest.mark.parametrize("target", [HOST, NO_FPU], ids=["fpu", "no_fpu"])
def test_qoperators_of_onnxruntime(target: Target, tmp_path: Path) -> None:
    constants = {
        "xs": F(0.05), "xz": np.int8(3), "w": codes(np.int8, 10, 4), "ws": (RNG.random(4) * 0.01 + 0.001).astype(F),
        "wz": np.zeros(4, np.int8), "ms": F(0.2), "mz": np.int8(-9),
        "c": codes(np.int8, 4), "cs": F(0.03), "cz": np.int8(1),
        "ys": F(0.21), "yz": np.int8(4), "ps": F(1 / 256), "pz": np.int8(-128),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ms", "mz"], ["m"]),
        helper.make_node("QLinearAdd", ["m", "ms", "mz", "c", "cs", "cz", "ys", "yz"], ["a"], domain="com.microsoft"),
        helper.make_node(
            "QLinearSoftmax", ["a", "ys", "yz", "ps", "pz"], ["y"], domain="com.microsoft", opset=17, axis=-1
        ),
    ]
    proto = model(nodes, {"x": (np.int8, (1, 10))}, ["y"], constants)
    assert difference(proto, {"x": codes(np.int8, 1, 10)}, tmp_path, target) <= 1


@pytest.mark.product(3)
@pytest.mark.parametrize("target", [HOST, NO_FPU, DSP], ids=["fpu", "no_fpu", "dsp"])
@pytest.mark.parametrize(("left", "right"), [(np.int8, np.int8), (np.uint8, np.int8), (np.uint8, np.uint8)])
def test_products_of_activations_are_integer_kernels(left: Any, right: Any, target: Target, tmp_path: Path) -> None:
    """Heads of attention: two batch dimensions, transpositions that the kernel reads through."""
    constants = {"as": F(0.02), "az": codes(left, 1)[0], "bs": F(0.03), "bz": codes(right, 1)[0]}
    constants |= {"ys": F(0.0517), "yz": np.int8(7)}  # with which no sum lies halfway between two steps
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "as", "az"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        helper.make_node("Transpose", ["af"], ["at"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["bf"], ["bt"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["at", "bt"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, {"a": (left, (1, 10, 3, 13)), "b": (right, (1, 9, 3, 13))}, ["y"], constants)
    plan = compiled(proto, target)
    assert "matmul" in [step.node.op for step in plan.steps]
    assert all(not plan.graph.types[v].dtype.is_float for s in plan.steps for v in s.node.outputs), "floats remain"
    assert "transpose" not in [getattr(step.node.attrs, "label", "") for step in plan.steps]
    feeds = {"a": codes(left, 1, 10, 3, 13), "b": codes(right, 1, 9, 3, 13)}
    assert difference(proto, feeds, tmp_path, target) <= (1 if target is NO_FPU else 0)


def test_a_gelu_between_quantizations_is_a_table() -> None:
    """Its constants are quantized too, as onnxruntime's quantizer writes them."""
    constants = {"r": F(1.4142135), "es": F(0.008), "ez": np.int8(0), "one": np.int8(127), "os": F(1 / 127)}
    nodes = [
        helper.make_node("Div", ["f", "r"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "es", "ez"], ["eq"]),
        helper.make_node("DequantizeLinear", ["eq", "es", "ez"], ["ef"]),
        helper.make_node("DequantizeLinear", ["one", "os", "ez"], ["o"]),
        helper.make_node("Add", ["ef", "o"], ["p"]),
        helper.make_node("Mul", ["f", "p"], ["g"]),
    ]
    proto = chain(nodes, 0.04, 0.02, (256,))
    for name, data in constants.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(data), name))
    graph = lowered(proto)
    (node,) = graph.nodes
    assert [graph.types[v].shape for v in node.inputs if v in graph.constants] == [(256,)]
