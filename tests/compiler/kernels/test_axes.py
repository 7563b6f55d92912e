"""Axes are identified by position, never by length: tensors whose dimensions are all equal."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

F = np.float32
LONG = np.int64
SIZE = 3  # of every dimension


class Network:
    """Many operators that read the same two inputs, each with its own outputs: compiled and run once."""

    def __init__(self, rank: int) -> None:
        self.rng = np.random.default_rng(rank)
        self.shape = (SIZE,) * rank
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: list[str] = []
        self.constants: dict[str, np.ndarray[Any, Any]] = {}

    def constant(self, data: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(data)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(F))

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> None:
        made = [f"{op}_{len(self.outputs)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(op, ["x", *inputs], made, **attrs))
        self.outputs += made

    def check(self, opset: int, folder: Path) -> None:
        kinds = dict.fromkeys(("x", "y"), (F, self.shape))
        proto = model(self.nodes, kinds, self.outputs, self.constants, opset=opset)
        feeds = {name: self.rng.standard_normal(self.shape).astype(F) for name in kinds}
        described = {value: str(node) for node in self.nodes for value in node.output}
        got = run_c(compiled(proto), feeds, folder)
        for name, mine, theirs in zip(self.outputs, got, reference(proto, feeds), strict=True):
            assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, described[name]
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5, err_msg=described[name])


def add_along(net: Network, axis: int) -> None:
    """Everything that takes an axis."""
    place = axis % len(net.shape)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        net.add(op, axis=axis)
    for op in ("ArgMax", "ArgMin"):
        net.add(op, axis=axis, keepdims=0, select_last_index=int(axis < 0))
    for p in (1, 2):
        net.add("LpNormalization", axis=axis, p=p)
    net.add("LayerNormalization", net.floats(*net.shape[place:]), net.floats(*net.shape[place:]), axis=axis)
    net.add("CumSum", net.constant(LONG(axis)), exclusive=int(axis < 0), reverse=1)
    net.add("TopK", net.constant([2]), outputs=2, axis=axis, largest=int(axis < 0))
    net.add("Concat", "y", axis=axis)
    net.add("Split", net.constant([1, 2]), outputs=2, axis=axis)
    net.add("Slice", *(net.constant([bound]) for bound in (-1, -9, axis, -1)))
    net.add("Gather", net.constant(net.rng.integers(0, SIZE, (SIZE, SIZE))), axis=axis)
    net.add("GatherElements", net.constant(net.rng.integers(0, SIZE, net.shape)), axis=axis)
    order = np.argsort(net.rng.standard_normal(net.shape), place)
    net.add("ScatterElements", net.constant(order), "y", axis=axis)
    net.add("Flatten", axis=axis)
    for op in ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
        net.add(op, net.constant([axis]), keepdims=int(axis < 0))


def add_channels(net: Network) -> None:
    """Everything that broadcasts a vector along the channels, or along the last dimension."""
    rank, vector, variance = len(net.shape), net.floats(SIZE), net.constant(np.arange(1, SIZE + 1, dtype=F))
    for op in ("Add", "PRelu"):
        net.add(op, vector)
        net.add(op, net.floats(SIZE, *[1] * (rank - 2)))
    net.add("BatchNormalization", vector, vector, vector, variance)
    net.add("MatMul", net.floats(SIZE, SIZE))
    net.add("MatMul", vector)
    if rank < 3:
        net.add("Gemm", net.floats(SIZE, SIZE), vector)
        net.add("Gemm", net.floats(SIZE, SIZE), net.floats(SIZE, 1), transB=1)
        return
    net.add("InstanceNormalization", vector, variance)
    pads = [1] * (2 * rank - 4)
    net.add("Conv", net.floats(*net.shape), vector, pads=pads)
    net.add("Conv", net.floats(SIZE, 1, *net.shape[2:]), vector, pads=pads, group=SIZE)
    net.add("ConvTranspose", net.floats(*net.shape), vector)


@pytest.mark.product(2)
@pytest.mark.parametrize(("rank", "axis"), [(1, 0), (2, 0), (2, -1), (3, 0), (3, -2), (3, 2), (4, 1), (4, -2)])
def test_an_axis_of_tensors_with_equal_dimensions(rank: int, axis: int, tmp_path: Path) -> None:
    net = Network(rank)
    add_along(net, axis)
    net.check(18, tmp_path)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_channels_and_transpositions_of_tensors_with_equal_dimensions(rank: int, tmp_path: Path) -> None:
    net = Network(rank)
    add_channels(net)
    for perm in list(itertools.permutations(range(rank)))[:12]:
        net.add("Transpose", perm=list(perm))
    net.check(18, tmp_path)


def test_softmax_that_flattens_tensors_with_equal_dimensions(tmp_path: Path) -> None:
    """Before opset 13, Softmax, LogSoftmax and Hardmax see two dimensions."""
    net = Network(3)
    for op, axis in itertools.product(("Softmax", "LogSoftmax", "Hardmax"), (0, 1, 2)):
        net.add(op, axis=axis)
    net.check(12, tmp_path)


def quantized(perm: Sequence[int], axis: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]:
    """A chain of int8 operators, with scales along `axis` of the weights, whose sizes are all 3."""
    rng = np.random.default_rng(axis)
    constants: dict[str, Any] = {
        "s": F(0.03), "z": np.int8(3), "scales": F([0.01, 0.02, 0.04]), "zeros": np.zeros(3, np.int8),
        "w": rng.integers(-128, 128, (3, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-128, 128, (3, 3)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["f"]),
        helper.make_node("Transpose", ["f"], ["t"], perm=perm),
        helper.make_node("DequantizeLinear", ["w", "scales", "zeros"], ["wf"], axis=axis),
        helper.make_node("Conv", ["t", "wf"], ["c"], pads=[1] * 4),
        helper.make_node("DequantizeLinear", ["v", "scales", "zeros"], ["vf"], axis=axis % 2),
        helper.make_node("MatMul", ["c", "vf"], ["y"]),
        helper.make_node("Softmax", ["f"], ["p"], axis=axis),
    ]
    return model(nodes, {"x": (np.int8, (3, 3, 3, 3))}, ["y", "p"], constants), {
        "x": rng.integers(-128, 128, (3, 3, 3, 3)).astype(np.int8)
    }


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_scales_along_any_axis_of_weights_with_equal_dimensions(axis: int, tmp_path: Path) -> None:
    proto, feeds = quantized([0, 3, 1, 2], axis)
    for mine, theirs in zip(run_c(compiled(proto), feeds, tmp_path), reference(proto, feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-4)
