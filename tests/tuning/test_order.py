"""The order of a model's operators as part of its plan: measured if it differs, used if it is faster."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

from mtool import boards
from mtool.commands import Deployment, Options
from mtool.compiler.compilation import compile_model
from mtool.compiler.frontend.hashing import file_hash
from mtool.compiler.request import Request
from mtool.compiler.tuned.record import Unit
from mtool.compiler.tuned.results import TuningResults
from mtool.stages.building import BuiltProject
from mtool.tuning.firmware import TrialSite
from mtool.tuning.measuring import WholeRun, run_on
from mtool.tuning.search import Progress
from mtool.tuning.whole import best_whole

BOARD = boards.get("mps2_an386")
needs_arm = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")),
    reason="the Arm toolchain or QEMU is not installed",
)


def branches(folder: Path) -> Path:
    """Write two wide branches, of which the file computes the wide parts first."""
    wide = {f"w{which}": np.full((4, 64), 0.5 + which, np.float32) for which in (0, 1)}
    narrow = {f"n{which}": np.full((64, 2), 0.25 + which, np.float32) for which in (0, 1)}
    nodes = [
        *(helper.make_node("MatMul", ["x", f"w{which}"], [f"a{which}"]) for which in (0, 1)),
        *(helper.make_node("MatMul", [f"a{which}", f"n{which}"], [f"b{which}"]) for which in (0, 1)),
        helper.make_node("Sub", ["b0", "b1"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": (np.float32, (1, 4))}, ["y"], {**wide, **narrow}), folder / "m.onnx")
    return folder / "m.onnx"


def test_a_plan_says_the_order(tmp_path: Path) -> None:
    path = branches(tmp_path)
    auto = compile_model(path, BOARD).manifest
    written = compile_model(path, BOARD, Request(order="written")).manifest
    assert [one.name for one in auto.operators] != [one.name for one in written.operators]
    assert auto.arena_bytes < written.arena_bytes
    tuned = Request(tuning_results=TuningResults(order={file_hash(path): "written"}))
    assert compile_model(path, BOARD, tuned).manifest == written


@pytest.mark.slow
@pytest.mark.product(2)
@needs_arm
@pytest.mark.parametrize("is_faster", [True, False])
def test_the_order_of_the_file_is_taken_where_it_is_faster(tmp_path: Path, *, is_faster: bool) -> None:
    path = branches(tmp_path)
    written = [one.name for one in compile_model(path, BOARD, Request(order="written")).manifest.operators]
    place = TrialSite(BOARD, Options(edits="force"), tmp_path / "t", Deployment())

    def run(prepared: BuiltProject, unit: Unit) -> WholeRun:
        """Run it on the emulator, as if memory were faster for one order."""
        found = run_on(place.open)(prepared, unit)
        is_written = [one.name for one in prepared.manifest.operators] == written
        return dataclasses.replace(found, times=(100.0 if is_written == is_faster else 200.0,))

    whole = best_whole(path, Options(), place, Progress.of((), "instructions"), "instructions", run)
    assert whole.best.order == ("written" if is_faster else "auto")
    assert whole.default.order == "auto" and whole.gain == (0.5 if is_faster else 0.0)
