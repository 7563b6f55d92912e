"""Quantized operators with 16-bit activations: integer arithmetic, within one step of onnxruntime's float results."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, NO_FPU, compiled, lowered, model, reference, run_c
from onnx import helper, numpy_helper

from mtool.compiler.kernels.target import Target

RNG = np.random.default_rng(16)
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
TARGETS = pytest.mark.parametrize("target", [HOST, NO_FPU, DSP, MVE], ids=["fpu", "no_fpu", "dsp", "mve"])
F = np.float32
OPSET = 21  # of 16-bit QuantizeLinear


def codes(dtype: Any, *shape: int) -> np.ndarray[Any, Any]:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def check(proto: onnx.ModelProto, feeds: dict[str, Any], folder: Path, target: Target, most: int = 1) -> None:
    """Compare with onnxruntime; nothing between the operators may be float."""
    plan = compiled(proto, target)
    assert all(not plan.graph.types[v].dtype.is_float for s in plan.steps for v in s.node.outputs), "floats remain"
    (mine,), (theirs,) = run_c(plan, feeds, folder), reference(proto, feeds)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    distance = np.abs(mine.astype(np.int64) - theirs.astype(np.int64))
    assert distance.max() <= most
    assert target is NO_FPU or (distance > 0).sum() <= max(1, distance.size // 20), "more than ties"
    assert np.unique(theirs).size > theirs.size // 8, "nearly everything is clamped"


def weighted(
    node: onnx.NodeProto, dtype: Any, weights: np.ndarray[Any, Any], axis: int, act: str, shape: tuple[int, ...]
) -> onnx.ModelProto:
    """DequantizeLinear, a convolution or product of xf, wf and perhaps bf, an activation, QuantizeLinear."""
    count, middle = weights.shape[axis], np.iinfo(dtype).min // 2 + np.iinfo(dtype).max // 2 + 1
    w_scale = (RNG.random(count) * 0.01 + 0.002).astype(F) * F(127 / np.abs(weights.astype(float)).max())
    size = np.sqrt(np.mean(weights.astype(float) ** 2) * weights.size / count) * float(w_scale.mean())
    constants: dict[str, np.ndarray[Any, Any]] = {
        "xs": F(2e-4), "xz": np.asarray(middle + 777, dtype), "w": weights, "ws": w_scale,
        "wz": np.zeros(count, weights.dtype), "b": RNG.integers(-200000, 200000, count).astype(np.int32),
        "bs": F(2e-4) * w_scale, "bz": np.zeros(count, np.int32), "lo": F(0), "hi": F(12 * size),
        "ys": F(3.5e-4 * size), "yz": np.asarray(middle - 99, dtype),
    }  # fmt: skip
    between = {
        "none": [],
        "relu": [helper.make_node("Relu", ["c"], ["a"])],
        "clip": [helper.make_node("Clip", ["c", "lo", "hi"], ["a"])],
    }[act]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=axis),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        node,
        *between,
        helper.make_node("QuantizeLinear", ["a" if between else "c", "ys", "yz"], ["y"]),
    ]
    used = {name for one in nodes for name in one.input}
    known = {name: data for name, data in constants.items() if name in used}
    return model(nodes, {"x": (dtype, shape)}, ["y"], known, opset=OPSET)


@TARGETS
@pytest.mark.parametrize("act", ["none", "relu", "clip"])
@pytest.mark.parametrize("group", [1, 2, 8])
@pytest.mark.parametrize(("dtype", "w_dtype"), [(np.int16, np.int8), (np.uint16, np.int8), (np.int16, np.int16)])
@pytest.mark.product(8)
def test_convolutions(dtype: Any, w_dtype: Any, group: int, act: str, target: Target, tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 0, 1], strides=[2, 1], group=group)
    proto = weighted(conv, dtype, codes(w_dtype, 8, 8 // group, 3, 3), 0, act, (1, 8, 7, 6))
    check(proto, {"x": codes(dtype, 1, 8, 7, 6)}, tmp_path, target)


@pytest.mark.product(2)
@TARGETS
@pytest.mark.parametrize(("depth", "bits"), [(70, 32), (4096, 64)])
def test_products(depth: int, bits: int, target: Target, tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["xf", "wf", "bf"], ["c"])
    proto = weighted(node, np.int16, codes(np.int8, depth, 5), 1, "none", (2, depth))
    (dense,) = (s.node for s in compiled(proto, target).steps if s.node.op == "dense")
    graph = lowered(proto, target)
    assert graph.constants[dense.inputs[2]].dtype.itemsize * 8 == bits
    check(proto, {"x": codes(np.int16, 2, depth)}, tmp_path, target)


@TARGETS
def test_what_moves_pools_and_adds(target: Target, tmp_path: Path) -> None:
    constants = {"s": F(1e-3), "z": np.int16(-1234), "t": F(1.7e-3), "u": np.int16(55)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("MaxPool", ["f"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["f"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["n"]),
        helper.make_node("Concat", ["p", "n"], ["c"], axis=1),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 3, 1]),
        helper.make_node("QuantizeLinear", ["d", "t", "u"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int16, (1, 3, 6, 8))}, ["y"], constants, opset=OPSET)
    check(proto, {"x": codes(np.int16, 1, 3, 6, 8)}, tmp_path, target)


@TARGETS
def test_a_sum_of_two(target: Target, tmp_path: Path) -> None:
    constants = {"a": F(1e-3), "b": F(3e-4), "z": np.int16(-900), "t": F(1.7e-3), "u": np.int16(55)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "a", "z"], ["f"]),
        helper.make_node("DequantizeLinear", ["r", "b", "u"], ["g"]),
        helper.make_node("Add", ["f", "g"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "t", "u"], ["y"]),
    ]
    proto = model(nodes, dict.fromkeys(("x", "r"), (np.int16, (4, 100))), ["y"], constants, opset=OPSET)
    check(proto, {name: codes(np.int16, 4, 100) for name in ("x", "r")}, tmp_path, target)


def test_a_channel_without_weights_and_its_tiny_scale(tmp_path: Path) -> None:
    """Its bias takes all of 32 bits; sums stay that wide all the same."""
    weights = codes(np.int8, 30, 6)
    weights[:, 2] = 0
    proto = weighted(helper.make_node("Gemm", ["xf", "wf", "bf"], ["c"]), np.int16, weights, 1, "none", (2, 30))
    for tensor in proto.graph.initializer:
        if tensor.name in ("ws", "bs", "b"):
            data = numpy_helper.to_array(tensor).copy()
            data[2] = {"ws": 1e-6, "bs": 2e-10, "b": 2**31 - 1}[tensor.name]
            tensor.CopyFrom(numpy_helper.from_array(data, tensor.name))
    plan = compiled(proto, DSP)
    (dense,) = (s.node for s in plan.steps if s.node.op == "dense")
    assert plan.graph.constants[dense.inputs[2]].dtype == np.int32
    check(proto, {"x": codes(np.int16, 2, 30)}, tmp_path, DSP)


def test_a_kernel_does_not_overwrite_its_input_before_the_epilogue_reads_it(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=[2, 0, 0, 0], group=8)
    proto = weighted(conv, np.int16, codes(np.int8, 8, 1, 3, 1), 0, "none", (1, 8, 64, 2))
    dequantize, *others, _ = proto.graph.node
    dequantize.output[0] = "rows"
    nodes = [
        dequantize,
        helper.make_node("Transpose", ["rows"], ["xf"], perm=[0, 3, 1, 2]),
        *others,
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "ys", "yz"], ["cf"]),
        helper.make_node("Mul", ["cf", "xf"], ["m"]),
        helper.make_node("Transpose", ["m"], ["last"], perm=[0, 2, 3, 1]),
        helper.make_node("QuantizeLinear", ["last", "ys", "yz"], ["y"]),
    ]
    constants = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
    proto = model(nodes, {"x": (np.int16, (1, 64, 2, 8))}, ["y"], constants, opset=OPSET)
    check(proto, {"x": codes(np.int16, 1, 64, 2, 8)}, tmp_path, DSP)
