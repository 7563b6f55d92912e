"""Run-time sizes from the command line and from Python, on the host and in QEMU: one firmware for all sizes."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import reference
from sized import build, floats, mlp, node

import mtool
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.device.session.device import Device
from mtool.manifest import load
from mtool.stages import samples
from mtool.stages.options import Options

pytest.importorskip("onnxruntime")
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and a project of it for up to 7 rows."""
    place = tmp_path_factory.mktemp("sizes")
    onnx.save(mlp(), place / "mlp.onnx")
    mtool.run(
        place / "mlp.onnx",
        board="host",
        options=Options(maxima={"batch": 7}),
        deployment=mtool.Deployment(place / "project"),
    )
    return place


@pytest.fixture(scope="module")
def device(folder: Path) -> Iterator[Device]:
    """The project's device, which is open while tests of this file run."""
    with mtool.open(folder / "project") as opened:
        yield opened


@pytest.mark.slow
def test_the_shape_of_the_data_gives_the_size(folder: Path, capsys: Captured) -> None:
    for size in (1, 5, 7):
        x = floats(size, 6)
        np.save(folder / "x.npy", x)
        command = ["run", str(folder / "mlp.onnx"), "--board", "host", "--max", "batch=7", "--json"]
        assert app.invoke([*command, "--output-dir", str(folder / "project"), "--input", str(folder / "x.npy")]) == 0
        reported = json.loads(capsys.readouterr().out)
        (expected,) = reference(onnx.load(folder / "mlp.onnx"), {"x": x})
        np.testing.assert_allclose(reported["outputs"]["y"], expected, rtol=1e-5, atol=1e-6)
        assert reported["outputs"]["y_count"] == size


def test_a_session_returns_arrays_of_the_true_size(device: Device) -> None:
    for size in (7, 2):
        found = device.run({"x": floats(size, 6)})
        assert found["y"].shape == (size, 3) and found["y_count"] == size
    assert device.time(2, 1, inputs={"x": floats(3, 6)}).median > 0
    assert device.profile({"x": floats(3, 6)}, repeat=1).operators


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": floats(8, 6)}, "batch is out of range: 8"),
        ({"x": floats(0, 6)}, "batch is out of range: 0"),
        ({"x": floats(3, 6), "batch": np.int32(2)}, "disagree about a size"),
        ({"x": floats(3, 5)}, "wrong shape"),
        ({"x": floats(18)}, "wrong shape"),
        ({}, "not those of the model's inputs"),
    ],
)
def test_inputs_that_do_not_fit(device: Device, given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as found:
        device.run(given)  # type: ignore[arg-type]
    assert message in str(found.value)


def test_samples_are_drawn_at_the_largest_the_smallest_and_sizes_between(folder: Path) -> None:
    drawn = samples.seeded(load(folder / "project").inputs, count=12, seed=1)
    sizes = [sample["x"].shape[0] for sample in drawn]
    assert sizes[:2] == [7, 1] and set(sizes) <= set(range(1, 8)) and len(set(sizes)) > 3


def test_several_samples_of_one_file_have_one_size(folder: Path) -> None:
    np.save(folder / "several.npy", floats(4, 5, 6))
    read = samples.inputs_of(folder / "several.npy", load(folder / "project").inputs)
    assert [sample["x"].shape for sample in read] == [(5, 6)] * 4


def two_sizes() -> onnx.ModelProto:
    """A product of as many columns as rows are in the other input: both follow sizes, and a third one is fixed."""
    nodes = [node("Transpose", "b", "t", perm=[1, 0]), node("MatMul", "a t", "p"), node("Softmax", "p", "y", axis=-1)]
    return build(nodes, {"a": ("n", 4), "b": ("m", 4)}, {"y": ("n", "m")}, {})


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("board", ["host", "mps2_an386", "mps3_an547"])
def test_verify_draws_several_sizes(board: str, tmp_path: Path) -> None:
    onnx.save(two_sizes(), tmp_path / "two.onnx")
    options = Options(maxima={"n": 6, "m": 5})
    report = mtool.verify(
        tmp_path / "two.onnx",
        board=board,
        samples=6,
        options=options,
        deployment=mtool.Deployment(tmp_path / "project"),
    )
    report.check()
    assert {output.name for output in report.outputs} == {"y", "y_count"}


def test_operators_are_compared_at_each_size(folder: Path) -> None:
    options = Options(maxima={"batch": 7})
    layers = mtool.verify_layers(
        folder / "mlp.onnx", board="host", options=options, deployment=mtool.Deployment(folder / "project")
    )
    layers.check()
    assert layers.samples == 4 and any(layer.difference for layer in layers.layers)


@pytest.mark.slow
def test_ties_explain_what_differs_at_any_size(tmp_path: Path) -> None:
    """Each 64th of the sums lies in the middle between two steps."""
    random = np.random.default_rng(1)
    constants = {
        "x_s": np.float32(0.0397), "x_z": np.int8(3), "w_s": np.float32(0.00931), "z": np.int8(0),
        "y_s": np.float32(0.0397 * 0.00931 * 64), "w": random.integers(-127, 128, (32, 256)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x x_s x_z", "q"), node("DequantizeLinear", "q x_s x_z", "f"),
        node("DequantizeLinear", "w w_s z", "wf"), node("MatMul", "f wf", "a"), node("QuantizeLinear", "a y_s z", "y"),
    ]  # fmt: skip
    onnx.save(
        build(nodes, {"x": ("n", 32)}, {"y": ("n", 256)}, constants, y=onnx.TensorProto.INT8), tmp_path / "t.onnx"
    )
    options, deployment = Options(maxima={"n": 5}), mtool.Deployment(tmp_path / "project")
    report = mtool.verify(tmp_path / "t.onnx", board="host", samples=8, options=options, deployment=deployment)
    report.check()
    assert report.ties
