"""A seeded sample of onnx's node tests on an emulated microcontroller, many models in each firmware."""

import concurrent.futures
import multiprocessing
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import amount
import pytest
from onnx.backend.test.runner import Runner

from mtool import boards
from mtool.compiler.planning import target_of
from mtool.plugins.onnx_backend import firmware
from mtool.plugins.onnx_backend.batch import CModel
from tests.onnx_suite.cases import Case, node_cases
from tests.onnx_suite.expectations import NOT_PASSED
from tests.onnx_suite.running import compiled

BOARD = boards.get("mps2_an386")
COUNT = amount.of(200, 64)
FIRMWARES = 4
MOST_BYTES = 64 * 1024  # of constants, arena, inputs and outputs: all of a firmware's models lie side by side

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


def sample() -> list[Case]:
    """Return COUNT of the tests that pass on the host, drawn with seed 0, leaving out what is too large."""
    cases = [case for case in node_cases() if f"node/{case.name}" not in NOT_PASSED]
    random.Random(0).shuffle(cases)
    fitting = []
    for case in cases:
        inputs, outputs = case.data[0]
        if sum(array.nbytes for array in (*inputs, *outputs)) <= MOST_BYTES:
            fitting.append(case)
        if len(fitting) == COUNT:
            break
    return fitting


def fits(model: CModel) -> bool:
    return model.manifest.arena_bytes + model.manifest.constant_bytes <= MOST_BYTES


def run_on_board(cases: Sequence[Case]) -> list[str]:
    """Run cases in one firmware; return what went wrong, a line a case, and what did not fit."""
    made = [compiled(case, f"m{number}", target_of(BOARD)) for number, case in enumerate(cases)]
    wrong = [f"{case.name} does not fit" for case, one in zip(cases, made, strict=True) if not fits(one.model)]
    pairs = [(case, one) for case, one in zip(cases, made, strict=True) if fits(one.model)]
    with (
        tempfile.TemporaryDirectory(prefix="onnx-suite-") as folder,
        firmware.build([one.model for _, one in pairs], Path(folder) / "project", BOARD) as device,
    ):
        for number, (case, one) in enumerate(pairs):
            try:
                for inputs, wanted in case.data:
                    found = [*one.outputs(device.run(number, inputs)).values()]
                    Runner.assert_similar_outputs(wanted, found, case.rtol, case.atol)
            except AssertionError as differs:
                wrong.append(f"{case.name}: {' '.join(str(differs).split())[:300]}")
    return wrong


def test_a_sample_of_the_node_tests() -> None:
    assert BOARD.emulator is not None
    for program in (BOARD.toolchain, BOARD.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    cases = sample()
    assert len(cases) == COUNT
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        found = pool.map(run_on_board, [cases[start::FIRMWARES] for start in range(FIRMWARES)])
        wrong = [line for lines in found for line in lines]
    assert not wrong, "\n".join(wrong)
