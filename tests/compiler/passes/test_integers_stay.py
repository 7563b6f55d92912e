"""Nothing is stored as float between integer operators, in quantized networks as onnxruntime writes them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import HOST, NO_FPU, compiled, model, reference, run_c
from onnx import helper

from mtool.compiler.ir import DType
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))


class Quantized:
    """Builds a QDQ model: every tensor gets a scale and a zero point of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}

    def grid(self, value: str, scale: float, zero: int = -3, out: str = "") -> str:
        """Put a float tensor on a grid; return its dequantized name."""
        self.constants |= {f"{value}_s": F(scale), f"{value}_z": np.int8(zero)}
        parameters = [f"{value}_s", f"{value}_z"]
        quantized = out or f"{value}_q"
        self.nodes.append(helper.make_node("QuantizeLinear", [value, *parameters], [quantized]))
        return quantized if out else self.floats(quantized, value)

    def floats(self, quantized: str, like: str) -> str:
        """Dequantize integers on the grid of `like`."""
        self.nodes.append(helper.make_node("DequantizeLinear", [quantized, f"{like}_s", f"{like}_z"], [f"{like}_f"]))
        return f"{like}_f"

    def op(self, op: str, inputs: list[str], out: str, **attrs: Any) -> str:
        """Append a float operator."""
        self.nodes.append(helper.make_node(op, inputs, [out], **attrs))
        return out

    def input(self, name: str, scale: float) -> str:
        """Return the dequantized name of an int8 input."""
        self.constants |= {f"{name}_s": F(scale), f"{name}_z": np.int8(5)}
        return self.floats(name, name)

    def conv(self, x: str, scale: float, out: str, channels: tuple[int, int]) -> str:
        """Append a 1x1 convolution of x, whose scale is given, with int8 weights, a scale a channel."""
        weights = self.rng.integers(-90, 91, (channels[1], channels[0], 1, 1)).astype(np.int8)
        bias = self.rng.integers(-900, 900, channels[1]).astype(np.int32)
        scales = np.linspace(0.00313, 0.00517, channels[1], dtype=F)
        self.constants |= {
            f"{out}_w": weights, f"{out}_ws": scales, f"{out}_wz": np.zeros(channels[1], np.int8),
            f"{out}_b": bias, f"{out}_bs": F(scale) * scales, f"{out}_bz": np.zeros(channels[1], np.int32),
        }  # fmt: skip
        for part in ("w", "b"):
            parameters = [f"{out}_{part}", f"{out}_{part}s", f"{out}_{part}z"]
            self.nodes.append(helper.make_node("DequantizeLinear", parameters, [f"{out}_{part}f"], axis=0))
        return self.op("Conv", [x, f"{out}_wf", f"{out}_bf"], out)

    def model(self, inputs: dict[str, tuple[int, ...]], outputs: list[str]) -> onnx.ModelProto:
        """Return the model."""
        return model(self.nodes, {n: (np.int8, s) for n, s in inputs.items()}, outputs, self.constants)


def stored_floats(plan: Plan, at_least: int = 2) -> list[str]:
    """Return the float tensors of some elements that operators write."""
    kinds = {out: plan.graph.types[out] for step in plan.steps for out in step.node.outputs}
    return [f"{n} {k}" for n, k in kinds.items() if k.dtype is DType.FLOAT32 and k.count >= at_least]


def check(proto: onnx.ModelProto, tmp_path: Path, target: Target = HOST) -> Plan:
    """Compare with onnxruntime: equal with an FPU, one step without; return the plan."""
    rng = np.random.default_rng(11)
    feeds = {
        value.name: rng.integers(-128, 128, [d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.int8)
        for value in proto.graph.input
    }
    plan = compiled(proto, target)
    for mine, theirs in zip(run_c(plan, feeds, tmp_path), reference(proto, feeds), strict=True):
        assert mine.dtype == theirs.dtype == np.int8
        assert np.abs(mine.astype(int) - theirs).max() <= (1 if target is NO_FPU else 0)
    return plan


@pytest.mark.parametrize("target", [HOST, NO_FPU], ids=["fpu", "no_fpu"])
@pytest.mark.parametrize("axis", [1, 2])
def test_a_concatenation_of_different_scales_copies_integers(axis: int, target: Target, tmp_path: Path) -> None:
    net = Quantized()
    a, b = net.input("a", 0.02), net.input("b", 0.05)
    net.grid(net.op("Concat", [a, b, a], "c", axis=axis), 0.05, 5, out="y")
    plan = check(net.model({"a": (1, 4, 4, 6), "b": (1, 4, 4, 6)}, ["y"]), tmp_path, target)
    assert not stored_floats(plan)
    # One table for a, which is read twice; b has the result's grid already.
    assert [step.node.op for step in plan.steps] == ["loop", "concat"]


def test_a_concatenation_that_is_read_as_float_too_stays(tmp_path: Path) -> None:
    net = Quantized()
    a, b = net.input("a", 0.02), net.input("b", 0.05)
    c = net.op("Concat", [a, b], "c", axis=1)
    net.grid(c, 0.05, 5, out="y")
    net.grid(net.op("ReduceSum", [c], "r", keepdims=1), 3.0, 0, out="z")
    check(net.model({"a": (1, 4, 4, 6), "b": (1, 4, 4, 6)}, ["y", "z"]), tmp_path)


def test_a_skip_connection_is_concatenated_in_the_kernels_layout(tmp_path: Path) -> None:
    net = Quantized()
    skip = net.grid(net.conv(net.input("x", 0.02), 0.02, "a", (4, 8)), 0.03)
    deep = net.op("MaxPool", [skip], "m", kernel_shape=[2, 2], strides=[2, 2])
    deep = net.grid(net.conv(deep, 0.03, "b", (8, 12)), 0.05)
    net.constants["sizes"] = np.array([1, 1, 2, 2], F)
    up = net.op("Resize", [deep, "", "sizes"], "u", mode="nearest", coordinate_transformation_mode="asymmetric")
    joined = net.grid(net.op("Concat", [up, skip], "c", axis=1), 0.06)
    net.grid(net.conv(joined, 0.06, "d", (20, 8)), 0.2, out="y")
    plan = check(net.model({"x": (1, 4, 8, 8)}, ["y"]), tmp_path)
    assert not stored_floats(plan)
    (concat,) = (step.node for step in plan.steps if step.node.op == "concat")
    assert plan.graph.types[concat.outputs[0]].shape == (1, 8, 8, 20)
    (last,) = (step.node for step in plan.steps if concat.outputs[0] in step.node.inputs)
    assert last.op == "conv2d"  # with no transposition between


@pytest.mark.parametrize("op", ["LeakyRelu", "HardSwish", "Silu"])
def test_an_activation_behind_its_own_quantization_is_one_table_of_a_fast_kernel(op: str, tmp_path: Path) -> None:
    net = Quantized()
    c = net.grid(net.conv(net.input("x", 0.02), 0.02, "a", (8, 16)), 0.03)
    if op == "Silu":  # reads the convolution twice, once through another grid
        act = net.op("Mul", [c, net.grid(net.op("Sigmoid", [c], "s"), 1 / 256, -128)], "act")
    else:
        act = net.op(op, [c], "act")
    net.grid(act, 0.025, out="y")
    proto = net.model({"x": (1, 8, 6, 6)}, ["y"])
    check(proto, tmp_path)
    (kernel,) = (step for step in compiled(proto, DSP).steps if step.node.op == "conv2d")
    graph = compiled(proto, DSP).graph
    assert kernel.schedule.name == "dsp_pointwise" and Int8Epilogue.of(kernel.node, graph) is not None
    parts = list(WithEpilogue.of(kernel.node).epilogue.walk())
    assert [part.op for part in parts].count("requantize") == 1 and not any(part.op == "quantize" for part in parts)


def test_a_quantized_activation_with_two_readers_is_stored_as_integers(tmp_path: Path) -> None:
    net = Quantized()
    c = net.grid(net.conv(net.input("x", 0.02), 0.02, "a", (8, 16)), 0.03)
    act = net.grid(net.op("Mul", [c, net.grid(net.op("HardSigmoid", [c], "h"), 1 / 256, -128)], "act"), 0.025)
    mean = net.op("ReduceMean", [act], "mean", axes=[2, 3], keepdims=1)
    gate = net.grid(net.conv(net.grid(mean, 0.004), 0.004, "g", (16, 16)), 0.01)
    net.grid(net.op("Mul", [act, net.op("HardSigmoid", [gate], "gate")], "out"), 0.02, out="y")
    plan = check(net.model({"x": (1, 8, 12, 12)}, ["y"]), tmp_path)
    assert not stored_floats(plan, at_least=17)  # the gate's 16 factors may be floats
    assert plan.arena_bytes <= 16 * 144 * 2 + 256
