"""Requested schedules reach the board, and impossible ones are reported."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import mtool
import mtool.commands
from mtool.base.errors import UsageError
from mtool.compiler.plan import Choice
from mtool.device import session
from mtool.device.session.tensors import Array
from mtool.stages.options import schedule_choices
from mtool.stages.samples import seeded
from mtool.tuning import tuning

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
BOARD = "mps2_an386"

needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


def compiled(**schedules: Choice) -> mtool.commands.CompiledModel:
    return mtool.compile(DIGITS, board=BOARD, options=mtool.Options(schedules=schedules))


def outputs(folder: Path, **schedules: Choice) -> tuple[list[Array], int]:
    """Build for the board, run two inputs; return what comes out and the instructions of one inference."""
    prepared = mtool.prepare(DIGITS, board=BOARD, folder=folder, options=mtool.Options(schedules=schedules))
    with session.open(prepared.folder) as device:
        given = seeded(prepared.manifest.inputs, count=2, seed=3)
        results = [device.run(inputs)["scores"] for inputs in given]
        return results, round(device.time().median)


@needs_arm
@pytest.mark.slow
def test_a_knob_that_is_turned_reaches_the_board(tmp_path: Path) -> None:
    plain, own = outputs(tmp_path / "plain")
    turned, others = outputs(tmp_path / "turned", conv_2=Choice("dsp_patch", {"unroll": 8}))
    slow, most = outputs(tmp_path / "slow", conv_2=Choice("c99_patch"))
    np.testing.assert_array_equal(turned, plain)
    np.testing.assert_array_equal(slow, plain)
    assert own < others < most


def test_only_its_node_is_another() -> None:
    plain, turned = (compiled(conv_2=Choice("dsp_patch", knobs)) for knobs in ({}, {"unroll": "8"}))
    reported = {operator.name: operator.schedule for operator in turned.manifest.operators}
    assert reported["conv_2"] == "dsp_patch:unroll=8" and reported["conv_3"] == "dsp_winograd:work=12"
    (name,) = (name for name in plain.files if name.endswith("int8.c"))
    lines = plain.files[name].decode().splitlines(), turned.files[name].decode().splitlines()
    changed = [line for line in lines[1] if line not in lines[0]]
    assert any("schedule dsp_patch:unroll=8" in line for line in changed)
    assert any("_turns_2(" in line for line in changed) and len(changed) < 10
    for value in (0, "auto"):
        assert compiled(conv_2=Choice("dsp_patch", {"unroll": value})).files == plain.files


@pytest.mark.parametrize(
    ("node", "choice", "reported"),
    [
        ("conv_9", Choice("dsp_patch"), ["unknown node conv_9", "conv_0, pool_1", "did you mean conv_"]),
        (
            "conv_2",
            Choice("dsp_path"),
            ["conv_2 (conv2d 3x3) has no schedule dsp_path", "dsp_patch: ", "did you mean dsp_p"],
        ),
        ("conv_2", Choice("dsp_window"), ["conv_2 (conv2d 3x3) has no schedule dsp_window", "c99_patch"]),
        (
            "conv_2",
            Choice("mve_patch"),
            ["can't compute conv_2", "cortex-m4", "it supports: ", "int_columns, int_winograd, dsp_patch"],
        ),
        (
            "conv_2",
            Choice("dsp_plane"),
            ["can't compute conv_2", "3x3, stride 1 or 2", "int_columns, int_winograd, dsp_patch"],
        ),
        (
            "conv_2",
            Choice("dsp_patch", {"unroll": 12}),
            ["unroll of dsp_patch can't be 12", "auto, 32, 16, 8"],
        ),
        (
            "conv_2",
            Choice("dsp_patch", {"rolls": 1}),
            ["unknown knob rolls of", "its knobs:", "unroll: auto, 32, 16, 8", "opt: auto, "],
        ),
        ("pool_1", Choice("dsp_window", {"unroll": 1}), ["unknown knob unroll of", "its knobs:\n", "opt: auto, "]),
        ("conv_2", Choice("?"), ["those that can compute it on cortex-m4", "int_columns", "docs/schedules.md"]),
    ],
)
def test_impossible_schedules_are_reported(node: str, choice: Choice, reported: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(**{node: choice})
    for text in reported:
        assert text in str(caught.value)
    assert "mve_" not in str(caught.value).partition("\n")[2], "it is for another core"


def test_a_question_mark_lists_the_knobs() -> None:
    with pytest.raises(UsageError, match=r"unknown knob \? of schedule dsp_patch(.|\n)*unroll: auto, 32, 16, 8\n"):
        compiled(**schedule_choices(["conv_2=dsp_patch:?"]))


def test_tuning_reports_an_impossible_schedule_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "tasks_of", lambda *_: pytest.fail("the search begins"))
    with pytest.raises(UsageError, match=r"conv_2 \(conv2d 3x3\) has no schedule nope"):
        options = mtool.Options(schedules={"conv_2": Choice("nope")})
        tuning.tune(DIGITS, board=BOARD, output=tmp_path / "log.jsonl", options=options)
