"""Every tensor that a device computes against the model's own, and every operator's time."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import pytest
from altered import Altered
from onnx import TensorProto, helper

import mtool
from mtool.base.errors import MismatchError
from mtool.cli import app
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.schedule import Schedule
from mtool.device import session
from mtool.device.session.layers import intermediates
from mtool.manifest import Operand, Operator
from mtool.verification.layers import default_tolerance

pytest.importorskip("onnxruntime")

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)
BOARDS = ["host", pytest.param("mps2_an386", marks=needs_arm), pytest.param("mps2_an385", marks=needs_arm)]


def broken(sound: Schedule, operator: str) -> Altered:
    """Return a schedule that computes an operator as another does, but for one element that comes out wrong."""
    return Altered("broken", sound, operator, lambda body: body + "\n    output[7] = (int8_t)(output[7] ^ 0x44);")


@pytest.mark.product(3)
@pytest.mark.parametrize("board", BOARDS)
def test_every_operator_is_compared(board: str, tmp_path: Path) -> None:
    found = mtool.verify_layers(DIGITS, board=board, deployment=mtool.Deployment(tmp_path / "project"))
    found.check()
    assert [layer.operator.index for layer in found.layers] == list(range(len(found.layers)))
    assert all(layer.difference is not None and layer.difference.elements > 0 for layer in found.layers)
    assert f"{len(found.layers)} operators equal" in found.summary() or board == "mps2_an385"


@pytest.mark.slow
@pytest.mark.product(3)
@pytest.mark.parametrize("board", BOARDS)
def test_a_broken_kernel_is_found_and_named(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convolution = registry.KERNELS["conv2d"]
    sound = next(schedule for schedule in convolution.schedules if schedule.name == "c99_patch")
    schedules = (*convolution.schedules, broken(sound, "conv_2"))
    monkeypatch.setitem(registry.KERNELS, "conv2d", replace(convolution, schedules=schedules))
    found = mtool.verify_layers(DIGITS, board=board, deployment=mtool.Deployment(tmp_path / "project"))
    (wrong,) = found.diverging  # those after it are given what it should have written
    assert (wrong.operator.name, wrong.operator.schedule) == ("conv_2", "broken")
    assert wrong.difference is not None
    assert wrong.difference.differing == found.samples and wrong.difference.histogram
    with pytest.raises(MismatchError, match=r"operator 2, conv2d 3x3 .* is the first to diverge from onnxruntime"):
        found.check()


def test_the_results_are_those_of_a_run(tmp_path: Path) -> None:
    model = mtool.compile(DIGITS, board="host")
    prepared = mtool.prepare(DIGITS, board="host", folder=tmp_path / "project")
    random = np.random.default_rng(0)
    (described,) = model.manifest.inputs
    sample = {described.name: random.integers(-128, 128, described.shape).astype(described.dtype)}
    with session.open(prepared.folder) as device:
        wanted = device.run(sample)
        steps = list(intermediates(device, sample))
    assert [operator.index for operator, _, _ in steps] == list(range(len(model.manifest.operators)))
    np.testing.assert_array_equal(steps[-1][2].reshape(-1), wanted["scores"].reshape(-1))


def test_the_device_goes_on_from_what_it_is_given(tmp_path: Path) -> None:
    prepared = mtool.prepare(DIGITS, board="host", folder=tmp_path / "project")
    (described,) = prepared.manifest.inputs
    sample = {described.name: np.zeros(described.shape, described.dtype)}
    last = prepared.manifest.operators[-1]

    def flat(operator: Operator, operand: Operand, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        return np.zeros_like(array) if operator.index == last.index - 1 else None

    with session.open(prepared.folder) as device:
        *_, (_, _, plain) = intermediates(device, sample)
        *_, (_, _, given) = intermediates(device, sample, correct=flat)
    assert not np.array_equal(plain, given)


@pytest.mark.slow
@needs_arm
def test_a_profile_counts_every_operator(tmp_path: Path) -> None:
    profile = mtool.bench_layers(DIGITS, board="mps2_an386", deployment=mtool.Deployment(tmp_path / "project"))
    cost = mtool.bench(DIGITS, board="mps2_an386", deployment=mtool.Deployment(tmp_path / "project"))
    assert profile.unit == "instructions" and sum(row.macs for row in profile.operators) == cost.macs
    assert abs(profile.total - profile.whole) < 0.01 * profile.whole and profile.whole == cost.instructions
    assert all(row.median > 0 and row.bytes > 0 for row in profile.operators)
    assert sum(profile.share(row) for row in profile.operators) == pytest.approx(1)
    assert len(str(profile).splitlines()) == len(profile.operators) + 2


@pytest.mark.slow
def test_the_commands_show_the_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, heading in (("bench", "share"), ("verify", "against the model")):
        assert app.invoke([command, "--layers", str(DIGITS)]) == 0
        assert heading in capsys.readouterr().out
        assert app.invoke([command, "--layers", str(DIGITS), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert len(document["operators" if command == "bench" else "layers"]) > 4


@pytest.mark.slow
@models.needed
@pytest.mark.parametrize("name", ["kws/kws_int8_qdq", "ic/ic_int8_qdq", "vww/vww_int8_qdq", "ad/ad_float32"])
@pytest.mark.parametrize("board", BOARDS[:2])
@pytest.mark.product
def test_the_layers_of_real_models(name: str, board: str, tmp_path: Path) -> None:
    path = models.FOLDER / f"{name}.onnx"
    golden = path.with_suffix("").with_suffix(".golden.npz")
    # The golden sums of ten dense layers in float32 are in another order: 8.5e-4 apart at most, of values up to 62.
    tolerance = replace(default_tolerance(path), atol=1e-3 if name == "ad/ad_float32" else None)
    deployment = mtool.Deployment(tmp_path / "project")
    found = mtool.verify_layers(path, board=board, golden=golden, tolerance=tolerance, deployment=deployment)
    found.check()
    assert all(layer.difference is not None for layer in found.layers)


def test_an_operator_with_several_results_is_one_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = helper.make_node("TopK", ["x", "k"], ["values", "indices"])
    outputs = {"values": TensorProto.FLOAT, "indices": TensorProto.INT64}
    graph = helper.make_graph(
        [best], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info(name, kind, [2, 2]) for name, kind in outputs.items()],
        [helper.make_tensor("k", TensorProto.INT64, [1], [2])],
    )  # fmt: skip
    path = tmp_path / "best.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    assert app.invoke(["verify", "--layers", str(path), "-d", str(tmp_path / "project")]) == 0
    said = capsys.readouterr().out
    assert said.count(" topk ") == 1 and "values: equal" in said and "indices: equal" in said
    assert "\n1 operator equal, bit for bit, over" in said
