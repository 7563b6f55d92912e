"""SIMD of integers on a core without an FPU: the same bytes as onnxruntime, however channels are scaled."""

from pathlib import Path
from typing import Any

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

from mtool import boards, commands
from mtool.boards import Board
from mtool.commands import Deployment, Options
from mtool.compiler.plan.choice import Choice

CHANNELS = 8
BOARD = boards.get("mps2_an386")
SCALES = {
    "multipliers": np.full(CHANNELS, 0.0137),
    "floats": np.full(CHANNELS, 2.0**-6),
    "both": np.array([0.0137, 2**-6] * 4),
}


def without_fpu() -> Board:
    return BOARD.model_copy(update={"features": BOARD.features - {"fpu"}})


def network(scales: np.ndarray, *, clamps: bool) -> onnx.ModelProto:
    """Two convolutions and a dense layer of int8; sums are multiplied by `scales`, some of which cause exact ties."""
    random = np.random.default_rng(7)
    one, zero = np.float32(1), np.int8(3 if clamps else -128)
    constants: dict[str, Any] = {"one": one, "zero": np.int8(0), "out": zero, "scales": scales.astype(np.float32)}
    for name, shape in (("w0", (8, 8, 3, 3)), ("w1", (8, 8, 1, 1))):
        constants[name] = random.integers(-20, 20, shape).astype(np.int8)
        constants[f"b{name}"] = random.integers(-500, 500, 8).astype(np.int32)
    constants |= {"zeros": np.zeros(8, np.int8), "w2": random.integers(-20, 20, (8 * 36, 8)).astype(np.int8)}
    constants |= {"flat": np.array([1, -1]), "scale": np.float32(scales[0])}
    nodes = [
        helper.make_node("QLinearConv", ["x", "one", "zero", "w0", "scales", "zeros", "one", "out", "bw0"], ["a"]),
        helper.make_node("QLinearConv", ["a", "one", "out", "w1", "scales", "zeros", "one", "out", "bw1"], ["b"]),
        helper.make_node("Reshape", ["b", "flat"], ["c"]),
        helper.make_node("QLinearMatMul", ["c", "one", "out", "w2", "scale", "zero", "one", "out"], ["y"]),
    ]
    return graphs.model(nodes, {"x": (np.int8, (1, 8, 8, 8))}, ["y"], constants)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [4, 8])
@pytest.mark.parametrize("clamps", [False, True])
@pytest.mark.parametrize("scales", SCALES)
def test_channels_with_and_without_a_multiplier(scales: str, clamps: bool, outputs: int, tmp_path: Path) -> None:
    onnx.save(network(SCALES[scales], clamps=clamps), tmp_path / "net.onnx")
    options = Options(schedules={"dense_3": Choice("dsp_rows", {"outputs": outputs})})
    model = commands.compile(tmp_path / "net.onnx", board=without_fpu(), options=options)
    schedules = {one.schedule.partition(":")[0] for one in model.manifest.operators if one.macs}
    assert schedules == {"dsp_patch", "dsp_pointwise", "dsp_rows"}
    verified(tmp_path, options)


def verified(tmp_path: Path, options: Options) -> None:
    """Compare the outputs of net.onnx on the board without an FPU with the reference's: all are equal."""
    deployment = Deployment(tmp_path / "project")
    report = commands.verify(
        tmp_path / "net.onnx", board=without_fpu(), options=options, samples=3, deployment=deployment
    )
    assert all(output.differing == 0 for output in report.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["dsp_plane", "dsp_taps"])
@pytest.mark.parametrize("clamps", [False, True])
@pytest.mark.parametrize("scales", SCALES)
def test_depthwise_convolutions(scales: str, clamps: bool, schedule: str, tmp_path: Path) -> None:
    """Rows of an odd and an even number of outputs, strides 1 and 2."""
    random = np.random.default_rng(8)
    zero, scale = np.int8(3 if clamps else -128), SCALES[scales].astype(np.float32)
    constants: dict[str, Any] = {"one": np.float32(1), "zero": zero, "scale": scale, "zeros": np.zeros(8, np.int8)}
    constants["none"] = np.zeros(8, np.int32)
    nodes = []

    def node(op: str, *inputs: str, to: str, **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs, [to], **attributes))

    for number, (before, after, stride) in enumerate([("x", "a", 1), ("a", "b", 2), ("b", "c", 1), ("c", "y", 2)]):
        constants[f"w{number}"] = random.integers(-40, 40, (8, 1, 3, 3)).astype(np.int8)
        constants[f"b{number}"] = random.integers(-900, 900, 8).astype(np.int32)
        node("DequantizeLinear", before, "one", "zero", to=f"{before}f")
        node("DequantizeLinear", f"w{number}", "scale", "zeros", to=f"w{number}f", axis=0)
        node("DequantizeLinear", f"b{number}", "scale", "none", to=f"b{number}f", axis=0)
        inputs = (f"{before}f", f"w{number}f", f"b{number}f")
        node("Conv", *inputs, to=f"{after}s", group=8, strides=[stride, stride], pads=[1, 1, 1, 1])
        if clamps:
            node("Relu", f"{after}s", to=f"{after}r")
        node("QuantizeLinear", f"{after}{'r' if clamps else 's'}", "one", "zero", to=after)
    onnx.save(graphs.model(nodes, {"x": (np.int8, (1, 8, 10, 9))}, ["y"], constants), tmp_path / "net.onnx")
    usual = commands.compile(tmp_path / "net.onnx", board=without_fpu())
    layers = [one for one in usual.manifest.operators if one.macs]
    if scales != "both":  # many floats in software cost more than plain C with exact multipliers
        expected = "dsp_plane" if scales == "multipliers" else "int_plane"
        assert {one.schedule.partition(":")[0] for one in layers} == {expected}
    verified(tmp_path, Options(schedules={one.name: Choice(schedule, {}) for one in layers}))
