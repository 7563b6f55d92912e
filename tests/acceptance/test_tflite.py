"""The shared .tflite models: LiteRT's bytes on every board, at the cost of the ONNX models."""

import re
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mtool import boards, commands
from mtool.base.errors import MtoolError
from mtool.base.option_values import Rounding
from mtool.compiler.ir.types import Array
from mtool.device.build import toolchains
from mtool.stages import samples
from mtool.verification.comparison import Tolerance

pytestmark = pytest.mark.long

NAMES = ("kws", "ic", "vww", "ad")
CASES = [
    *((name, board) for name in NAMES for board in ("host", "mps2_an386", "mps2_an385")),
    *((name, "mps3_an547") for name in NAMES),
    ("kws", "qemu_riscv32"),
]
FLOAT = {"kws": 1e-5, "ic": 1e-5, "vww": 1e-5}  # absolute, as the models' README says


def tflite(name: str, kind: str) -> Path:
    return models.FOLDER / name / f"{name}_{kind}.tflite"


def in_float64(path: Path, inputs: Array) -> Array:
    """Return the outputs of a float network without attributes for each of its inputs, computed in float64."""
    graph = onnx.load(path).graph
    values = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    values = {name: value.astype(np.float64) if value.dtype == np.float32 else value for name, value in values.items()}
    operators = {"MatMul": np.matmul, "Add": np.add, "Relu": lambda x: np.maximum(x, 0)}
    values[graph.input[0].name] = inputs.reshape(len(inputs), -1).astype(np.float64)
    for node in graph.node:
        values[node.output[0]] = operators[node.op_type](*(values[name] for name in node.input))
    return values[graph.output[0].name]


def options(rounding: Rounding) -> commands.Options:
    return commands.Options(rounding=rounding)


def needs_toolchain(board: str) -> None:
    toolchain = boards.get(board).toolchain
    try:
        toolchains.require(toolchain)
    except MtoolError as missing:
        pytest.skip(f"{toolchain} is not installed: {missing.what}")


@models.needed
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.product(2)
def test_int8_is_what_xnnpack_computes(name: str, tmp_path: Path) -> None:
    golden = models.golden(f"{name}/{name}_int8_qdq")
    report = commands.verify(
        tflite(name, "int8"),
        board="host",
        golden=golden,
        deployment=commands.Deployment(tmp_path / "project"),
        tolerance=Tolerance(lsb=0),
    )
    assert [output.differing for output in report.outputs] == [0]


@models.needed
@pytest.mark.parametrize(("name", "board"), CASES)
@pytest.mark.product(12)
def test_int8_rounded_as_tflite_does_is_what_the_reference_kernels_compute(
    name: str, board: str, tmp_path: Path
) -> None:
    needs_toolchain(board)
    path, golden = tflite(name, "int8"), models.golden(f"{name}/{name}_int8_qdq")
    prepared = commands.prepare(path, board=board, folder=tmp_path / "project", options=options("tflite"))
    (tensor,), (result,) = prepared.manifest.inputs, prepared.manifest.outputs
    data = samples.read(golden)
    with commands.open(prepared) as device:
        found = [device.run({tensor.name: x})[result.name] for x in data["x0"]]
    np.testing.assert_array_equal(np.stack(found), data["y0_tflite_ref"])


@models.needed
@pytest.mark.parametrize("board", ["mps2_an386", "mps3_an547"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.product(8)
def test_the_kernels_are_those_of_the_other_rounding(name: str, board: str) -> None:
    plain, rounded = (
        commands.compile(tflite(name, "int8"), board=board, options=options(rounding)).manifest.operators
        for rounding in ("onnx", "tflite")
    )
    kernels = [[(o.schedule, o.macs) for o in operators if o.macs] for operators in (plain, rounded)]
    assert kernels[0] == kernels[1]


@models.needed
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.product(2)
def test_float(name: str, tmp_path: Path) -> None:
    chosen = commands.Options(hybrid="float")  # the keyword spotter has int8 weights
    prepared = commands.prepare(tflite(name, "float"), board="host", folder=tmp_path / "project", options=chosen)
    (tensor,), (result,) = prepared.manifest.inputs, prepared.manifest.outputs
    data = samples.read(models.golden(f"{name}/{name}_float32"))
    with commands.open(prepared) as device:
        found = [device.run({tensor.name: x})[result.name] for x in data["x0"]]
    outputs = np.stack(found)
    if name == "ad":  # where the golden data are further from the exact numbers than mtool is
        exact = in_float64(models.FOLDER / "ad" / "ad_float32.onnx", data["x0"]).reshape(outputs.shape)
        assert np.abs(outputs - exact).max() <= np.abs(data["y0"] - exact).max()
    else:
        np.testing.assert_allclose(outputs, data["y0"], rtol=1e-5, atol=FLOAT[name])


@pytest.mark.product(2)
@models.needed
@pytest.mark.parametrize("name", NAMES)
def test_operators_and_memory_are_those_of_the_onnx_file(name: str) -> None:
    """No transposition is left over, and nothing is computed that the ONNX file does not have.

    The arena may be a little larger: the image classifier's files have a shortcut and the branch beside it in another
    order, so that the sum is fused into the other one.
    """
    # which rows are computed at a time, and for which operators working memory is worth it, may depend on the order
    whole = commands.Options(partial="never", optimize="speed")
    found = commands.compile(tflite(name, "int8"), board="mps2_an386", options=whole).manifest
    other = commands.compile(models.path(f"{name}/{name}_int8_qdq"), board="mps2_an386", options=whole).manifest
    assert not [operator.label for operator in found.operators if "transpose" in operator.label]
    kinds = [sorted((o.schedule, o.macs) for o in described.operators) for described in (found, other)]
    assert kinds[0] == kinds[1]
    assert found.arena_bytes <= 1.05 * other.arena_bytes
    assert found.constant_bytes <= other.constant_bytes


@models.needed
def test_names_are_those_of_the_file() -> None:
    compiled = commands.compile(tflite("kws", "int8"), board="host")
    (tensor,), (result,) = compiled.manifest.inputs, compiled.manifest.outputs
    assert (tensor.name, result.name) == ("input_1", "Identity")
    assert tensor.scale == (pytest.approx(0.5847029),) and tensor.zero_point == (83,)
    origins = [origin for operator in compiled.manifest.operators for origin in operator.origins]
    assert any(re.fullmatch(r"Identity \(SOFTMAX 12\)", origin) for origin in origins), origins


@pytest.mark.slow
@models.needed
def test_verify_and_its_layers_agree_on_any_inputs(tmp_path: Path) -> None:
    """LiteRT's kernels differ from each other by more than a step where a sum is added to one of another scale."""
    path, deployment = tflite("ic", "int8"), commands.Deployment(tmp_path / "project")
    assert commands.verify(path, board="host", deployment=deployment).ok
    layers = commands.verify_layers(path, board="host", deployment=deployment)
    assert not layers.diverging and layers.reference == "onnxruntime"
    assert all(layer.difference and not layer.difference.differing for layer in layers.layers)


@models.needed
def test_int8_weights_with_float_activations_are_as_litert_computes_them() -> None:
    report = commands.verify(tflite("kws", "float"), board="host", golden=models.golden("kws/kws_float32"))
    report.check()
